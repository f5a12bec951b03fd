"""LIKE: `%` is any text, `_` any one character. No pattern makes it slower than text length times pattern length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

# One character, or None for any.
_Part = Sequence[str | None]


@lru_cache(maxsize=512)
def like_matcher(pattern: str, escape: str | None) -> Callable[[str], bool]:
    """
    >>> like_matcher("/pr%ing", None)("/pricing")
    True
    """
    parts = _parse(pattern, escape)
    first, *rest = parts
    if not rest:
        return lambda text: len(text) == len(first) and _at(text, 0, first)
    *middle, last = rest

    def matches(text: str) -> bool:
        end = len(text) - len(last)
        if end < len(first) or not _at(text, 0, first) or not _at(text, end, last):
            return False
        position = len(first)
        for part in middle:
            position = _find(text, part, position, end)
            if position < 0:
                return False
            position += len(part)
        return True

    return matches


def _parse(pattern: str, escape: str | None) -> list[_Part]:
    """What stands between the `%`s."""
    parts: list[list[str | None]] = [[]]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            parts[-1].append(next(characters, character))
        elif character == "%":
            parts.append([])
        else:
            parts[-1].append(None if character == "_" else character)
    return list(parts)


def _at(text: str, position: int, part: _Part) -> bool:
    return all(wanted is None or text[position + index] == wanted for index, wanted in enumerate(part))


def _find(text: str, part: _Part, start: int, end: int) -> int:
    """The first place from `start` where the part fits before `end`; -1 if nowhere."""
    if None not in part:
        return text.find("".join(character or "" for character in part), start, end)
    return next((at for at in range(start, end - len(part) + 1) if _at(text, at, part)), -1)
