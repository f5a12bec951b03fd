"""A project's alerts, `alerts/NAME.toml`: one file each, with what it watches, when that is too much, and who is told.

What can be watched is a line of `WATCHES` and a measure (`coordinate.watching`): subjects and what each of them
measures now. A condition in SQL would be one more.
"""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from headrace.config import Project, Settings
from headrace.errors import ConfigError
from headrace.toml_files import (
    FROM_ENVIRONMENT,
    Problem,
    check_name,
    choose,
    convert_settings,
    load_files,
    read_file,
    seconds_of,
)

FOLDER = "alerts"
HINT = "docs/howto/alerts.md lists every setting"
WITHIN_S = 600


@dataclass(frozen=True, slots=True)
class Watch:
    """Something that can be too much."""

    name: str
    of: str
    """The setting that names one of its subjects; without it all are watched, each for itself."""
    counted: bool
    """It only grows: what came `within` the last minutes is compared."""
    unit: str
    """Of what there is too much, after a number."""
    summary: str


WATCHES = {
    watch.name: watch
    for watch in (
        Watch("drift", "view", False, "rows not as the log says", "rows of a view that are not what the log says"),
        Watch("late", "view", True, "late rows", "rows that came too late for their window, in the last minutes"),
        Watch("dead_letters", "topic", True, "dead letters", "events that a topic could not take, in the last minutes"),
        Watch("lag", "query", False, "records behind", "records that a query has not read yet"),
        Watch("failed", "query", False, "failures", "1 while a query that should run does not"),
        Watch("job", "job", False, "failures", "1 after a job has failed, until it succeeds"),
    )
}


class Destination(Settings, frozen=True, kw_only=True):
    """One table `[[to]]`: exactly one of these."""

    webhook: str = ""
    """An address that gets a POST, or `env:NAME` for one in the environment. Tried again until it is taken."""
    topic: str = ""
    """A topic that gets an event."""

    @property
    def key(self) -> str:
        """Tells it from others in the log, without what an address may give away."""
        return hashlib.blake2b(f"{self.webhook}\n{self.topic}".encode(), digest_size=8).hexdigest()

    @property
    def shown(self) -> str:
        """Paths of webhooks are often secret."""
        if self.topic:
            return f"topic {self.topic}"
        if self.webhook.startswith(FROM_ENVIRONMENT):
            return f"webhook {self.webhook}"
        return f"webhook {urlsplit(self.webhook).hostname}"


class AlertSettings(Settings, frozen=True, kw_only=True):
    watch: str
    """What it is about; the table below lists what there is."""
    view: str = ""
    """The one view to watch, for `drift` and `late`; all without it."""
    topic: str = ""
    """The one topic to watch, for `dead_letters`."""
    query: str = ""
    """The one query to watch, for `lag` and `failed`, by the stream or table it writes."""
    job: str = ""
    """The one job to watch, for `job`."""
    above: float = 0.0
    """It is too much when there is more than this."""
    within: str = ""
    """For what is counted (`late`, `dead_letters`): over how long, such as `10m`, which it is by default."""
    hold: str = msgspec.field(default="", name="for")
    """How long it must have been too much before anybody is told, such as `1m`; at once by default."""
    description: str = ""
    """Told along: what it means, what to do."""
    enabled: bool = True
    """`false` keeps the file and stops the alert."""
    to: list[Destination] = []
    """Who is told when it fires and when it is over; without any, console, metrics and topic `_alerts` say so."""


@dataclass(frozen=True, slots=True)
class Definition:
    """One alert as its file says it."""

    name: str
    """The file's, without its ending."""
    watch: Watch
    settings: AlertSettings

    @property
    def where(self) -> str:
        return f"{FOLDER}/{self.name}.toml"

    @property
    def subject(self) -> str:
        """The only one it is about; empty for all."""
        found: str = getattr(self.settings, self.watch.of)
        return found

    @property
    def hold_ms(self) -> int:
        return seconds_of(self.settings.hold) * 1000 if self.settings.hold else 0

    @property
    def within_ms(self) -> int:
        return 1000 * (seconds_of(self.settings.within) if self.settings.within else WITHIN_S)

    @property
    def rule(self) -> str:
        """
        >>> Definition("d", WATCHES["late"], AlertSettings(watch="late", view="v", above=10, hold="1m")).rule
        'v: more than 10 late rows within 10m, for 1m'
        """
        settings = self.settings
        within = f" within {settings.within or f'{WITHIN_S // 60}m'}" if self.watch.counted else ""
        hold = f", for {settings.hold}" if settings.hold else ""
        return f"{self.about}: more than {settings.above:g} {self.watch.unit}{within}{hold}"

    @property
    def about(self) -> str:
        plural = "queries" if self.watch.of == "query" else f"{self.watch.of}s"
        return self.subject or f"all {plural}"


def alert_files(project: Project) -> list[Path]:
    return sorted((project.folder / FOLDER).glob("*.toml"))


def load_alerts(project: Project) -> tuple[list[Definition], list[Problem]]:
    """What can be read, and what is wrong with the rest."""
    return load_files(alert_files(project), read_alert)


def read_alert(file: Path, text: str) -> Definition | Problem:
    return read_file(file, text, _define)


def _define(file: Path, text: str) -> Definition:
    raw = tomllib.loads(text)
    check_name(file, "an alert")
    watches = f"it can watch {', '.join(WATCHES)}"
    watch = choose(raw, "watch", WATCHES, "an alert", watches, "cannot be watched")
    settings = convert_settings(raw, AlertSettings, HINT)
    _check(settings, watch)
    return Definition(file.stem, watch, settings)


def _check(settings: AlertSettings, watch: Watch) -> None:
    for name in ("view", "topic", "query", "job"):
        if getattr(settings, name) and name != watch.of:
            raise ConfigError(
                f"`{watch.name}` is about a {watch.of}, not about a {name}",
                hint=f"say which:  {watch.of} = …",
                path=(name,),
            )
    if settings.within and not watch.counted:
        hint = "`for` says how long it must have been so"
        raise ConfigError(f"`{watch.name}` is what it is now, and has no `within`", hint=hint, path=("within",))
    for name, given in (("within", settings.within), ("for", settings.hold)):
        if given:
            try:
                seconds_of(given, f"`{name}`")
            except ConfigError as error:
                raise ConfigError(error.message, hint=error.hint, path=(name,)) from None
    if not 0 <= settings.above < float("inf"):
        raise ConfigError("`above` must be a number that is not negative", path=("above",))
    for place in settings.to:
        _check_destination(place)
    if len({place.key for place in settings.to}) < len(settings.to):
        raise ConfigError("two `[[to]]` are the same", path=("to",))


def _check_destination(place: Destination) -> None:
    if bool(place.webhook) == bool(place.topic):
        raise ConfigError("a `[[to]]` has either a `webhook` or a `topic`", path=("to",))
    if place.webhook and not place.webhook.startswith(FROM_ENVIRONMENT):
        check_address(place.webhook)


def check_address(url: str) -> str:
    """An address that can be posted to. The project's own files name it, so it may be any host."""
    try:
        parsed = urlsplit(url)
        right = parsed.scheme in ("http", "https") and bool(parsed.hostname) and (parsed.port or 1) > 0
    except ValueError:
        right = False
    if not right:
        raise ConfigError(
            "a webhook is an address to post to", hint="https://host/path, or env:NAME", path=("to", "webhook")
        )
    return url
