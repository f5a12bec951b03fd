"""Event ids on Kafka are used once: by several servers, after a crash, when an answer was lost, whoever wrote them."""

from __future__ import annotations

import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer

from headrace.errors import Overloaded, OwnerLost
from headrace.log.base import Append, Appended, Log
from headrace.log.kafka import ids as kafka_ids
from headrace.log.kafka import turns
from headrace.log.kafka.topic_ids import TopicIds
from headrace.log.kafka.transaction import Transactor
from headrace.log.local.ids import MANIFEST
from tests.kafka import open_kafka
from tests.log.support import PLAIN, batch, numbers, put
from tests.support import wait_for

pytestmark = pytest.mark.slow
WIDE = replace(PLAIN, partitions=2)


@pytest.fixture
def prefix() -> str:
    return f"ids{uuid.uuid4().hex[:8]}."


def send(log: Log, wanted: Iterable[int]) -> Appended:
    """Each number under its own id."""
    chosen = list(wanted)
    rows = batch(N=chosen, id_=[f"id {n}" for n in chosen])
    return log.append([Append("plain", rows)]).result(120)[0]


def stored(log: Log) -> list[int]:
    return sorted(n for part in range(2) for n in numbers(log, "plain", part))


def test_two_servers_take_an_event_once(kafka: str, prefix: str, tmp_path: Path) -> None:
    """As clients do that turn to another server when one is slow: both get all of them, in any order, at once."""
    with open_kafka(kafka, prefix, tmp_path / "one") as one, open_kafka(kafka, prefix, tmp_path / "two") as two:
        one.create_topic(WIDE)
        firsts, known = range(0, 60, 5), []

        def serve(log: Log) -> None:
            known.extend([len(send(log, range(first, first + 5)).duplicates) for first in firsts])

        threads = [threading.Thread(target=serve, args=[log]) for log in (one, two)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert stored(one) == list(range(60))
        assert sum(known) == 60


def test_an_acknowledged_id_is_known_after_kill_9(
    kafka: str, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another server, which waits for the dead one's turn to end, and by the one that is started in its place."""
    monkeypatch.setattr(turns, "PATIENCE_S", 1.0)
    with open_kafka(kafka, prefix) as log:
        log.create_topic(WIDE)
    command = [sys.executable, "-m", "tests.log.kafka.id_writer", kafka, prefix, str(tmp_path / "own")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = [int(process.stdout.readline()) for _ in range(8)]
        process.kill()
        last = max(said + [int(line) for line in process.stdout.read().split()])
    with open_kafka(kafka, prefix, tmp_path / "other") as other, open_kafka(kafka, prefix, tmp_path / "own") as log:
        assert len(send(other, range(last + 1)).duplicates) == last + 1
        assert len(send(log, range(last + 1)).duplicates) == last + 1
        send(log, range(last + 10))
        assert stored(log) == list(range(last + 10))


def test_a_write_whose_answer_was_lost_is_looked_for(
    kafka: str, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    retry = Transactor.retry

    def lose_the_answer(transactor: Transactor, step: Callable[[float], None], doing: str) -> None:
        retry(transactor, step, doing)
        if getattr(step, "__name__", "") == "commit_transaction":
            raise OwnerLost("could not write: Kafka did not answer in time")

    with open_kafka(kafka, prefix, tmp_path) as log:
        log.create_topic(WIDE)
        send(log, [1])
        with monkeypatch.context() as patched:
            patched.setattr(Transactor, "retry", lose_the_answer)
            with pytest.raises(OwnerLost):
                send(log, [2, 3])
        assert send(log, [1, 2, 3, 4]).duplicates == (0, 1, 2)
        assert stored(log) == [1, 2, 3, 4]


def test_ids_of_other_programs_count(kafka: str, prefix: str, tmp_path: Path) -> None:
    with open_kafka(kafka, prefix, tmp_path) as log:
        log.create_topic(WIDE)
        send(log, [1])
        other = Producer({"bootstrap.servers": kafka})
        for number in (2, 3):
            headers = {"headrace-id": f"id {number}", "trace": "x"}
            other.produce(prefix + "plain", f'{{"n": {number}}}', partition=number % 2, headers=headers)
        other.produce(prefix + "plain", '{"n": 4}', headers=None)
        assert not other.flush(30)
        assert send(log, [1, 2, 3, 4]).duplicates == (0, 1, 2)
        assert stored(log) == [1, 2, 3, 4, 4]


@pytest.mark.parametrize("harm", ["half", "ahead"])
def test_an_index_that_is_damaged_is_made_again(kafka: str, prefix: str, tmp_path: Path, harm: str) -> None:
    with open_kafka(kafka, prefix, tmp_path) as log:
        topic = log.create_topic(WIDE)
        send(log, range(50))
    index = tmp_path / "0" / str(topic.id)
    match harm:
        case "half":
            run = next(index.glob("*.run"))
            run.write_bytes(run.read_bytes()[:-30])
        case "ahead":
            manifest = (index / MANIFEST).read_bytes()
            (index / MANIFEST).write_bytes(
                manifest.replace(b'"watermarks":{', b'"watermarks":{"0":99999,"1":99999},"x":{')
            )
    with open_kafka(kafka, prefix, tmp_path) as log:
        assert len(send(log, range(60)).duplicates) == 50
        assert stored(log) == list(range(60))


def test_processes_of_one_project_have_an_index_each(kafka: str, prefix: str, tmp_path: Path) -> None:
    with open_kafka(kafka, prefix, tmp_path) as one:
        one.create_topic(WIDE)
        send(one, [1])
        with open_kafka(kafka, prefix, tmp_path) as two:
            assert send(two, [1, 2]).duplicates == (0,)
        assert send(one, [2, 3]).duplicates == (0,)
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"0", "1"}
    with open_kafka(kafka, prefix, tmp_path) as again:
        assert send(again, [1, 2, 3]).duplicates == (0, 1, 2)
        again.delete_topic("plain")
        assert not list((tmp_path / "0").iterdir())


def test_what_this_process_wrote_is_not_read_again(
    kafka: str, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[tuple[int, int]] = []
    reading = TopicIds._read

    def note(ids: TopicIds, partition: int, end: int) -> None:
        read.append((partition, end))
        reading(ids, partition, end)

    with open_kafka(kafka, prefix, tmp_path) as log:
        log.create_topic(WIDE)
        send(log, [0])
        monkeypatch.setattr(TopicIds, "_read", note)
        for number in range(1, 6):
            send(log, range(number * 10, number * 10 + 5))
            put(log, "plain", 0, N=[1000 + number])
            put(log, "plain", N=[1000, 2000, 3000])
        send(log, [99])
        assert read == []
        put_by_another(kafka, prefix)
        send(log, [100])
        assert len(read) == 1


def put_by_another(kafka: str, prefix: str) -> None:
    with open_kafka(kafka, prefix) as other:
        put(other, "plain", 0, N=[7])


def test_a_server_waits_for_what_it_cannot_read_yet(
    kafka: str, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction is open in the topic, and what the other server wrote lies behind it."""
    monkeypatch.setattr(kafka_ids, "PATIENCE_S", 0.5)
    monkeypatch.setattr(turns, "PATIENCE_S", 1.0)
    with open_kafka(kafka, prefix, tmp_path / "one") as one, open_kafka(kafka, prefix, tmp_path / "two") as two:
        one.create_topic(WIDE)
        send(one, [0])
        slow = one.producer("slow")
        slow.begin()
        for part in range(2):
            slow.send("plain", batch(N=[9]), part)
        slow.flush()
        writing = one.append([Append("plain", batch(N=[1, 2], id_=["id 1", "id 2"]))])
        with pytest.raises(Overloaded, match="being read"):
            send(two, [1, 2, 3])
        slow.abort()
        writing.result(60)
        wait_for(lambda: tried(two, [1, 2, 3]), 60, "the ids to be read")
        assert stored(two) == [0, 1, 2, 3]


def tried(log: Log, wanted: Iterable[int]) -> bool:
    try:
        send(log, wanted)
    except Overloaded:
        return False
    return True
