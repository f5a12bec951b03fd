"""Events as columns: what a source that reads thousands of lines at once has, without an object for each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from headrace.log.base import ID, TIME
from headrace.log.codecs.json_codec import Unreadable


@dataclass(frozen=True, slots=True)
class Columns:
    """`rows` events. A value that is None is a field the event does not have."""

    rows: int
    fields: Mapping[str, Sequence[Any]]
    originals: Callable[[int], bytes]
    """The bytes event number *i* was sent as."""
    times: Sequence[int | None] | None = None
    """Milliseconds; None is the time of arrival."""
    ids: Sequence[str | None] | None = None
    unreadable: Mapping[int, str] = field(default_factory=dict)
    """Rows that are no events, and why: `is not UTF-8`."""

    def text(self, row: int) -> bytes:
        """Event number *i* as the object it is: what can be mended and sent again."""
        event = {name: values[row] for name, values in self._named().items() if values[row] is not None}
        return msgspec.json.encode(event)

    def _named(self) -> dict[str, Sequence[Any]]:
        named = dict(self.fields)
        if self.times is not None:
            named[TIME] = self.times
        if self.ids is not None:
            named[ID] = self.ids
        return named

    def objects(self) -> list[Any]:
        """The same, one object for each event."""
        named = self._named()
        names = tuple(named)
        events: list[Any] = [
            {name: value for name, value in zip(names, row, strict=True) if value is not None}
            for row in zip(*named.values(), strict=True)
        ]
        for row, reason in self.unreadable.items():
            events[row] = Unreadable(reason)
        return events
