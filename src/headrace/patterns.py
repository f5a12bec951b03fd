"""Regular expressions that users write, run by RE2.

Python's and Java's engines try alternatives one after another, so some patterns take time exponential in the length of
the text. RE2 never takes more than pattern size times text length, and it releases the interpreter meanwhile. It has
no lookaround and no back-references; a pattern with them is refused by name. Every pattern that comes from a request,
a statement or a project's file goes through `compile_pattern`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import re2

from headrace.errors import UsageError

MAX_MEMORY = 1024 * 1024
"""Bytes that RE2 may use for one pattern."""

# RE2 reads UTF-8, which cannot say a lone surrogate: these characters of private use stand for them.
_HIDE = {0xD800 + number: 0x10F800 + number for number in range(0x800)}
_SHOW = {hidden: surrogate for surrogate, hidden in _HIDE.items()}

_REFUSED = (
    (("(?=", "(?!", "(?<=", "(?<!"), "lookaround", "match more, and take the part you need as a group"),
    (("\\1", "\\2", "\\3", "\\4", "\\5", "\\6", "\\7", "\\8", "\\9", "\\k", "(?P"), "back-references", None),
    (("(?>",), "atomic groups", "write `(?:…)`: RE2 does not backtrack"),
    (("++", "*+", "?+", "}+"), "possessive quantifiers", "leave out the `+`: RE2 does not backtrack"),
    (("\\Z",), "`\\Z`", "write `\\z` for the end of the text"),
    (("(?x",), "the flag `x`", "write the pattern without blanks and comments"),
)


_SPECIAL = frozenset("\\.+()[]{}|^$-")
_FLAGS = re.compile(r"\(\?([A-Za-z-]+)[:)]")


class _Subject:
    """A text as RE2 reads it."""

    __slots__ = ("data", "hidden")

    def __init__(self, text: str) -> None:
        self.hidden = False
        try:
            self.data = text.encode()
        except UnicodeEncodeError:
            self.hidden = True
            self.data = text.translate(_HIDE).encode()

    def text(self, start: int, end: int) -> str:
        text = self.data[start:end].decode()
        return text.translate(_SHOW) if self.hidden else text

    def inside(self, at: int) -> bool:
        """Return whether the byte at this place continues a character."""
        return at < len(self.data) and self.data[at] & 0xC0 == 0x80


class Match:
    """The groups of a match. Group 0 is all of it."""

    __slots__ = ("_found", "_regex", "_subject")

    def __init__(self, regex: Regex, subject: _Subject, found: Any) -> None:
        self._regex, self._subject, self._found = regex, subject, found

    def __getitem__(self, group: int | str) -> str | None:
        """Return the text of a group, or None if it took no part. `LookupError` if there is no such group."""
        number = self._regex.names[group] if isinstance(group, str) else group
        if not 0 <= number <= self._regex.groups:
            raise IndexError(f"the pattern has no group {number}")
        start, end = self._found.span(number)
        return None if start < 0 else self._subject.text(start, end)

    def groups(self) -> tuple[str | None, ...]:
        return tuple(self[group] for group in range(1, self._regex.groups + 1))

    def named(self) -> dict[str, str]:
        """Return the named groups that took part."""
        return {name: value for name, number in self._regex.names.items() if (value := self[number]) is not None}


class Regex:
    """A compiled pattern. A match takes at most `size` times the length of the text."""

    __slots__ = ("_compiled", "groups", "names", "pattern", "size")

    def __init__(self, pattern: str, compiled: Any) -> None:
        self.pattern = pattern
        self.groups: int = compiled.groups
        self.names: dict[str, int] = compiled.groupindex
        self.size: int = compiled.programsize
        self._compiled = compiled

    def search(self, text: str) -> Match | None:
        return self._one(self._compiled.search, text)

    def match(self, text: str) -> Match | None:
        """Match at the beginning of the text."""
        return self._one(self._compiled.match, text)

    def fullmatch(self, text: str) -> Match | None:
        return self._one(self._compiled.fullmatch, text)

    def finditer(self, text: str) -> Iterator[Match]:
        subject = _Subject(text)
        return (Match(self, subject, found) for found in self._all(subject))

    def split(self, text: str, skip: Callable[[int, int], bool] = lambda start, end: False) -> list[str]:
        """Return the parts between matches, but for matches to skip (by their first and last place, in bytes)."""
        subject, parts, start = _Subject(text), list[str](), 0
        for found in self._all(subject):
            first, last = found.span()
            if not skip(first, last):
                parts.append(subject.text(start, first))
                start = last
        return [*parts, subject.text(start, len(subject.data))]

    def replace(self, text: str, expand: Callable[[Match], str], longest: int | None = None) -> str:
        """Replace each match. `ValueError` as soon as the result is longer than `longest`."""
        subject, parts, start, length = _Subject(text), list[str](), 0, 0
        for found in self._all(subject):
            first, last = found.span()
            parts += [subject.text(start, first), expand(Match(self, subject, found))]
            start = last
            length += len(parts[-2]) + len(parts[-1])
            if longest is not None and length > longest:
                raise ValueError(f"the result is longer than {longest} characters")
        return "".join([*parts, subject.text(start, len(subject.data))])

    def _one(self, find: Callable[[bytes], Any], text: str) -> Match | None:
        subject = _Subject(text)
        found = find(subject.data)
        return None if found is None else Match(self, subject, found)

    def _all(self, subject: _Subject) -> Iterator[Any]:
        at, size = 0, len(subject.data)
        while at <= size and (found := self._compiled.search(subject.data, at)) is not None:
            first, last = found.span()
            # RE2 finds an empty match also between the bytes of a character.
            if not subject.inside(first):
                yield found
            at = last if last > first else last + 1
            while subject.inside(at):
                at += 1


@lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> Regex:
    """Compile a user's pattern. `UsageError` names what RE2 does not have.

    >>> compile_pattern("(a+)+$").search("a" * 50 + "!") is None
    True
    """
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_MEMORY
    try:
        return Regex(pattern, re2.compile(_translate(pattern), options))
    except re2.error as error:
        said = error.args[0] if error.args else error
        raise _refusal(pattern, said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)) from None
    except UnicodeEncodeError:
        raise _refusal(pattern, "a lone surrogate") from None


def translate_wildcard(wildcard: str) -> str:
    """Return the pattern of whole names that a wildcard stands for: `*` is any characters, `?` is one.

    >>> translate_wildcard("*-eu")
    '.*\\\\-eu'
    """
    plain = ("\\" + letter if letter in _SPECIAL else letter for letter in wildcard)
    return "".join({"*": ".*", "?": "."}.get(letter, letter) for letter in plain)


def _refusal(pattern: str, said: str) -> UsageError:
    shown = pattern if len(pattern) <= 100 else f"{pattern[:100]}…"
    operator = said.partition(": ")[2]
    for signs, name, hint in _REFUSED:
        if operator.startswith(signs) or (operator.endswith("+") and operator.endswith(signs)):
            return UsageError(f"the pattern `{shown}` uses {name}, which RE2 does not have", detail=said, hint=hint)
    hint = "the syntax is RE2's: https://github.com/google/re2/wiki/Syntax"
    if "too large" in said or "repetition size" in said:
        return UsageError(f"the pattern `{shown}` is too large: {said}", hint="repeat a part at most 1,000 times")
    return UsageError(f"`{shown}` is not a regular expression: {said}", hint=hint)


def _translate(pattern: str) -> str:
    r"""Rewrite Java's `\uXXXX`, and refuse what Java and RE2 both accept but read differently.

    >>> _translate(r"\u00e9[a\]b]\Q[\E")
    '\\x{00e9}[a\\]b]\\Q[\\E'
    """
    out, at, in_class = [], 0, False
    while at < len(pattern):
        here = pattern[at : at + 2]
        if here == r"\Q" and not in_class:
            end = pattern.find(r"\E", at)
            taken = pattern[at:] if end < 0 else pattern[at : end + 2]
        elif here == r"\u" and (code := pattern[at + 2 : at + 6]).isalnum() and len(code) == 4:
            out.append(f"\\x{{{code}}}")
            at += 6
            continue
        elif here == r"\C":
            raise _differing(pattern, r"`\C`", "write `.` for a character")
        elif here[0] == "\\":
            taken = here
        elif not in_class:
            in_class = here[0] == "["
            # A bracket that is closed at once is a member of the class.
            taken = next(one for one in ("[^]", "[]", here[0]) if pattern.startswith(one, at))
            flags = _FLAGS.match(pattern, at)
            if flags is not None and "U" in flags[1]:
                raise _differing(pattern, "the flag `U`", r"name the characters: `\p{L}`, `\p{Nd}`")
        elif here == "&&":
            raise _differing(pattern, "an intersection of classes (`&&`)", "write out the characters")
        elif here[0] == "[":
            raise _differing(pattern, "`[` in a class", r"write `\[` for the bracket, or one class for all")
        else:
            in_class = here[0] != "]"
            taken = here[0]
        out.append(taken)
        at += len(taken)
    return "".join(out)


def _differing(pattern: str, what: str, hint: str) -> UsageError:
    return UsageError(f"the pattern `{pattern[:100]}` uses {what}, which RE2 reads differently from Java", hint=hint)
