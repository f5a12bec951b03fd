"""What a function takes and gives, written as `(VARCHAR, INTEGER) -> VARCHAR`.

Beside types a signature may say: a single letter for any type, the same wherever it stands (`N` for any number, `C`
for anything that has an order); `DECIMAL` for any precision and scale; `T...` for one or more; `UNIT` for a unit of
time such as `MINUTES`; `T => U` or `(T, U) => V` for a lambda. Only Headrace's own signatures are ever parsed here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from headrace.types import SIMPLE_TYPES, DataType


@dataclass(frozen=True, slots=True)
class Exact:
    type: DataType


@dataclass(frozen=True, slots=True)
class Variable:
    """`N`, `C`, `DECIMAL` or any other letter."""

    name: str


@dataclass(frozen=True, slots=True)
class ArrayOf:
    element: Pattern


@dataclass(frozen=True, slots=True)
class MapOf:
    key: Pattern
    value: Pattern


@dataclass(frozen=True, slots=True)
class LambdaOf:
    parameters: tuple[Pattern, ...]
    result: Pattern


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of time, written as a bare word."""


Pattern: TypeAlias = Exact | Variable | ArrayOf | MapOf | LambdaOf | Unit


@dataclass(frozen=True, slots=True)
class Signature:
    parameters: tuple[Pattern, ...]
    result: Pattern
    variadic: bool
    text: str

    @property
    def shown_parameters(self) -> str:
        """The parameters for people: `(ARRAY<any>, number)`."""
        text = self.text.rpartition(" -> ")[0]
        return re.sub(r"\b[A-Z]\b", lambda letter: "number" if letter[0] == "N" else "any", text)

    @property
    def parameter_texts(self) -> tuple[str, ...]:
        """Each parameter by itself, in order, for those who list them.

        >>> signature("(ARRAY<T>, (T, U) => V, VARCHAR...) -> MAP<T, V>").parameter_texts
        ('ARRAY<T>', '(T, U) => V', 'VARCHAR')
        """
        inner = self.text.rpartition(" -> ")[0][1:-1].replace("...", "")
        # A comma within brackets does not separate parameters.
        return tuple(re.findall(r"\((?:[^()]*)\) => \w+|[A-Z]+<.*?>+(?= *,|$)|[^,\s][^,]*", inner))

    @property
    def result_text(self) -> str:
        return self.text.rpartition(" -> ")[2]

    def expand(self, count: int) -> tuple[Pattern, ...] | None:
        """The parameters for `count` arguments; None if it does not take that many."""
        if not self.variadic:
            return self.parameters if count == len(self.parameters) else None
        missing = count - len(self.parameters)
        return self.parameters + (self.parameters[-1],) * missing if missing >= 0 else None


_WORD = re.compile(r"\s*(=>|->|\.\.\.|[A-Z]+|[<>(),])")


@cache
def signature(text: str) -> Signature:
    """
    >>> signature("(ARRAY<T>, T) -> BOOLEAN").result
    Exact(type=Boolean())
    """
    words = _WORD.findall(text)
    reader = _Reader(words)
    parameters, variadic = reader.parameters()
    reader.take("->")
    return Signature(parameters, reader.pattern(), variadic, text)


class _Reader:
    def __init__(self, words: list[str]) -> None:
        self.words = words

    def take(self, word: str) -> bool:
        if self.words and self.words[0] == word:
            self.words.pop(0)
            return True
        return False

    def parameters(self) -> tuple[tuple[Pattern, ...], bool]:
        self.take("(")
        found: list[Pattern] = []
        variadic = False
        while not self.take(")"):
            found.append(self.pattern())
            variadic = self.take("...") or variadic
            self.take(",")
        return tuple(found), variadic

    def pattern(self) -> Pattern:
        if self.words[0] == "(":
            parameters, _ = self.parameters()
            self.take("=>")
            return LambdaOf(parameters, self.pattern())
        word = self.words.pop(0)
        base = self._named(word)
        return LambdaOf((base,), self.pattern()) if self.take("=>") else base

    def _named(self, word: str) -> Pattern:
        if word == "ARRAY":
            (element,) = self._bracketed()
            return ArrayOf(element)
        if word == "MAP":
            key, value = self._bracketed()
            return MapOf(key, value)
        if word == "UNIT":
            return Unit()
        return Exact(SIMPLE_TYPES[word]) if word in SIMPLE_TYPES else Variable(word)

    def _bracketed(self) -> list[Pattern]:
        self.take("<")
        found = [self.pattern()]
        while self.take(","):
            found.append(self.pattern())
        self.take(">")
        return found
