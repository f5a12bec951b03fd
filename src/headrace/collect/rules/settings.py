"""The tables `[enrich]`, `[validate]` and `[privacy]` of a collector's file.

A field is named by its path, `user.email`: through objects, and through each element of an array. Upper and lower case
are one."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from typing import Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headrace.config import Settings
from headrace.errors import ConfigError
from headrace.secrecy import Secret

Scalar = str | int | float | bool
FieldType = Literal["string", "integer", "number", "boolean", "timestamp", "object", "array"]


class EnrichSettings(Settings, frozen=True):
    arrival_time: str = ""
    """Field for the time of arrival; empty for none. What a client sends in it is replaced, as in all of these."""
    arrival_time_as: Literal["iso", "ms"] = "iso"
    """As text in ISO 8601, UTC, or as milliseconds since 1970."""
    address: str = ""
    """Field for the address of whoever sent it."""
    address_as: Literal["plain", "network", "hash"] = "plain"
    """As it is; its network (IPv4 /24, IPv6 /48); or its keyed hash, by the key of `[privacy]`."""
    proxies: list[str] = []
    """Networks of proxies whose `X-Forwarded-For` is believed, such as `10.0.0.0/8`. Nobody else's is."""
    user_agent: str = ""
    """Field for the client's user agent."""
    visitor: str = ""
    """Field for the id of the visitor, where events come with a visit (`/v1/visit`); null without one."""
    session: str = ""
    """Field for the id of the visitor's session."""
    collector: str = ""
    """Field for the collector's name."""
    fields: dict[str, Scalar] = {}
    """Further fields that every event gets, as a table `[enrich.fields]`."""

    def check(self) -> None:
        for network in self.proxies:
            try:
                ipaddress.ip_network(network)
            except ValueError as error:
                raise ConfigError(f"`enrich.proxies`: {error}", path=("enrich", "proxies")) from None


class FieldRule(Settings, frozen=True):
    type: FieldType | None = None
    """What it must be. The type of a column of the topic is checked without this."""
    min: float | None = None
    """Least number."""
    max: float | None = None
    """Greatest number."""
    min_length: int | None = None
    """Fewest characters of a text, or elements of an array."""
    max_length: int | None = None
    """Most of them."""
    pattern: str = ""
    """A regular expression (RE2) that a text must hold; `^…$` for all of it."""
    one_of: list[Scalar] = []
    """The values there are."""


class ValidateSettings(Settings, frozen=True):
    required: list[str] = []
    """Fields without which an event is rejected; null is none."""
    coerce: list[str] = []
    """Fields whose text is read as what the column (or the field's `type`) wants, or whose number as text. Nothing is
    converted without being named here."""
    unknown: Literal["keep", "refuse", "drop"] = "keep"
    """Fields that the topic has no column for: kept, an error, or left out."""
    fields: dict[str, FieldRule] = {}
    """By field, as tables `[validate.fields.NAME]`."""

    def check(self) -> None:
        for name, rule in self.fields.items():
            place = ("validate", "fields", name)
            if rule.pattern:
                try:
                    pc.match_substring_regex(pa.array([""]), rule.pattern)
                except pa.ArrowInvalid as error:
                    message = f"`{name}`: the pattern is none: {str(error).partition(': ')[2] or error}"
                    raise ConfigError(message, hint="patterns are RE2's", path=(*place, "pattern")) from None
            for low, high, words in (
                (rule.min, rule.max, "min` is above `max"),
                (rule.min_length, rule.max_length, "min_length` is above `max_length"),
            ):
                if low is not None and high is not None and low > high:
                    raise ConfigError(f"`{name}`: `{words}`", path=place)


class PrivacySettings(Settings, frozen=True):
    """Before anything is stored, in dead letters too."""

    drop: list[str] = []
    """Fields that are left out."""
    hash: list[str] = []
    """Fields that are replaced by their HMAC-SHA256, as 64 hexadecimal digits."""
    truncate: dict[str, int | Literal["network"]] = {}
    """Fields that are cut: to so many characters, or, of an address, to its `"network"` (IPv4 /24, IPv6 /48)."""
    key: Secret = ""
    """Key of the hashes, best as `env:NAME`. Without it the project's own is used, which is made once and kept in the
    data folder, readable by its user only: without that folder the hashes could not be made again."""
    unreadable: Literal["withhold", "keep"] = "withhold"
    """The bytes of an event that cannot be read cannot be cleaned either: its dead letter is kept without them, or, if
    you say so, with them."""

    @property
    def any(self) -> bool:
        return bool(self.names)

    @property
    def names(self) -> list[str]:
        """The fields it is about."""
        return [*self.drop, *self.hash, *self.truncate]

    def also(self, places: Callable[[str], Iterable[str]]) -> PrivacySettings:
        """The same for each field's other places. What the file itself says of one of them counts."""
        said = {name.casefold() for name in self.names}

        def spread(names: Iterable[str]) -> list[str]:
            return [one for name in names for one in (name, *(p for p in places(name) if p.casefold() not in said))]

        cut = {place: length for name, length in self.truncate.items() for place in spread([name])}
        return msgspec.structs.replace(self, drop=spread(self.drop), hash=spread(self.hash), truncate=cut)

    def check(self) -> None:
        for name, length in self.truncate.items():
            if isinstance(length, int) and length < 0:
                raise ConfigError(f"`{name}` cannot be cut to {length} characters", path=("privacy", "truncate"))
        seen: dict[str, str] = {}
        for what, names in (("drop", self.drop), ("hash", self.hash), ("truncate", list(self.truncate))):
            for name in names:
                if (before := seen.setdefault(name.casefold(), what)) != what:
                    raise ConfigError(f"`{name}` is to be {before} and {what}", path=("privacy", what))
