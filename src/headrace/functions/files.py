"""Files of Python functions as data: the text, what it needs of its neighbours, and what is in it."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

import msgspec

from headrace.functions.attach import Attached

Kind = Literal["scalar", "aggregate", "table"]
Style = Literal["rows", "arrow", "pandas"]

FOLDER = "functions"


class SignatureText(msgspec.Struct, frozen=True):
    """Types as SQL writes them; a single letter is any type, the same wherever it stands."""

    parameters: tuple[str, ...]
    result: str
    variadic: bool = False

    def __str__(self) -> str:
        dots = "..." if self.variadic else ""
        return f"({', '.join(self.parameters)}{dots}) -> {self.result}"


class Described(msgspec.Struct, frozen=True):
    """One function of a file."""

    name: str
    """In SQL, in upper case."""
    attribute: str
    """In Python."""
    kind: Kind
    signatures: tuple[SignatureText, ...]
    optional: tuple[bool, ...] = ()
    """Which parameters may be null (the last counts for all that follow). Where another one is, so is the result."""
    summary: str = ""
    label: str = ""
    style: Style = "rows"
    undo: bool = False
    line: int = 0

    def takes_null(self, place: int) -> bool:
        return bool(self.optional) and self.optional[min(place, len(self.optional) - 1)]


class Problem(msgspec.Struct, frozen=True):
    """Why a file, or one function of it, cannot be used."""

    message: str
    line: int = 0
    hint: str = ""


class FunctionFile(msgspec.Struct, frozen=True):
    """A file as it was when it was deployed: everything that is needed to run it anywhere."""

    file: str
    """`functions/tax.py`, or `CREATE FUNCTION TAX`."""
    text: str
    helpers: tuple[tuple[str, str], ...] = ()
    """Names and texts of the neighbours it imports, and those they import."""
    functions: tuple[Described, ...] = ()
    attached: tuple[Attached, ...] = ()
    """Functions that are called with records."""

    @property
    def version(self) -> str:
        return _version(self.text, self.helpers)


@lru_cache(maxsize=1024)
def _version(text: str, helpers: tuple[tuple[str, str], ...]) -> str:
    """Of what the text means: comments and layout do not count."""
    digest = hashlib.sha256(_meaning(text))
    for name, helper in helpers:
        digest.update(name.encode() + b"\0" + _meaning(helper))
    return digest.hexdigest()[:12]


def _meaning(text: str) -> bytes:
    try:
        return ast.dump(ast.parse(text)).encode()
    except (SyntaxError, ValueError, RecursionError):
        return text.encode(errors="surrogatepass")


def helpers_of(text: str, neighbours: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The neighbours (`name` → text) that a text imports as `from . import name` or `from .name import …`."""
    found: dict[str, str] = {}
    pending = [text]
    while pending:
        for name in _imported(pending.pop()):
            if name in neighbours and name not in found:
                found[name] = neighbours[name]
                pending.append(neighbours[name])
    return tuple(sorted(found.items()))


def _imported(text: str) -> list[str]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return []
    relative = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level == 1]
    return [name for node in relative for name in ([node.module] if node.module else [a.name for a in node.names])]
