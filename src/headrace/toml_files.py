"""Files of a project, one TOML file for each thing: what is wrong with one is said with its file and line."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from headrace.errors import ConfigError
from headrace.nearest import did_you_mean
from headrace.structs import ready

FROM_ENVIRONMENT = "env:"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
# Types by the names that TOML's users know them by.
_WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

D = TypeVar("D")
T = TypeVar("T", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a file."""

    name: str
    file: str
    line: int
    message: str
    hint: str | None = None

    def __str__(self) -> str:
        text = f"{self.file}:{self.line}: {self.message}"
        return f"{text}\n  {self.hint}" if self.hint else text


def load_files(files: Iterable[Path], read: Callable[[Path, str], D | Problem]) -> tuple[list[D], list[Problem]]:
    """What can be read, and what is wrong with the rest: a broken file keeps no other from being read."""
    found: list[D] = []
    problems: list[Problem] = []
    for file in files:
        try:
            text = file.read_text(encoding="utf-8")
        except FileNotFoundError:
            continue  # taken away while we looked
        except (OSError, UnicodeDecodeError) as error:
            problems.append(Problem(file.stem, _shown(file), 1, f"cannot be read: {error}"))
            continue
        one = read(file, text)
        if isinstance(one, Problem):
            problems.append(one)
        else:
            found.append(one)
    return found, problems


def read_file(file: Path, text: str, define: Callable[[Path, str], D]) -> D | Problem:
    """What a file defines, or why it does not: `define` raises `ConfigError`, with the setting's `path`."""
    try:
        return define(file, text)
    except tomllib.TOMLDecodeError as error:
        message, line = _toml_error(error, text)
        return Problem(file.stem, _shown(file), line, f"not valid TOML: {message}")
    except ConfigError as error:
        line = line_of(text, error.data.get("path", ()))
        return Problem(file.stem, _shown(file), line, error.message, error.hint)


def _shown(file: Path) -> str:
    return f"{file.parent.name}/{file.name}"


def check_name(file: Path, what: str) -> None:
    """A thing is called as its file: that has to be a name."""
    if not _NAME.fullmatch(file.stem):
        raise ConfigError(f"`{file.stem}` is not a name for {what}", hint="letters, digits, `_`, `-` and `.`")


def secret(value: str) -> str:
    """What is written, or what the environment holds for `env:NAME`. `ConfigError` if that is not set."""
    if not value.startswith(FROM_ENVIRONMENT):
        return value
    name = value.removeprefix(FROM_ENVIRONMENT)
    found = os.environ.get(name, "")
    if not found:
        raise ConfigError(f"the environment has no `{name}`", hint=f"export {name}=… before `headrace up`")
    return found


Stamp = tuple[tuple[str, int, int, int], ...]


def stamp_files(files: Iterable[Path]) -> Stamp:
    """Changes when one of them does."""
    found = []
    for file in files:
        try:
            known = file.stat()
        except OSError:
            continue
        found.append((file.name, known.st_mtime_ns, known.st_size, known.st_ino))
    return tuple(found)


def convert_settings(raw: dict[str, Any], type_: type[T], hint: str) -> T:
    """`ConfigError` says what is wrong, with the setting's `path`."""
    try:
        return msgspec.convert(raw, ready(type_))
    except msgspec.ValidationError as error:
        message, path = _validation_error(error, raw, type_)
        known = _known_settings(type_, path[:-1])
        mistyped = str(path[-1]) if path and known and path[-1] not in known else None
        said = did_you_mean(mistyped, known, hint) if mistyped else hint
        raise ConfigError(message, hint=said, path=tuple(path)) from None


def read_settings(shown: str, text: str, read: Callable[[dict[str, Any]], D]) -> D:
    """Read one file of settings. `ConfigError` names the file, as `shown`, and the line; `read` raises it with the path
    of the setting."""
    try:
        return read(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        message, line = _toml_error(error, text)
        raise ConfigError(f"{shown}:{line}: not valid TOML: {message}", line=line) from None
    except ConfigError as error:
        line = line_of(text, error.data.get("path", ()))
        raise ConfigError(f"{shown}:{line}: {error.message}", hint=error.hint, line=line) from None


def _known_settings(type_: type, path: Sequence[str | int]) -> list[str]:
    """Return the names of the settings that the table at `path` may have; none if it may have any."""
    found: Any = msgspec.inspect.type_info(type_)
    for part in path:
        if isinstance(found, msgspec.inspect.UnionType):
            found = next((one for one in found.types if not isinstance(one, msgspec.inspect.NoneType)), None)
        if isinstance(found, msgspec.inspect.StructType):
            found = next((field.type for field in found.fields if field.encode_name == part), None)
        elif isinstance(found, msgspec.inspect.ListType):
            found = found.item_type
        elif isinstance(found, msgspec.inspect.DictType):
            found = found.value_type
    return [field.encode_name for field in found.fields] if isinstance(found, msgspec.inspect.StructType) else []


def choose(raw: Mapping[str, Any], setting: str, known: Mapping[str, D], thing: str, known_are: str, wrong: str) -> D:
    """The one that a setting names: `thing` cannot do without, and what is not `known` is `wrong`."""
    name = raw.get(setting)
    if name is None:
        raise ConfigError(f"{thing} needs a `{setting}`", hint=known_are)
    found = known.get(name) if isinstance(name, str) else None
    if found is None:
        raise ConfigError(f"`{name}` {wrong}", hint=did_you_mean(str(name), known, known_are), path=(setting,))
    return found


def seconds_of(text: str, where: str = "every") -> int:
    """
    >>> seconds_of("15m")
    900
    """
    found = re.fullmatch(r"([1-9]\d{0,8})([smhd])", text)
    if found is None:
        raise ConfigError(f"{where}: `{text}` is not a length of time", hint="such as 30s, 15m, 1h or 1d")
    return int(found[1]) * _UNITS[found[2]]


def line_of(text: str, path: Sequence[str | int]) -> int:
    """Return the line of a setting: `("privacy", "drop")` is `drop = …` under `[privacy]`, `("to", 1, "topic")` is
    `topic = …` under the second `[[to]]`. The table's line if it is not found, 1 if neither is.

    >>> line_of('type = "http"\\n[privacy]\\ndrop = 3', ("privacy", "drop"))
    3
    >>> line_of('[[to]]\\ntopic = 1\\n[[to]]\\ntopic = 2', ("to", 1, "topic"))
    4
    """
    numbered = any(isinstance(part, int) for part in path)
    table: tuple[str | int, ...] = ()
    counts: dict[tuple[str | int, ...], int] = {}
    best = (0, 1)
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith("["):
            names = [part.strip(' "') for part in stripped.split("]")[0].strip("[ ").split(".")]
            table = _table(names, stripped.startswith("[["), counts)
            place = table
        else:
            key = stripped.partition("=")[0].strip()
            place = (*table, *(part.strip(' "') for part in key.split("."))) if key and "=" in stripped else ()
        if not numbered:
            place = tuple(part for part in place if not isinstance(part, int))
        if len(place) > len(path) and isinstance(place[-1], int):
            place = place[:-1]  # the list itself is meant, and not one of its tables
        depth = _common(place, path)
        if depth == len(place) and depth > best[0]:
            best = (depth, number)
    return best[1]


def _table(names: Sequence[str], one_more: bool, counts: dict[tuple[str | int, ...], int]) -> tuple[str | int, ...]:
    """Return the path of the table that a header begins, with a number after each list of tables. `counts` holds how
    many tables each list has so far."""
    path: tuple[str | int, ...] = ()
    for at, name in enumerate(names):
        path = (*path, name)
        if one_more and at == len(names) - 1:
            counts[path] = counts.get(path, 0) + 1
        if path in counts:
            path = (*path, counts[path] - 1)
    return path


def _common(left: Sequence[str | int], right: Sequence[str | int]) -> int:
    depth = 0
    while depth < min(len(left), len(right)) and left[depth] == right[depth]:
        depth += 1
    return depth


def _toml_error(error: tomllib.TOMLDecodeError, text: str) -> tuple[str, int]:
    found = re.search(r"^(.*) \(at (?:line (\d+), column \d+|end of document)\)$", str(error), re.DOTALL)
    if found is None:
        return str(error), 1
    return found[1], int(found[2] or len(text.splitlines()))


def _validation_error(error: msgspec.ValidationError, raw: dict[str, Any], type_: type) -> tuple[str, list[str | int]]:
    """In plain words, and the path of the setting: ``Expected `int`, got `str` - at `$.validate.fields[...].min` ``."""
    message, _, place = str(error).partition(" - at `$")
    parts = [part for part in re.split(r"[.\[\]]+", place.replace("[...]", ".*").rstrip("`")) if part]
    path = _named([int(part) if part.isdigit() else part for part in parts], raw, type_)
    unknown = re.search(r"unknown field `([^`]+)`", message)
    if unknown:
        return f"there is no setting `{_dotted([*path, unknown[1]])}`", [*path, unknown[1]]
    if message.startswith("Expected `"):
        message = re.sub(r"`([\w| ]+)`", lambda found: _in_words(found[1]), message)
    if path:
        message = f"`{_dotted(path)}`: {message[:1].lower()}{message[1:]}"
    return message, path


def _dotted(path: Sequence[str | int]) -> str:
    return ".".join(part for part in path if isinstance(part, str))


def _in_words(types: str) -> str:
    """
    >>> _in_words("float | null")
    'a number'
    """
    wanted = [_WORDS.get(one, f"`{one}`") for one in types.split(" | ") if one != "null"]
    return " or ".join(wanted) or "nothing"


def _named(path: list[str | int], raw: dict[str, Any], type_: type) -> list[str | int]:
    """The path with the key of a table in the place of `*`: the error does not name it, but each can be tried alone."""
    if "*" not in path:
        return path
    at = path.index("*")
    table: Any = raw
    for part in path[:at]:
        table = table[part]
    if any(isinstance(part, int) for part in path[:at]):
        return path[:at]
    plain = {name: value for name, value in raw.items() if not isinstance(value, dict)}
    for key, value in table.items():
        alone: dict[Any, Any] = {key: value}
        for part in reversed(path[:at]):
            alone = {part: alone}
        try:
            msgspec.convert({**plain, **alone}, ready(type_))
        except msgspec.ValidationError as error:
            if "[...]" in str(error):
                return [*path[:at], key, *path[at + 1 :]]
    return path
