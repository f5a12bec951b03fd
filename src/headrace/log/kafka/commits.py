"""Committing a member's offsets, while its group may be shared out anew."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from confluent_kafka import Consumer as Client
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as At

from headrace.errors import Fenced
from headrace.log.base import TopicPartition
from headrace.log.kafka.client import Connection
from headrace.log.kafka.errors import error_of, is_lost_member, translate

Poll = Callable[[float], None]

_STEP_S = 0.05
_UNSETTLED = (KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS)


class Commits:
    """One commit at a time, sent by the client that reads. `poll` lets that client go on meanwhile."""

    def __init__(self, connection: Connection, group: str, session_s: float) -> None:
        self._connection, self._group, self._session_s = connection, group, session_s
        self._pending: dict[TopicPartition, int] = {}
        """What the caller is committing right now; what is taken away meanwhile is committed before it goes."""
        self._answers: list[KafkaError | None] = []
        """What became of the commit that was sent last."""

    def commit(
        self, client: Client, offsets: Mapping[TopicPartition, int], gains: Mapping[TopicPartition, int], poll: Poll
    ) -> None:
        """`gains` tells when a partition became ours, also while this goes on: one that came back is another."""
        self._pending = dict(offsets)
        held = {at: gains.get(at) for at in self._pending}
        # A member that holds up the others is sent away after a session; then it is our turn.
        deadline = time.monotonic() + 3 * self._session_s
        try:
            while self._pending and (error := self._send(client, deadline, poll)) is not None:
                # The group was shared out anew. As long as we keep what we commit, it is committed after that.
                kept = all(gains.get(at) == held[at] is not None for at in self._pending)
                if error.code() not in _UNSETTLED or not kept or time.monotonic() > deadline:
                    raise self._refused(error)
                poll(_STEP_S)
        finally:
            self._pending = {}

    def answered(self, error: KafkaError | None, places: list[At]) -> None:
        """The client's callback."""
        self._answers.append(error or next((place.error for place in places if place.error is not None), None))

    def settle(self, client: Client, going: Iterable[TopicPartition]) -> None:
        """Commit at once what is about to be taken away."""
        last = {at: self._pending[at] for at in going if at in self._pending}
        if last and self._at_once(client, last) is None:
            for at in last:
                del self._pending[at]

    def _send(self, client: Client, deadline: float, poll: Poll) -> KafkaError | None:
        """Go on polling meanwhile: a broker answers behind our request to join, which waits for the other members, and
        they may wait for us to give something up."""
        self._answers.clear()
        try:
            client.commit(offsets=self._places(self._pending), asynchronous=True)
        except KafkaException as failure:
            return error_of(failure) or KafkaError(KafkaError._FAIL)
        while not self._answers and time.monotonic() < deadline:
            poll(_STEP_S)
        return self._answers[0] if self._answers else KafkaError(KafkaError._TIMED_OUT)

    def _at_once(self, client: Client, offsets: Mapping[TopicPartition, int]) -> KafkaError | None:
        try:
            done = client.commit(offsets=self._places(offsets), asynchronous=False)
        except KafkaException as failure:
            return error_of(failure) or KafkaError(KafkaError._FAIL)
        return next((place.error for place in done or () if place.error is not None), None)

    def _places(self, offsets: Mapping[TopicPartition, int]) -> list[At]:
        prefix = self._connection.settings.prefix
        return [At(prefix + at.topic, at.partition, offset) for at, offset in offsets.items()]

    def _refused(self, error: KafkaError) -> Exception:
        if is_lost_member(error):
            return Fenced(
                f"group `{self._group}` has moved on without this member",
                detail=error.str(),
                hint="poll to join it again; what was read since the last commit comes again, to somebody",
            )
        return translate(error, f"commit offsets of `{self._group}`", self._connection)
