"""Functions over strings."""

from __future__ import annotations

import re
from typing import Any

from headrace.sql.functions.function import scalar

# What Java's String.trim removes.
_BLANK = "".join(map(chr, range(33)))
_LONGEST = 2**24
_ESCAPE = re.compile(r"\\(?:u+([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


def substring(text: Any, position: int, length: int | None = None) -> Any:
    """Counts from 1, from the end with negatives; 0 is as 1."""
    start = max(len(text) + position, 0) if position < 0 else max(position - 1, 0)
    return text[start:] if length is None else text[start : start + max(length, 0)]


def concat(*parts: Any) -> Any:
    known = [part for part in parts if part is not None]
    return (b"" if any(isinstance(part, bytes) for part in known) else "").join(known)


def concat_ws(separator: Any, *parts: Any) -> Any:
    return None if separator is None else separator.join(part for part in parts if part is not None)


def split(text: Any, delimiter: Any) -> list[Any]:
    return text.split(delimiter) if delimiter else [text[at : at + 1] for at in range(len(text))] or [text]


def instr(text: str | None, wanted: str | None, position: int | None = 1, occurrence: int | None = 1) -> int | None:
    """The place of the n-th occurrence from `position` on, backwards if that is negative; 0 if there is none, as there
    is none of a null."""
    if position is None or occurrence is None:
        return None
    if text is None or wanted is None or occurrence < 1 or position == 0 or abs(position) > len(text):
        return 0
    backwards = position < 0
    # Backwards: where it has to end.
    at = len(text) + position + 1 if backwards else position - 1
    for _ in range(occurrence):
        found = text.rfind(wanted, 0, max(at, 0)) if backwards else text.find(wanted, at)
        if found < 0:
            return 0
        at = found + len(wanted) - 1 if backwards else found + 1
    return found + 1


def initcap(text: str) -> str:
    """As in KSQL, white space before the first word is gone."""
    words = re.findall(r"[^ \t\n\x0b\f\r]+[ \t\n\x0b\f\r]*", text.lower())
    return "".join(word[:1].upper() + word[1:] for word in words)


def _padding(text: Any, length: int, padding: Any) -> Any:
    if length < 0 or not padding or length > _LONGEST:
        return None
    missing = max(length - len(text), 0)
    return (padding * (missing // len(padding) + 1))[:missing]


def lpad(text: Any, length: int, padding: Any) -> Any:
    filler = _padding(text, length, padding)
    return None if filler is None else (filler + text if filler else text[:length])


def rpad(text: Any, length: int, padding: Any) -> Any:
    filler = _padding(text, length, padding)
    return None if filler is None else text[:length] + filler


def character(code: Any) -> str | None:
    """The character of a code point, or text that begins with an escape such as `\\u597d`, with all escapes read."""
    if not isinstance(code, str):
        return chr(code)
    if len(code) < 6 or not code.startswith("\\u"):
        return None
    text = _ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else _unescaped(found[2]), code)
    # Two escapes may be the two halves of one character.
    return text.encode("utf-16", "surrogatepass").decode("utf-16")


def _unescaped(letter: str) -> str:
    if letter == "u":
        raise ValueError("`\\u` is followed by four digits")
    return _ESCAPED.get(letter, letter)


FUNCTIONS = (
    scalar("UCASE", "(VARCHAR) -> VARCHAR", str.upper, "The text in upper case.", "UCASE('Page')"),
    scalar("LCASE", "(VARCHAR) -> VARCHAR", str.lower, "The text in lower case.", "LCASE('Page')"),
    scalar(
        "LEN", ("(VARCHAR) -> INTEGER", "(BYTES) -> INTEGER"), len, "How many characters, or bytes.", "LEN('headrace')"
    ),
    scalar(
        "SUBSTRING",
        (
            "(VARCHAR, INTEGER) -> VARCHAR",
            "(VARCHAR, INTEGER, INTEGER) -> VARCHAR",
            "(BYTES, INTEGER) -> BYTES",
            "(BYTES, INTEGER, INTEGER) -> BYTES",
        ),
        substring,
        "The text from a position on, counted from 1 (from the end if negative), of at most the given length.",
        "SUBSTRING('headrace', 5, 4)",
    ),
    scalar(
        "TRIM",
        "(VARCHAR) -> VARCHAR",
        lambda text: text.strip(_BLANK),
        "Without white space at both ends.",
        "TRIM('  a ')",
    ),
    scalar(
        "CONCAT",
        ("(VARCHAR...) -> VARCHAR", "(BYTES...) -> BYTES"),
        concat,
        "The texts one after the other; nulls are left out. `a || b` and `a + b` are the same.",
        "CONCAT('head', 'race')",
        nulls=True,
    ),
    scalar(
        "CONCAT_WS",
        ("(VARCHAR, VARCHAR...) -> VARCHAR", "(BYTES, BYTES...) -> BYTES"),
        concat_ws,
        "The texts with a separator, which comes first, between them; nulls are left out.",
        "CONCAT_WS('-', 'a', 'b')",
        nulls=True,
    ),
    scalar(
        "REPLACE",
        ("(VARCHAR, VARCHAR, VARCHAR) -> VARCHAR", "(BYTES, BYTES, BYTES) -> BYTES"),
        lambda text, old, new: text.replace(old, new),
        "The text with every occurrence of the second replaced by the third.",
        "REPLACE('a.b', '.', '/')",
    ),
    scalar(
        "SPLIT",
        ("(VARCHAR, VARCHAR) -> ARRAY<VARCHAR>", "(BYTES, BYTES) -> ARRAY<BYTES>"),
        split,
        "The parts between delimiters; single characters if the delimiter is empty.",
        "SPLIT('a,b,c', ',')",
    ),
    scalar(
        "INSTR",
        (
            "(VARCHAR, VARCHAR) -> INTEGER",
            "(VARCHAR, VARCHAR, INTEGER) -> INTEGER",
            "(VARCHAR, VARCHAR, INTEGER, INTEGER) -> INTEGER",
        ),
        instr,
        "Where the second text is in the first, counted from 1; from a position on; its n-th occurrence. 0 if nowhere.",
        "INSTR('headrace', 'race')",
        nulls=True,
    ),
    scalar(
        "INITCAP", "(VARCHAR) -> VARCHAR", initcap, "Every word with a capital first letter.", "INITCAP('page views')"
    ),
    scalar(
        "LPAD",
        ("(VARCHAR, INTEGER, VARCHAR) -> VARCHAR", "(BYTES, INTEGER, BYTES) -> BYTES"),
        lpad,
        "Filled on the left, or cut, to a length.",
        "LPAD('7', 3, '0')",
    ),
    scalar(
        "RPAD",
        ("(VARCHAR, INTEGER, VARCHAR) -> VARCHAR", "(BYTES, INTEGER, BYTES) -> BYTES"),
        rpad,
        "Filled on the right, or cut, to a length.",
        "RPAD('7', 3, '.')",
    ),
    scalar(
        "CHR",
        ("(INTEGER) -> VARCHAR", "(VARCHAR) -> VARCHAR"),
        character,
        "The character with a code point.",
        "CHR(75)",
    ),
)
