"""Epochs of a log: which part of it was written between which two openings.

Every time an owner opens the log a new epoch begins, with a random id and the arrival number of its first record. The
list of epochs is kept with the log, so a copy of the log has the list as it was when it was copied. Whoever is opened
first after that, the copy or the original, goes on in an epoch that the other does not know.

A position outside of the log (a view's rows, a feed's event id, a cursor) is an arrival number and the epoch that was
current when it was taken. It belongs to a log whose list has that epoch and has not left it before the position: then
everything before the position is the same in both. Any other position is of a log that went on differently, and nothing
may be read on from it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from secrets import token_hex

import msgspec

from headrace.structs import ready

ID_BYTES = 4
ENDLESS = (1 << 63) - 1
MOST = 1_000
"""Epochs that are remembered. A position that was last used so many openings ago counts as one of another log."""


class Epoch(msgspec.Struct, frozen=True):
    number: int
    id: str
    start: int
    """The arrival number of its first record, or of the one to come."""


@dataclass(frozen=True, slots=True)
class Epochs:
    """All that are remembered, oldest first; there is at least one."""

    known: tuple[Epoch, ...]

    @property
    def current(self) -> Epoch:
        return self.known[-1]

    def at(self, arrival: int) -> Epoch:
        """Return the epoch that the record before `arrival` was written in.

        >>> epochs = Epochs((Epoch(1, "a", 0), Epoch(2, "b", 5), Epoch(3, "c", 5), Epoch(4, "d", 9)))
        >>> [epochs.at(arrival).id for arrival in (0, 5, 6, 9, 10)]
        ['a', 'a', 'c', 'c', 'd']
        """
        return self.known[max(0, bisect_left(self.known, arrival, key=lambda epoch: epoch.start) - 1)]

    def include(self, epoch: str, arrival: int) -> bool:
        """Return whether a position that was taken in an epoch is one of this log.

        >>> epochs = Epochs((Epoch(1, "a", 0), Epoch(2, "b", 5), Epoch(3, "c", 9)))
        >>> epochs.include("a", 5), epochs.include("a", 6), epochs.include("b", 3), epochs.include("x", 3)
        (True, False, True, False)
        >>> epochs.include("c", 1000)
        True
        """
        end = self.end(epoch)
        return end is not None and arrival <= end

    def end(self, epoch: str) -> int | None:
        """Return the arrival number at which the log left an epoch: of its last record and one more. It is endless for
        the current one; None for one that is not known.

        >>> epochs = Epochs((Epoch(1, "a", 0), Epoch(2, "b", 5)))
        >>> epochs.end("a"), epochs.end("b") == ENDLESS, epochs.end("x")
        (5, True, None)
        """
        for known, following in zip(self.known, (*self.known[1:], None), strict=True):
            if known.id == epoch:
                return ENDLESS if following is None else following.start
        return None

    def begin(self, start: int) -> Epochs:
        """Return the epochs with a new one that begins at `start`."""
        new = Epoch(self.current.number + 1, token_hex(ID_BYTES), start)
        return Epochs((*self.known, new)[-MOST:])


def begin_first(start: int = 0) -> Epochs:
    """Return the epochs of a log that has none yet: everything in it is of the first."""
    return Epochs((Epoch(1, token_hex(ID_BYTES), min(start, 0)),))


def decode_epochs(content: bytes) -> Epochs | None:
    """Return what `encode_epochs` wrote; None if that cannot be understood."""
    try:
        known = msgspec.json.decode(content, type=ready(tuple[Epoch, ...]))
    except msgspec.MsgspecError:
        return None
    return Epochs(known) if known else None


def encode_epochs(epochs: Epochs) -> bytes:
    return msgspec.json.encode(epochs.known) + b"\n"


def describe_epochs(epochs: Sequence[Epoch]) -> str:
    """Return the newest epochs in words, for errors and `headrace log stats`."""
    return ", ".join(f"{epoch.number} ({epoch.id}) from arrival {epoch.start}" for epoch in epochs[-3:])
