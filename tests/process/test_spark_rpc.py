"""Spark's own ports: who does not know the secret of this start gets no answer."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def ask_driver(spark: SparkSession, authenticate: bool) -> str:
    """Ask the driver's RPC port for an endpoint, as another process would, and return the endpoint's name. Within this
    JVM a client that authenticates finds the secret; one that does not is in the position of any other user."""
    jvm: Any = spark.sparkContext._jvm
    flag = str(authenticate).lower()
    conf = jvm.org.apache.spark.SparkConf(False).set("spark.master", "local")
    for name, value in {
        "spark.authenticate": flag,
        "spark.network.crypto.enabled": flag,
        "spark.rpc.lookupTimeout": "60s",
    }.items():
        conf = conf.set(name, value)
    manager = jvm.org.apache.spark.SecurityManager
    defaults = [getattr(manager, f"$lessinit$greater$default${number}")() for number in (2, 3)]
    client = jvm.org.apache.spark.rpc.RpcEnv.create("client", "127.0.0.1", 0, conf, manager(conf, *defaults), True)
    try:
        port = int(spark.sparkContext.getConf().get("spark.driver.port") or 0)
        address = jvm.org.apache.spark.rpc.RpcAddress("127.0.0.1", port)
        return str(client.setupEndpointRef(address, "BlockManagerMaster").name())
    finally:
        client.shutdown()


def test_only_who_has_the_secret_gets_an_answer(spark: SparkSession) -> None:
    assert ask_driver(spark, authenticate=True) == "BlockManagerMaster"
    with pytest.raises(Py4JJavaError):
        ask_driver(spark, authenticate=False)


def test_the_secret_is_not_among_the_settings(spark: SparkSession) -> None:
    """Settings are on the JVM's command line, which every user of the machine can read."""
    conf = dict(spark.sparkContext.getConf().getAll())
    assert (conf["spark.authenticate"], conf["spark.network.crypto.enabled"]) == ("true", "true")
    assert not [name for name in conf if "secret" in name]
