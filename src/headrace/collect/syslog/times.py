"""The times of syslog messages → milliseconds.

RFC 5424 has whole ones. RFC 3164 has neither year nor zone, so both are guessed: the zone is the collector's setting
(an agent's is the machine's, as Flume's), the year is the newest in which the message is not more than a day ahead of
the clock (a December message that arrives in January is last year's).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo

import pyarrow as pa
import pyarrow.compute as pc

_DAY_MS = 24 * 3600 * 1000
_MONTHS = {
    name: number + 1
    for number, name in enumerate("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split())  # noqa: SIM905
}


def read_times(texts: Sequence[str | None]) -> list[int | None] | None:
    """Of RFC 5424: None where there is none (`-`), and None altogether if one cannot be read."""
    given = pa.array([None if text == "-" else text for text in texts], pa.string())
    for unit in ("us", "ns"):
        try:
            moments = pc.cast(given, pa.timestamp(unit, "UTC")).view(pa.int64())
        except pa.ArrowInvalid:
            continue
        found: list[int | None] = pc.divide(moments, 1000 if unit == "us" else 1_000_000).to_pylist()
        return found
    return None


class BsdTimes:
    """Reads `Nov 16 12:49:19`. Consecutive messages mostly have the same second, so those are remembered."""

    def __init__(self, zone: tzinfo | None, now_ms: int) -> None:
        """Without a zone, that of this machine."""
        self._zone, self._now_ms = zone, now_ms
        self._year = datetime.fromtimestamp(now_ms / 1000, zone).year
        self._known: dict[str, int | None] = {}

    def read(self, text: str, year: int | None = None) -> int | None:
        """None if there is no such moment. Without a year, it is guessed."""
        if year is not None:
            return self._guess(text, (year,))
        if text not in self._known:
            self._known[text] = self._guess(text, (self._year + 1, self._year, self._year - 1))
        return self._known[text]

    def _guess(self, text: str, years: tuple[int, ...]) -> int | None:
        try:
            month, day = _MONTHS[text[:3]], int(text[4:6])
            hour, minute, second = int(text[7:9]), int(text[10:12]), int(text[13:15])
        except (KeyError, ValueError):
            return None
        for year in years:
            try:
                # A leap second is the one before: no clock of ours has it.
                moment = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=self._zone)
                milliseconds = int(moment.astimezone(UTC).timestamp()) * 1000
            except (ValueError, OverflowError):
                continue  # no such day, or in this zone before the year 1 or after 9999
            if len(years) == 1 or milliseconds <= self._now_ms + _DAY_MS:
                return milliseconds
        return None
