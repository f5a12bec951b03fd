"""What Cisco's devices make of RFC 3164.

    <189>57: edge1: .Nov 16 10:00:00.123 UTC: %SYS-5-CONFIG_I: …     IOS: a count, perhaps a name
    <166>Nov 16 2026 10:00:00 fw1 : %ASA-6-302013: …                 ASA: a time with its year

Read as RFC 3164 they would be programs without a host, at the time of their arrival.
"""

from __future__ import annotations

import re
from datetime import UTC

from headrace.collect.syslog.times import BsdTimes

_MARK = re.compile(r": %[A-Z]")
_MESSAGE = re.compile(
    r"<(0|[1-9][0-9]{0,2})>(?:[0-9]{1,10}: )?(?:([^ \n:]+): )?"
    r"([*.]?)([A-Z][a-z]{2}) ([ 0-9]?[0-9])(?: ([0-9]{4}))? ([0-9]{2}:[0-9]{2}:[0-9]{2})(?:[.]([0-9]{1,9}))?"
    # A word of capitals is the zone, unless a space is between it and the colon: then it is a host's name.
    r"(?: ([A-Z]{1,5})(?=:| [^ :]))?(?: ([^ \n:]+))? ?: "
    r"(%[A-Z][A-Z0-9_]*(?:-[A-Z0-9_]+)?-[0-7]-[A-Z0-9_]+): ?(.*)",
    re.DOTALL,
)


def may_be(text: str) -> bool:
    """Quick, and never wrong about one that is; for one message or many."""
    return ": %" in text and _MARK.search(text) is not None


def read(text: str, bsd: BsdTimes, now_ms: int) -> tuple[str, int | None, str | None, str, str | None] | None:
    """Priority, time, host, app and message; None for a message of anybody else's.

    >>> read("<166>Nov 16 2026 10:00:00 fw1 : %ASA-6-302013: Built", BsdTimes(UTC, 0), 0)
    ('166', 1794823200000, 'fw1', '%ASA-6-302013', 'Built')
    """
    found = _MESSAGE.fullmatch(text)
    if found is None:
        return None
    priority, before, clock, month, day, year, time, fraction, zone, behind, app, body = found.groups()
    times = BsdTimes(UTC, now_ms) if zone in ("UTC", "GMT") else bsd
    # With `*` the device says that nobody has set its clock.
    moment = None if clock == "*" else times.read(f"{month} {day:>2} {time}", int(year) if year else None)
    if moment is not None and fraction:
        moment += int(fraction[:3].ljust(3, "0"))
    return priority, moment, before or behind, app, body.rstrip("\0") or None
