"""What a person probably meant by a name that is not there: the same guess wherever names are written."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable


def nearest(name: str, candidates: Iterable[str], likeness: float = 0.6) -> str | None:
    """The candidate a person probably meant, if one is near: how like, from 0 to 1, it has to be.

    >>> nearest("PAGEVIEW", ["USERS", "PAGEVIEWS"])
    'PAGEVIEWS'
    """
    by_upper = {candidate.upper(): candidate for candidate in sorted(candidates)}
    # Difflib is quadratic; nobody mistypes a name this long.
    if len(name) > 200:
        return None
    found = difflib.get_close_matches(name.upper(), by_upper, n=1, cutoff=likeness)
    return by_upper[found[0]] if found else None


def did_you_mean(
    name: str, candidates: Iterable[str], otherwise: str | None = None, show: Callable[[str], str] = str
) -> str | None:
    """A hint naming the nearest candidate as `show` has it, followed by `otherwise`."""
    found = nearest(name, candidates)
    guess = f"did you mean `{show(found)}`?" if found else None
    if found and found != name and found.casefold() == name.casefold():
        # Both look the same as they are shown.
        guess = f"in backticks case counts; it is called `{found}`"
    return "  ".join(part for part in (guess, otherwise) if part) or None
