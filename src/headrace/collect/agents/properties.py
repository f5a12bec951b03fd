"""Java's `.properties` files, with the line each property stands in."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import ConfigError

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
# The key ends at the first separator that is not escaped: white space, `=` or `:`.
_KEY = re.compile(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", re.DOTALL)
_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, slots=True)
class Property:
    name: str
    value: str
    line: int


def read_properties(file: Path) -> list[Property]:
    """All of them, in order; a name may come twice. `ConfigError` if the file cannot be read."""
    try:
        return parse_properties(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"there is no file `{file}`") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"`{file}` is not UTF-8: {error.reason} at byte {error.start}") from None
    except OSError as error:
        raise ConfigError(f"`{file}` cannot be read: {(error.strerror or str(error)).lower()}") from None


def parse_properties(text: str) -> list[Property]:
    r"""
    >>> parse_properties("# a comment\na.b = c \\\n   d\nmore: x\\u0041")
    [Property(name='a.b', value='c d', line=2), Property(name='more', value='xA', line=4)]
    """
    found = []
    for number, line in _logical_lines(text.removeprefix("\ufeff")):
        match = _KEY.fullmatch(line)
        assert match is not None
        found.append(Property(_unescaped(match[1]), _unescaped(match[2]).rstrip(), number))
    return found


def with_environment(properties: list[Property], environment: Mapping[str, str] = os.environ) -> list[Property]:
    """`${NAME}` and `${env:NAME}` are what the environment says; what it does not know stays as it is written."""
    return [
        Property(one.name, _VARIABLE.sub(lambda name: environment.get(name[1], name[0]), one.value), one.line)
        for one in properties
    ]


def unknown_variables(value: str) -> list[str]:
    """What `with_environment` has left as it is written.

    >>> unknown_variables("${HOST_A}:${env:PORT_A}")
    ['HOST_A', 'PORT_A']
    """
    return _VARIABLE.findall(value)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines as they are meant: continued ones joined, comments and empty ones left out."""
    joined, first = "", 0
    for number, raw in enumerate(re.split(r"\r\n|\n|\r", text), 1):
        line = raw.lstrip(" \t\f")
        if not first and (not line or line[0] in "#!"):
            continue
        first = first or number
        if (len(line) - len(line.rstrip("\\"))) % 2:
            joined += line[:-1]
            continue
        yield first, joined + line
        joined, first = "", 0
    if first:
        yield first, joined


def _unescaped(text: str) -> str:
    def plain(found: re.Match[str]) -> str:
        what = found[1]
        if len(what) == 5:
            return chr(int(what[1:], 16))
        return _ESCAPES.get(what, what)

    if "\\" not in text:
        return text
    # Java writes what is beyond 16 bits as the two halves of a pair.
    return _ESCAPED.sub(plain, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
