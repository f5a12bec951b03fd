"""Messages a consumer has, by partition, given out in turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from confluent_kafka import Message

from headrace.log.base import TopicPartition


class Buffer:
    """librdkafka hands out a partition's messages as long as it has some; here each gets its share."""

    def __init__(self) -> None:
        self._messages: dict[TopicPartition, deque[Message]] = {}
        self._turn = 0

    def __len__(self) -> int:
        return sum(map(len, self._messages.values()))

    def add(self, at: TopicPartition, message: Message) -> None:
        self._messages.setdefault(at, deque()).append(message)

    def has(self, at: TopicPartition) -> bool:
        return bool(self._messages.get(at))

    def ready(self, paused: Collection[TopicPartition]) -> list[TopicPartition]:
        """Partitions that have something to give."""
        return sorted(at for at, messages in self._messages.items() if messages and at not in paused)

    def drop(self, at: TopicPartition) -> None:
        self._messages.pop(at, None)

    def clear(self) -> None:
        self._messages.clear()

    def take(self, most: int, paused: Collection[TopicPartition]) -> dict[TopicPartition, list[Message]]:
        """A fair share of every partition that has something, then the rest, beginning with another one each time."""
        ready = self.ready(paused)
        self._turn += 1
        first = self._turn % max(1, len(ready))
        taken: dict[TopicPartition, list[Message]] = {}
        for share in (max(1, most // len(ready)), most) if ready else ():
            for at in ready[first:] + ready[:first]:
                messages = self._messages[at]
                count = min(share, most, len(messages))
                taken.setdefault(at, []).extend(messages.popleft() for _ in range(count))
                most -= count
        return {at: messages for at, messages in taken.items() if messages}
