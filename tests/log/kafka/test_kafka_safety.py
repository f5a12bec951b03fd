"""Security, fences, and brokers that are not there."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import ListOffsetsResultInfo

from headrace.config import KafkaSettings
from headrace.errors import ConfigError, Fenced, LogError, OwnerLost, Refused, Unauthenticated
from headrace.log.base import Append, BatchIdentity, Committed, Log, Route, TopicPartition
from headrace.log.kafka import batches
from headrace.log.kafka.client import Connection
from headrace.log.kafka.offsets import Offsets, Unsettled
from scripts.kafka import HOST, free_ports
from tests.kafka import open_kafka, small_cluster
from tests.log.support import DERIVED, PLAIN, VIEWS, batch, numbers, put, rows
from tests.support import free_port

pytestmark = pytest.mark.slow
PASSWORD = "correct horse"


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaSettings]:
    """A broker that speaks TLS and wants a login."""
    folder = tmp_path_factory.mktemp("secure")
    [port] = free_ports(1)
    _make_certificate(folder)
    cluster = small_cluster(folder)
    cluster.settings = dict(cluster.settings) | {
        "listeners": f"PLAINTEXT://{HOST}:{{port}},CLIENT://{HOST}:{port},CONTROLLER://{HOST}:{{controller_port}}",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENT:SASL_SSL,CONTROLLER:PLAINTEXT",
        "ssl.keystore.location": str(folder / "broker.p12"),
        "ssl.keystore.password": "changeit",
        "ssl.keystore.type": "PKCS12",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.client.plain.sasl.jaas.config": (
            f'org.apache.kafka.common.security.plain.PlainLoginModule required user_ada="{PASSWORD}";'
        ),
        "listener.name.client.scram-sha-256.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
    }
    cluster.format_options = ["--add-scram", f"SCRAM-SHA-256=[name=ada,password={PASSWORD}]"]
    cluster.start()
    ca = str(folder / "ca.pem")
    yield KafkaSettings(bootstrap=f"{HOST}:{port}", tls=True, tls_ca=ca, sasl="PLAIN", user="ada")
    cluster.stop(kill=True)


def _make_certificate(folder: Path) -> None:
    store = ["-keystore", str(folder / "broker.p12"), "-storetype", "PKCS12", "-storepass", "changeit", "-alias", "b"]
    name = ["-dname", f"CN={HOST}", "-ext", f"san=ip:{HOST}", "-keyalg", "EC", "-validity", "2"]
    subprocess.run(["keytool", "-genkeypair", *store, *name], check=True, capture_output=True)
    exported = ["keytool", "-exportcert", "-rfc", *store, "-file", str(folder / "ca.pem")]
    subprocess.run(exported, check=True, capture_output=True)


def settings_with(secure: KafkaSettings, **changes: Any) -> dict[str, Any]:
    given = {name: getattr(secure, name) for name in ("tls", "tls_ca", "sasl", "user")}
    return given | {"request_seconds": 2.0} | changes


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_tls_and_a_login(secure: KafkaSettings, mechanism: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_KAFKA_PASSWORD", PASSWORD)
    with open_kafka(secure.bootstrap, **settings_with(secure, sasl=mechanism, request_seconds=20.0)) as log:
        log.create_topic(VIEWS)
        put(log, "pageviews", USERID=["a", "b", "c"], N=[1, 2, 3])
        assert sorted(row["N"] for row in rows(log, "pageviews")) == [1, 2, 3]


def test_a_wrong_password_is_named(secure: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_KAFKA_PASSWORD", "guess")
    with pytest.raises(Unauthenticated, match="login"), open_kafka(secure.bootstrap, **settings_with(secure)):
        pass


def test_a_broker_nobody_vouches_for_is_refused(secure: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_KAFKA_PASSWORD", PASSWORD)
    with pytest.raises(Refused, match="TLS"), open_kafka(secure.bootstrap, **settings_with(secure, tls_ca="")):
        pass


def test_settings_are_checked_first(tmp_path: Path) -> None:
    for wrong, what in [
        (KafkaSettings(), "bootstrap"),
        (KafkaSettings(bootstrap="b:1", tls=True, tls_ca=str(tmp_path / "none.pem")), "none.pem"),
        (KafkaSettings(bootstrap="b:1", sasl="PLAIN"), "user"),
        (KafkaSettings(bootstrap="b:1", sasl="PLAIN", user="ada"), "HEADRACE_KAFKA_PASSWORD"),
    ]:
        with pytest.raises(ConfigError, match=what):
            Connection(wrong, environment={})


def test_a_broker_that_is_not_there_is_named() -> None:
    bootstrap = f"{HOST}:{free_port()}"
    with pytest.raises(OwnerLost, match=bootstrap) as raised, open_kafka(bootstrap, request_seconds=1.0):
        pass
    assert "bootstrap" in (raised.value.hint or "")


# A query's batches, from two engines


def commit(log: Log, number: int, *values: int, checkpoint: str = "c") -> Committed:
    identity = BatchIdentity("CTAS_COUNTS_1", 1, checkpoint, number, "{}")
    route = Route("counts", {"K": "K", "N": "N"})
    log.stage("t", 0, 0, [route], iter([batch(K=["a"] * len(values), N=list(values))]))
    return log.commit("t", [(0, 0)], identity)


def test_a_batch_lands_once_whichever_engine_sends_it(kafka: str) -> None:
    """The old engine's producer is fenced by the new one's; the identity decides what is still to be done."""
    prefix = f"fence{uuid.uuid4().hex[:8]}."
    with open_kafka(kafka, prefix) as old, open_kafka(kafka, prefix) as new:
        old.create_topic(DERIVED)
        assert not commit(old, 0, 1).duplicate
        assert commit(new, 0, 1).duplicate
        assert not commit(new, 1, 2).duplicate
        with pytest.raises(Fenced):
            commit(old, 1, 2)
        assert commit(old, 1, 2).duplicate
        assert not commit(old, 2, 3).duplicate
        assert [row["N"] for row in rows(new, "counts")] == [1, 2, 3]


@contextmanager
def open_transaction(bootstrap: str, topic: str) -> Iterator[None]:
    """Another query's transaction, with a row in a topic, that is neither committed nor aborted meanwhile."""
    conf = {"bootstrap.servers": bootstrap, "transactional.id": f"other{uuid.uuid4().hex}"}
    producer = Producer(conf | {"transaction.timeout.ms": 600_000})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, key="ANOTHER/1", value="{}")
    assert producer.flush(60) == 0
    try:
        yield
    finally:
        producer.abort_transaction(60)


def test_an_open_transaction_of_another_query_hides_no_batch_and_delays_no_commit(
    kafka: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader sees identities only up to the first open transaction: an engine that started again wrote the last batch
    a second time, and every commit took as long as a request may."""
    prefix = f"hidden{uuid.uuid4().hex[:8]}."
    with (
        open_kafka(kafka, prefix, request_seconds=300.0) as old,
        open_kafka(kafka, prefix) as new,
        ThreadPoolExecutor() as threads,
    ):
        old.create_topic(DERIVED)
        assert not commit(old, 0, 1).duplicate
        with open_transaction(kafka, f"{prefix}_headrace_batches"):
            assert not threads.submit(commit, old, 1, 2).result(120).duplicate
            assert getattr(old.last_identity("CTAS_COUNTS_1", 1), "batch", None) == 1
            monkeypatch.setattr(batches, "SETTLE_S", 1.0)
            with pytest.raises(Unsettled, match="which batch of `CTAS_COUNTS_1` was committed last"):
                commit(new, 1, 2)
            monkeypatch.undo()
            waiting = threads.submit(commit, new, 1, 2)
        assert waiting.result(120).duplicate
        assert not commit(new, 2, 3).duplicate
        assert [row["N"] for row in rows(new, "counts")] == [1, 2, 3]


def test_what_is_committed_is_acknowledged_though_nobody_can_say_when_it_is_readable(
    kafka: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker died right after the commit: its partitions have no leader for longer than anyone waits."""

    def no_leader(offsets: Offsets, wanted: Any, seconds: float) -> None:
        raise LogError("Kafka has no leader for some partitions")

    with open_kafka(kafka) as log:
        log.create_topic(VIEWS)
        with monkeypatch.context() as patched:
            patched.setattr(Offsets, "wait_for", no_leader)
            several = [
                log.append([Append("pageviews", batch(USERID=["a", "b", "c", "d"], N=[1, 2, 3, 4]))]) for _ in "ab"
            ]
            assert all(future.result(60)[0].positions for future in several)
        put(log, "pageviews", USERID=["a"], N=[5])
        assert sorted(row["N"] for row in rows(log, "pageviews")) == [1, 1, 2, 2, 3, 3, 4, 4, 5]


def test_order_is_the_order_of_the_calls_in_and_out_of_transactions(kafka: str) -> None:
    """Appends for one partition go straight out, those for several in transactions; neither overtakes the other."""
    with open_kafka(kafka) as log:
        log.create_topic(VIEWS)
        log.create_topic(PLAIN)
        futures = []
        for number in range(60):
            appends = [Append("plain", batch(N=[number]))]
            if number % 3 == 0:
                appends.append(Append("pageviews", batch(USERID=[str(number)])))
            futures.append(log.append(appends))
        for future in futures:
            future.result(60)
        assert numbers(log) == list(range(60))


def test_an_answer_that_holds_no_offset_is_asked_for_again(kafka: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a broker that stood still: once it was taken for an offset, and nothing could be read from there again."""
    with open_kafka(kafka) as log:
        log.create_topic(PLAIN)
        put(log, "plain", N=[1])
        asked: list[int] = []
        ask = log.admin.list_offsets

        def no_answer_at_first(*arguments: Any, **options: Any) -> dict[Any, Future[Any]]:
            answers: dict[Any, Future[Any]] = ask(*arguments, **options)
            asked.append(len(answers))
            if len(asked) > 2:
                return answers
            nothing: Future[Any] = Future()
            nothing.set_result(ListOffsetsResultInfo(-1001, -1, -1))
            return dict.fromkeys(answers, nothing)

        monkeypatch.setattr(log.admin, "list_offsets", no_answer_at_first)
        [end] = log.snapshot().ends["plain"]
        assert (end.start, end.end, len(asked) > 2) == (0, 1, True)


def test_offsets_that_a_transaction_committed_are_seen_at_once(kafka: str) -> None:
    """The first of a group, which a broker does not list while it writes down that they are committed: without asking
    for them by name one in thirty was missed."""
    with open_kafka(kafka) as log, log.producer("worker") as producer:
        log.create_topic(PLAIN)
        put(log, PLAIN.name, N=[1, 2, 3])
        for number in range(100):
            producer.begin()
            producer.send_offsets(f"group{number}", {TopicPartition(PLAIN.name, 0): 2})
            producer.commit()
            assert [offset.committed for offset in log.group(f"group{number}").offsets] == [2]
