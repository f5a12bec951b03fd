"""Idempotent producers as the owner knows them: who writes under which epoch, and what each of them wrote last.

A producer numbers its writes. The owner takes a write only if it follows the last one it has, answers one it has
already with the same answer as before, and refuses a gap; so a producer may send everything unanswered again, in order,
after a lost connection or a crash of the owner. All of it is in the journal, in the record that commits the write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headrace.errors import Fenced, OutOfSequence, UsageError
from headrace.log.base import Appended

IN_FLIGHT = 5
"""Writes of one producer that may be unanswered; so many answers are kept."""
FORGET_UNNAMED_S = 3600.0
FORGET_NAMED_S = 7 * 24 * 3600.0
MOST_UNNAMED = 10_000
_MOST_POSITIONS = 1000
"""Of a larger answer only the fact is kept: a repeat is then answered without positions."""

Answer = list[Any]


class Stamp(NamedTuple):
    """What makes a write the same write."""

    producer: int
    epoch: int
    sequence: int


@dataclass(slots=True)
class ProducerState:
    id: int
    name: str | None
    epoch: int
    sequence: int = -1
    answers: dict[int, Answer] = field(default_factory=dict)

    def accept(self, sequence: int, answer: Answer) -> None:
        self.sequence = sequence
        self.answers[sequence] = answer
        while len(self.answers) > IN_FLIGHT:
            del self.answers[next(iter(self.answers))]

    def to_payload(self) -> list[Any]:
        return [self.id, self.name, self.epoch, self.sequence, list(self.answers.items())]

    @classmethod
    def from_payload(cls, payload: Sequence[Any]) -> ProducerState:
        number, name, epoch, sequence, answers = payload
        return cls(number, name, epoch, sequence, dict(answers))


def answer_payload(results: Sequence[Appended]) -> Answer:
    if sum(len(one.positions) + len(one.duplicates) for one in results) > _MOST_POSITIONS:
        return [len(results)]
    return [len(results), [[one.positions, one.duplicates] for one in results]]


def answer_results(answer: Answer) -> list[Appended]:
    if len(answer) == 1:
        return [Appended(())] * answer[0]
    return [Appended(tuple((p, f, n) for p, f, n in positions), tuple(rows)) for positions, rows in answer[1]]


def check_epoch(producers: Mapping[int, ProducerState], stamp: Stamp) -> ProducerState:
    """`Fenced` if the producer is not the newest of its name, or was forgotten."""
    state = producers.get(stamp.producer)
    if state is None:
        raise Fenced(
            "the log has forgotten this producer",
            detail="it wrote nothing for long, or belongs to another log",
            hint="open it again",
            forgotten=True,
        )
    if state.epoch != stamp.epoch:
        raise Fenced(
            f"another producer `{state.name}` has taken over",
            hint="one producer per name: close this one",
            producer=state.name,
        )
    return state


def known_results(state: ProducerState, pending: Mapping[int, Answer], stamp: Stamp) -> list[Appended] | None:
    """The answer to a write that is there already, None for the one that comes next. `pending` are the answers of the
    group that is being made."""
    last = max(pending, default=state.sequence)
    if stamp.sequence == last + 1:
        return None
    if stamp.sequence > last:
        raise OutOfSequence(
            f"write {stamp.sequence} of a producer came, but {last + 1} is next",
            hint="send what was not answered again, in order",
            expected=last + 1,
        )
    answer = pending.get(stamp.sequence, state.answers.get(stamp.sequence))
    return [] if answer is None else answer_results(answer)


def check_name(name: str | None) -> None:
    if name is not None and not 1 <= len(name) <= 249:
        raise UsageError("a producer's name has 1 to 249 characters")


def overdue(producers: Mapping[int, ProducerState], uses: Mapping[int, float], now: float) -> list[int]:
    """Producers that were not used for long, and the oldest of too many. Names are few and kept longer."""
    unnamed = [state.id for state in producers.values() if state.name is None]
    unnamed.sort(key=lambda number: uses.get(number, now))
    crowd = set(unnamed[: max(0, len(unnamed) - MOST_UNNAMED)])
    return [
        state.id
        for state in producers.values()
        if state.id in crowd
        or now - uses.get(state.id, now) >= (FORGET_UNNAMED_S if state.name is None else FORGET_NAMED_S)
    ]
