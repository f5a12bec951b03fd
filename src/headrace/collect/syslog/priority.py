"""The number in front of a syslog message → facility and severity, by name or by number."""

from __future__ import annotations

FACILITIES = (
    "kern",
    "user",
    "mail",
    "daemon",
    "auth",
    "syslog",
    "lpr",
    "news",
    "uucp",
    "cron",
    "authpriv",
    "ftp",
    "ntp",
    "audit",
    "alert",
    "clock",
    *(f"local{number}" for number in range(8)),
)
SEVERITIES = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")
HIGHEST = 8 * len(FACILITIES) - 1

_NAMES = {str(number): (FACILITIES[number >> 3], SEVERITIES[number & 7]) for number in range(HIGHEST + 1)}
_NUMBERS = {str(number): (number >> 3, number & 7) for number in range(HIGHEST + 1)}


def priorities(texts: tuple[str, ...] | list[str], numeric: bool) -> tuple[list[str | int], list[str | int]] | None:
    """Facilities and severities; None if one of the texts is no priority (`<000>` and `<192>` are none).

    >>> priorities(["34", "165"], numeric=False)
    (['auth', 'local4'], ['crit', 'notice'])
    """
    known: dict[str, tuple[str | int, str | int]] = dict(_NUMBERS if numeric else _NAMES)
    try:
        pairs = [known[text] for text in texts]
    except KeyError:
        return None
    return [facility for facility, _ in pairs], [severity for _, severity in pairs]
