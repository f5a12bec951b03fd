"""Reading ranges of offsets as messages, only what is committed, with a pool of consumers that belong to no group."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from headrace.errors import LogError, OffsetOutOfRange
from headrace.log.kafka.client import Connection, Introductions
from headrace.log.kafka.errors import translate

ROWS = 5_000
"""Messages handed on at a time."""
NEAR = 100
_IDLE = 4
_QUEUE_KB = 16 * 1024
_STEP_S = 0.5


class Fetcher:
    """Safe to use from several threads. Memory is bounded by a consumer's queue and one run of messages."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._idle: list[tuple[Consumer, Introductions]] = []
        self._closed = False

    def messages(self, topic: str, partition: int, start: int, end: int) -> Iterator[list[Message]]:
        """Messages with start ≤ offset < end, in runs. `end` must not be beyond the last stable offset."""
        if start >= end:
            return
        consumer, introductions = taken = self._take()
        try:
            introductions.introduce(topic)
            consumer.assign([TopicPartition(topic, partition, start)])
            yield from self._runs(consumer, topic, partition, end)
        except KafkaException as failure:
            raise translate(failure, f"read `{topic}`", self._connection, topic) from failure
        finally:
            self._give_back(taken)

    def left(self, topic: str, partition: int, start: int, end: int) -> int:
        """How many records are left to read: offsets, but near the end they are looked at, so that marks of
        transactions alone are nothing."""
        if not 0 < end - start <= NEAR:
            return max(0, end - start)
        try:
            return sum(map(len, self.messages(topic, partition, start, end)))
        except LogError:
            return end - start

    def _runs(self, consumer: Consumer, topic: str, partition: int, end: int) -> Iterator[list[Message]]:
        seconds = self._connection.settings.request_seconds
        deadline = time.monotonic() + seconds
        while True:
            run: list[Message] = []
            done = False
            # `consume` waits until it has all it was asked for, so the first is waited for alone.
            first = consumer.poll(_STEP_S)
            for message in [] if first is None else [first, *consumer.consume(ROWS - 1, 0)]:
                error = message.error()
                if error is None:
                    if message.offset() >= end:
                        done = True
                        break
                    run.append(message)
                    done = message.offset() == end - 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    # Records at the end may be none: marks of transactions, or aborted ones.
                    done = message.offset() >= end
                else:
                    raise _reading(error, topic, partition, self._connection)
            if run:
                yield run
                deadline = time.monotonic() + seconds
            if done:
                return
            if time.monotonic() > deadline:
                raise _reading(KafkaError(KafkaError._TIMED_OUT), topic, partition, self._connection)

    def _take(self) -> tuple[Consumer, Introductions]:
        with self._lock:
            if self._closed:
                raise LogError("the log is closed")
            if self._idle:
                return self._idle.pop()
        consumer = Consumer(
            self._connection.conf(
                group_id="headrace-reader",
                enable_auto_commit=False,
                enable_partition_eof=True,
                auto_offset_reset="error",
                isolation_level="read_committed",
                check_crcs=True,
                fetch_wait_max_ms=20,
                fetch_error_backoff_ms=20,
                queued_max_messages_kbytes=_QUEUE_KB,
            )
        )
        return consumer, Introductions(consumer, self._connection.settings.request_seconds)

    def _give_back(self, taken: tuple[Consumer, Introductions]) -> None:
        taken[0].unassign()
        with self._lock:
            if not self._closed and len(self._idle) < _IDLE:
                self._idle.append(taken)
                return
        taken[0].close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for consumer, _ in idle:
            consumer.close()


def _reading(error: KafkaError, topic: str, partition: int, connection: Connection) -> Exception:
    if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
        return OffsetOutOfRange(f"partition {partition} of `{topic}` no longer has that offset", detail=error.str())
    return translate(error, f"read `{topic}`", connection, topic)
