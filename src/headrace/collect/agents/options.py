"""What a component may be told: its properties by Flume's names, with their types, defaults and meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headrace.collect.agents.base import Channel, Counters, ListeningSource, PollingSource, Role, Sink
from headrace.collect.agents.properties import Property
from headrace.errors import ConfigError
from headrace.nearest import nearest

if TYPE_CHECKING:
    from headrace.collect.agents.ports import Ports

Form = Literal["text", "integer", "number", "flag", "words"]
Value = str | int | float | bool | tuple[str, ...] | None
NAMES = "*"


@dataclass(frozen=True, slots=True)
class Option:
    """One property. A name that ends with `.*` stands for all names below it, which are text."""

    name: str
    form: Form = "text"
    default: Value = None
    meaning: str = ""
    required: bool = False
    also: tuple[str, ...] = ()
    """Other names for it, of other versions of Flume."""
    choices: tuple[str, ...] = ()
    least: float | None = None

    @property
    def prefix(self) -> str | None:
        return self.name.removesuffix(NAMES) if self.name.endswith(NAMES) else None


@dataclass(frozen=True, slots=True)
class Problem:
    """Something about a file. An error keeps the agent from running."""

    line: int
    message: str
    hint: str | None = None
    severity: Literal["error", "warning"] = "error"


class Options(Mapping[str, Any]):
    """What a component was told, read as it is declared."""

    def __init__(self, values: Mapping[str, Any], below: Mapping[str, Mapping[str, str]]) -> None:
        self._values, self._below = values, below

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def changed(self, name: str, value: Value) -> Options:
        return Options({**self._values, name: value}, self._below)

    def text(self, name: str) -> str:
        value = self._values[name]
        return "" if value is None else str(value)

    def integer(self, name: str) -> int:
        return int(self._values[name])

    def number(self, name: str) -> float:
        return float(self._values[name])

    def flag(self, name: str) -> bool:
        return bool(self._values[name])

    def words(self, name: str) -> tuple[str, ...]:
        return tuple(self._values[name] or ())

    def path(self, name: str) -> Path:
        """`~` and `${user.home}` are the user's home."""
        return Path(self.text(name).replace("${user.home}", "~")).expanduser()

    def below(self, name: str) -> dict[str, str]:
        """Of `kafka.producer.*`: all that begins so, without the beginning."""
        return dict(self._below.get(name, {}))


@dataclass(frozen=True, slots=True)
class Context:
    """What a component is made from."""

    agent: str
    name: str
    options: Options
    counters: Counters
    ports: Ports


Component = Channel | ListeningSource | PollingSource | Sink


@dataclass(frozen=True, slots=True)
class ComponentKind:
    """A type of component. The first name is the one to write; the others are Flume's class names and aliases."""

    role: Role
    names: tuple[str, ...]
    summary: str
    make: Callable[[Context], Component]
    options: tuple[Option, ...] = ()
    check: Callable[[Options], Iterable[tuple[str, str, str | None]]] = field(default=lambda options: ())
    """What is wrong with values that are each fine: (property, message, hint)."""

    @property
    def name(self) -> str:
        return self.names[0]


def read_options(
    what: str, declared: Iterable[Option], given: Mapping[str, Property], line: int
) -> tuple[Options, list[Problem]]:
    """`what` names the component in messages, `line` is where it stands."""
    declared = tuple(declared)
    exact = {name: option for option in declared if option.prefix is None for name in (option.name, *option.also)}
    prefixes = [option for option in declared if option.prefix is not None]
    values: dict[str, Any] = {option.name: option.default for option in declared if option.prefix is None}
    below: dict[str, dict[str, str]] = {}
    problems: list[Problem] = []
    seen: set[str] = set()
    for name, one in given.items():
        option = exact.get(name)
        if option is not None:
            # Where both the old and the new name are given, the new one is meant.
            if name == option.name or option.name not in seen:
                problems += _read(what, option, one, values)
            seen.add(option.name)
            continue
        under = next((option for option in prefixes if name.startswith(option.prefix or "")), None)
        if under is not None:
            below.setdefault(under.name, {})[name.removeprefix(under.prefix or "")] = one.value
            seen.add(under.name)
        else:
            problems.append(_unknown(what, name, one.line, [*exact, *(option.name for option in prefixes)]))
    for option in declared:
        if option.required and option.name not in seen:
            problems.append(Problem(line, f"{what} needs `{option.name}`", option.meaning or None))
    return Options(values, below), problems


def _read(what: str, option: Option, one: Property, values: dict[str, Any]) -> list[Problem]:
    try:
        value = convert(option, one.value)
    except ConfigError as error:
        return [Problem(one.line, f"`{one.name}` of {what} {error.message}", error.hint)]
    values[option.name] = value
    return []


def convert(option: Option, text: str) -> Value:
    """
    >>> convert(Option("batchSize", "integer"), "20"), convert(Option("channels", "words"), "c1  c2")
    (20, ('c1', 'c2'))
    """
    plain = text.strip()
    match option.form:
        case "integer" | "number":
            try:
                number = int(plain) if option.form == "integer" else float(plain)
            except ValueError:
                raise ConfigError(
                    f"must be {'a whole ' if option.form == 'integer' else 'a '}number, got `{plain}`"
                ) from None
            if option.least is not None and number < option.least:
                raise ConfigError(f"must be at least {option.least:g}, got `{plain}`")
            return number
        case "flag":
            if plain.lower() not in ("true", "false"):
                raise ConfigError(f"must be `true` or `false`, got `{plain}`")
            return plain.lower() == "true"
        case "words":
            return tuple(plain.replace(",", " ").split())
    if option.choices and plain.lower() not in {choice.lower() for choice in option.choices}:
        raise ConfigError(
            f"cannot be `{plain}`{suggestion(plain, option.choices)}", hint="one of " + ", ".join(option.choices)
        )
    return plain if option.choices else text


OF_ALL = ("type", "channel", "channels", "interceptors", "selector.type")
"""What the topology reads, of any component."""


def _unknown(what: str, name: str, line: int, known: list[str]) -> Problem:
    hint = "its properties: " + ", ".join(f"`{one}`" for one in sorted(known)) if known else "it has no properties"
    near = suggestion(name, [*known, *OF_ALL])
    return Problem(line, f"{what} has no property `{name}`{near}", hint, "warning")


def suggestion(name: str, known: Iterable[str]) -> str:
    """
    >>> suggestion("memmory", ["memory", "file"])
    ': did you mean `memory`?'
    """
    # Half is enough: names in these files are as short as `c1`.
    found = nearest(name, known, 0.5)
    return f": did you mean `{found}`?" if found else ""
