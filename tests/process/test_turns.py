"""More queries than cores: each gets its turn, whatever it is called."""

from __future__ import annotations

import threading
from collections import Counter

import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

POOLS = ["a", "b", "c", "d", "e", "z"]
JOBS = 60


def test_the_last_in_the_alphabet_does_not_wait_until_nobody_else_has_anything_to_do(spark: SparkSession) -> None:
    done: Counter[str] = Counter()
    failures: list[BaseException] = []
    task = spark.sql("SELECT reflect('java.lang.Thread', 'sleep', 100L) AS slept FROM range(0, 1, 1, 1)")

    def work(pool: str) -> None:
        try:
            spark.sparkContext.setLocalProperty("spark.scheduler.pool", f"turns {pool}")
            while done.total() < JOBS and not failures:
                task.collect()
                done[pool] += 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(pool,), name=f"pool-{pool}") for pool in POOLS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert min(done[pool] for pool in POOLS) > JOBS / len(POOLS) / 3, done
