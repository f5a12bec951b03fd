"""Functions over text by pattern: regular expressions, and masks."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from headrace.patterns import Match, Regex, compile_pattern
from headrace.sql.functions.function import scalar

LONGEST = 2**24
"""Most characters of a text that a function makes."""
MOST_STEPS = 500_000_000
"""Most of a pattern's size times a text's length, which takes RE2 some seconds at worst."""
PATTERN_ARGUMENT = {
    "REGEXP_EXTRACT": 0,
    "REGEXP_EXTRACT_ALL": 0,
    "REGEXP_REPLACE": 1,
    "REGEXP_SPLIT_TO_ARRAY": 1,
}
"""Which argument is a regular expression."""
_REFERENCE = re.compile(r"\\(.)|\$(\d)")


def _compiled(pattern: str, text: str) -> Regex:
    """Compile a pattern for a text. `ValueError` if a match could take long: nothing can interrupt it."""
    compiled = compile_pattern(pattern)
    if len(text) * compiled.size > MOST_STEPS:
        raise ValueError("the text is too long for this pattern")
    return compiled


def regexp_extract(pattern: str, text: str, group: int = 0) -> str | None:
    found = _compiled(pattern, text).search(text)
    return found[group] if found else None


def regexp_extract_all(pattern: str, text: str, group: int = 0) -> list[str | None]:
    return [found[group] for found in _compiled(pattern, text).finditer(text)]


def regexp_replace(text: str, pattern: str, replacement: str) -> str:
    """`$1` in the replacement is the first group, `\\$` a dollar sign."""

    def expand(found: Match) -> str:
        return _REFERENCE.sub(lambda part: part[1] if part[1] is not None else found[int(part[2])] or "", replacement)

    return _compiled(pattern, text).replace(text, expand, LONGEST)


def regexp_split(text: str, pattern: str) -> list[str]:
    """Return the parts between the matches. A pattern that matches the empty text splits between characters, and then
    empty parts at the end are left out."""
    compiled = _compiled(pattern, text)
    between = compiled.fullmatch("") is not None
    parts = compiled.split(text, lambda start, end: between and end == 0)
    while between and len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts


def split_to_map(text: str, between: str, inside: str) -> dict[str, str] | None:
    """Parts without the inner delimiter do not count, nor what follows a second one. Without two different delimiters
    there are no entries to tell apart."""
    if not between or not inside or between == inside:
        return None
    entries = (part.split(inside) for part in text.split(between) if inside in part)
    return {key: value for key, value, *_ in entries}


# What stands for upper case, lower case, digits and everything else.
_MASKS = ("X", "x", "n", "-")


def _masked(text: str, masks: tuple[str | None, ...]) -> str:
    if any(mask is not None and len(mask) != 1 for mask in masks):
        raise ValueError("a mask is a single character")
    upper, lower, digit, other = masks if len(masks) == len(_MASKS) else _MASKS
    known = {"Lu": upper, "Ll": lower, "Nd": digit}
    return "".join(known.get(unicodedata.category(character), other) or character for character in text)


def _mask(text: str | None, *masks: str | None) -> str | None:
    return None if text is None else _masked(text, masks)


def _partly(hides: Callable[[str, int], tuple[str, str, str]]) -> Callable[..., str | None]:
    """Masks the middle one of the three parts that `hides` cuts the text into."""

    def apply(text: str | None, count: int | None, *masks: str | None) -> str | None:
        if text is None or count is None:
            return None
        if count < 0:
            raise ValueError("a number of characters cannot be negative")
        before, hidden, after = hides(text, min(count, len(text)))
        return before + _masked(hidden, masks) + after

    return apply


_mask_left = _partly(lambda text, count: ("", text[:count], text[count:]))
_mask_right = _partly(lambda text, count: (text[: len(text) - count], text[len(text) - count :], ""))
_mask_keep_left = _partly(lambda text, count: (text[:count], text[count:], ""))
_mask_keep_right = _partly(lambda text, count: ("", text[: len(text) - count], text[len(text) - count :]))

_OF_TEXT = ("(VARCHAR) -> VARCHAR", "(VARCHAR, VARCHAR, VARCHAR, VARCHAR, VARCHAR) -> VARCHAR")
_OF_PART = ("(VARCHAR, INTEGER) -> VARCHAR", "(VARCHAR, INTEGER, VARCHAR, VARCHAR, VARCHAR, VARCHAR) -> VARCHAR")
_LETTERS = (
    "upper case as `X`, lower case as `x`, digits as `n`, the rest as `-`, or as four other characters; null keeps."
)

FUNCTIONS = (
    scalar(
        "REGEXP_EXTRACT",
        ("(VARCHAR, VARCHAR) -> VARCHAR", "(VARCHAR, VARCHAR, INTEGER) -> VARCHAR"),
        regexp_extract,
        "What a pattern, which comes first, matches in a text, or one of its groups; null if it does not.",
        "REGEXP_EXTRACT('(.*) (.*)', 'ada lovelace', 2)",
    ),
    scalar(
        "REGEXP_EXTRACT_ALL",
        ("(VARCHAR, VARCHAR) -> ARRAY<VARCHAR>", "(VARCHAR, VARCHAR, INTEGER) -> ARRAY<VARCHAR>"),
        regexp_extract_all,
        "All that a pattern, which comes first, matches in a text, or one group of each.",
        "REGEXP_EXTRACT_ALL('[0-9]+', 'a1b22')",
    ),
    scalar(
        "REGEXP_REPLACE",
        "(VARCHAR, VARCHAR, VARCHAR) -> VARCHAR",
        regexp_replace,
        "The text with everything the pattern matches replaced; `$1` is the first group.",
        "REGEXP_REPLACE('a1b22', '[0-9]+', '#')",
    ),
    scalar(
        "REGEXP_SPLIT_TO_ARRAY",
        "(VARCHAR, VARCHAR) -> ARRAY<VARCHAR>",
        regexp_split,
        "What lies between the matches of a pattern.",
        "REGEXP_SPLIT_TO_ARRAY('a1b22c', '[0-9]+')",
    ),
    scalar(
        "SPLIT_TO_MAP",
        "(VARCHAR, VARCHAR, VARCHAR) -> MAP<VARCHAR, VARCHAR>",
        split_to_map,
        "Keys and values from a text: the delimiter between entries, then the one between key and value.",
        "SPLIT_TO_MAP('a=1;b=2', ';', '=')",
    ),
    scalar("MASK", _OF_TEXT, _mask, f"The text hidden: {_LETTERS}", "MASK('My Pass 12')", nulls=True),
    scalar(
        "MASK_LEFT",
        _OF_PART,
        _mask_left,
        "The same for so many characters on the left.",
        "MASK_LEFT('My Pass', 4)",
        nulls=True,
    ),
    scalar("MASK_RIGHT", _OF_PART, _mask_right, "The same on the right.", "MASK_RIGHT('My Pass', 4)", nulls=True),
    scalar(
        "MASK_KEEP_LEFT",
        _OF_PART,
        _mask_keep_left,
        "The same for all but so many on the left.",
        "MASK_KEEP_LEFT('My Pass', 4)",
        nulls=True,
    ),
    scalar(
        "MASK_KEEP_RIGHT",
        _OF_PART,
        _mask_keep_right,
        "The same for all but so many on the right.",
        "MASK_KEEP_RIGHT('My Pass', 4)",
        nulls=True,
    ),
)
