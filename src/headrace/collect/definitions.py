"""A project's collectors, `collectors/NAME.toml`: one file each, read with errors that name file and line.

Common settings are here, those of a type in the struct its `Kind` names. Broken files keep no other from being read."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from headrace.collect.files import FLUME, FOLDER, collector_files
from headrace.collect.kinds import KINDS, Kind, load
from headrace.collect.quota import QuotaSettings
from headrace.collect.rules.settings import EnrichSettings, PrivacySettings, ValidateSettings
from headrace.collect.shedding import ShedSettings
from headrace.config import Project, Settings
from headrace.errors import ConfigError
from headrace.secrecy import Secret
from headrace.toml_files import Problem, check_name, choose, convert_settings, load_files, read_file

HINT = "docs/reference/collectors.md lists every setting"

S = TypeVar("S", bound="CollectorSettings")


class CollectorSettings(Settings, frozen=True, kw_only=True):
    """What every collector has. A type's own options are fields of a struct that extends this one."""

    type: str
    """What it speaks; `headrace collector kinds` lists them."""
    topic: str = ""
    """Where its events go."""
    enabled: bool = True
    """`false` keeps the file and stops the collector."""
    keys: list[Secret] = []
    """Write keys that may use it, or `env:NAME` for one in the environment. Without keys only the user who runs the
    server may, on the same machine."""
    public: bool = False
    """Anybody who reaches it may send to it without a key, pages of any web site included."""

    enrich: EnrichSettings = EnrichSettings()
    """What every event is told about its arrival."""
    validate: ValidateSettings = ValidateSettings()
    """What it must be, besides fitting the topic's columns."""
    privacy: PrivacySettings = PrivacySettings()
    """What of it nobody may store."""
    quota: QuotaSettings = QuotaSettings()
    """How much it takes, before it tells senders to come again."""
    shed: ShedSettings = ShedSettings()
    """What it leaves out when too much comes."""

    def check(self) -> None:
        """Raise `ConfigError` for what types alone cannot say. A type that overrides this calls it first."""
        if not self.topic:
            raise ConfigError("a collector needs a `topic`", hint='say where its events go:  topic = "…"')
        self.check_tables()

    def check_tables(self) -> None:
        if "" in self.keys:
            raise ConfigError(
                "a key is empty", hint="so anybody would have it; `public = true` says so", path=("keys",)
            )
        for table in (self.enrich, self.validate, self.privacy, self.quota, self.shed):
            table.check()

    @property
    def destinations(self) -> tuple[str, ...]:
        """All that its events go to."""
        return (self.topic,) if self.topic else ()

    @property
    def hides(self) -> PrivacySettings:
        """`privacy` as it is meant for what the type makes of its events."""
        return self.privacy

    @property
    def has_rules(self) -> bool:
        """Whether events must be looked at one by one."""
        return (self.enrich, self.validate, self.privacy) != _NO_RULES


_NO_RULES = (EnrichSettings(), ValidateSettings(), PrivacySettings())


@dataclass(frozen=True, slots=True)
class Definition:
    """One collector as its file says it."""

    name: str
    """The file's, without its ending."""
    file: Path
    kind: Kind
    settings: CollectorSettings
    stamp: str = ""
    """Changes with the file's contents."""

    @property
    def where(self) -> str:
        return f"{FOLDER}/{self.file.name}"

    def settings_as(self, type_: type[S]) -> S:
        """The settings as those of its type."""
        assert isinstance(self.settings, type_)
        return self.settings


def load_definitions(project: Project) -> tuple[list[Definition], list[Problem]]:
    """What can be read, and what is wrong with the rest."""
    keys_needed = bool(project.settings.auth.keys)
    return load_files(collector_files(project), lambda file, text: read_definition(file, text, keys_needed))


def read_definition(file: Path, text: str, keys_needed: bool = False) -> Definition | Problem:
    """One file. `keys_needed`: the project has `[auth] keys`, so that a door without one must say that it is meant."""
    return read_file(file, text, lambda file, text: _define(file, text, keys_needed))


def _define(file: Path, text: str, keys_needed: bool) -> Definition:
    raw = {"type": "agent", "conf": f"{FOLDER}/{file.name}"} if file.suffix == FLUME else tomllib.loads(text)
    check_name(file, "a collector")
    types = f"its types are {', '.join(KINDS)}"
    kind = choose(raw, "type", KINDS, "a collector", types, "is not a type of collector")
    settings: CollectorSettings = convert_settings(raw, load(kind.settings), HINT)
    settings.check()
    if keys_needed and kind.keyed and not settings.keys and not settings.public:
        raise ConfigError(
            "this project has `[auth] keys`, but anybody could send to this collector",
            hint='give it `keys = ["…"]`, or say that it is meant:  public = true',
        )
    if not kind.keyed and (settings.keys or settings.public):
        hint = "the project's [auth] keys hold for it" if kind.name == "http" else None
        raise ConfigError(f"a collector of type `{kind.name}` has no keys of its own", hint=hint, path=("keys",))
    return Definition(file.stem, file, kind, settings, text)
