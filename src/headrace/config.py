"""`headrace.toml`: every setting, its default and its meaning, in one place.

The docstring of a field is its documentation (`docs/reference/settings.md` is checked against it).
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from headrace.errors import ConfigError
from headrace.nearest import did_you_mean
from headrace.toml_files import convert_settings, read_settings

PROJECT_FILE = "headrace.toml"
BACKENDS = ("local", "kafka")
ROLES = ("read", "write", "admin")
MOST_WORKERS = 64


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename=None):
    """Common to all sections: unknown settings are errors, not silence."""


class KafkaSettings(Settings, frozen=True):
    bootstrap: str = ""
    """Some of the brokers, `host:port` each, separated by commas."""
    prefix: str = ""
    """Put before the name of every topic, group and transaction, so that several projects can share a cluster."""
    replication: int = 0
    """Copies of the topics Headrace makes; 0 leaves it to the brokers. A topic may say otherwise."""
    min_insync: int = 0
    """How many copies must have a record before it is acknowledged; 0 leaves it to the brokers."""
    tls: bool = False
    """Talk to the brokers over TLS."""
    tls_ca: str = ""
    """File with the certificates that sign the brokers'; the system's by default."""
    tls_cert: str = ""
    """File with our certificate, where the brokers ask for one."""
    tls_key: str = ""
    """File with its private key."""
    sasl: str = ""
    """How to log in: `PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512` or another of librdkafka's; empty for not at all."""
    user: str = ""
    """Who logs in."""
    password_env: str = "HEADRACE_KAFKA_PASSWORD"
    """The environment variable that holds the password. It is never written to a file."""
    request_seconds: float = 30.0
    """How long an answer of the brokers is waited for."""
    delivery_seconds: float = 60.0
    """How long a write is tried before it fails."""
    conf: dict[str, str] = {}
    """Further properties of librdkafka, as they are, for all clients."""


class ArchiveSettings(Settings, frozen=True):
    folder: str = ""
    """Where old segments of event topics go as Parquet, relative to the data folder; empty keeps them in the log."""
    after_hours: float = 24.0
    """A sealed segment is archived when its last record is this old."""
    after_bytes: int = 0
    """Also when a partition's sealed segments take more than this, the oldest first; 0 is no limit."""
    keep_local_hours: float = 0
    """How old a segment's last record must be before its local copy goes; reading it is faster than the archive."""
    retention_hours: float = 0
    """Delete archived files older than this; 0 keeps them for ever, whatever the retention of the log."""


class LogSettings(Settings, frozen=True):
    backend: str = "local"
    """Where the log is kept: `local` or `kafka`."""
    segment_bytes: int = 64 * 1024 * 1024
    """A segment is sealed when it reaches this size."""
    segment_seconds: int = 3600
    """A segment is sealed when it is this old, even if small."""
    linger_ms: float = 2.0
    """How long the owner waits for more records before it writes and syncs a group."""
    frame_rows: int = 20_000
    """Rows per frame when a sealed segment is rewritten."""
    retention_hours: float = 0
    """Delete sealed segments older than this; 0 keeps everything. A topic may say otherwise."""
    retention_bytes: int = 0
    """Delete the oldest sealed segments of a partition above this size; 0 keeps everything."""
    id_window_hours: float = 0
    """How long an event id is known, so that an event sent again counts once; 0 is as long as its record is kept. A
    topic may say otherwise."""
    max_pending_bytes: int = 256 * 1024 * 1024
    """What may wait in memory for the next group; beyond it writers are told to slow down (429)."""
    min_free_bytes: int = 256 * 1024 * 1024
    """Below this much free disk the log refuses writes (507) instead of running full."""
    kafka: KafkaSettings = KafkaSettings()
    archive: ArchiveSettings = ArchiveSettings()


class StoreSettings(Settings, frozen=True):
    backend: str = "sqlite"
    """Where views are served from: `sqlite`."""
    readers: int = 4
    """Connections that serve pull queries side by side."""


class ViewsSettings(Settings, frozen=True):
    keep_hours: float = 168.0
    """How long a version that no longer serves is kept up to date, so that a rollback takes no time."""
    check_every_seconds: float = 30.0
    """How often some rows of one view, the views in turns, are computed again from the log and compared; 0 is never."""
    check_rows: int = 50
    """Rows of one such check."""
    check_seconds: float = 1.0
    """Longest time of one such check. What takes longer is given up and counted; the next then takes fewer rows, and
    up to eight times as long."""
    snapshot_changes: int = 500_000
    """After so many changes of a view a snapshot of its rows is taken, from which AS OF begins; 0 is never. A view
    whose rows expire has none, nor has a Lambda view."""
    snapshots: int = 4
    """Most snapshots of one version of a view; each takes as much disk as the view."""
    repair_every_seconds: float = 0
    """How often closed windows are computed again with what came too late; 0 is only when asked to."""


class SparkSettings(Settings, frozen=True):
    master: str = "local[*]"
    """Spark's master. A cluster needs the log on Kafka."""
    memory: str = "2g"
    """Heap of the driver (in local mode, of all of Spark)."""
    shuffle_partitions: int = 1
    """State partitions of a new query. Fixed for a query once it has run."""
    max_rows_per_batch: int = 20_000_000
    """Bound of one micro-batch. Queries that do more with a row than add it up, such as joins, take 2,000,000 at most;
    on Kafka all take 500,000. A replay of what has many keys takes fewer, so that others do not wait long for a core:
    as many as its longest task takes a second for."""
    max_state_rows: int = 0
    """Most rows of state that one query may keep, unless its `WITH (MAX_STATE_ROWS=…)` says otherwise; 0 is no limit. A
    query over it stops and says so; the others go on."""
    max_state_bytes: int = 0
    """The same in bytes: `MAX_STATE_BYTES`."""
    trigger_ms: int = 0
    """Least time between the starts of two micro-batches; 0 is as soon as there is data."""
    restart_backoff_s: float = 1.0
    """First wait before a failed query is started again; doubles up to a minute."""
    stall_seconds: float = 120.0
    """A query with input to read that commits nothing, finishes no task and reads no row for this long is stalled: it
    is restarted and, if that does not help, the engine is; 0 is never. A long batch that gets on is not stalled."""
    conf: dict[str, str] = {}
    """Further Spark settings, as they are."""


class ServerSettings(Settings, frozen=True):
    host: str = "127.0.0.1"
    """Address to bind. Anything but loopback needs `[auth] keys`."""
    port: int = 8080
    """Port of the HTTP API and the console."""
    tls_cert: str = ""
    """File with the certificate (PEM, with those between it and its signer), relative to the project: given, the server
    and the collectors speak HTTPS only."""
    tls_key: str = ""
    """File with its private key."""
    workers: int = 1
    """Processes that take events in. Each beyond the first is a collector that does nothing else, on `collect_port`."""
    collect_port: int = 0
    """Port that all collectors share; 0 is the one after the server's."""
    max_body_bytes: int = 16 * 1024 * 1024
    """Largest request body, after decompression."""
    body_seconds: float = 10.0
    """A request body must have arrived within this time."""
    query_seconds: float = 10.0
    """Deadline of a pull query."""
    query_rows: int = 10_000
    """Most rows of a pull query's answer that is sent as one JSON document, and of a table on a terminal. A streamed
    answer (`"stream": true`, `headrace sql --format csv`) has no such limit."""
    stream_seconds: float = 600.0
    """Longest time that the rows of a streamed answer may be read for. The time a client takes to receive what waits on
    disk (`stream_disk_bytes`) does not count."""
    stream_disk_bytes: int = 1024 * 1024 * 1024
    """What of one streamed answer may wait on disk for a client that receives it slowly; reading goes on once
    the client has received that."""
    query_bytes: int = 256 * 1024 * 1024
    """Memory that a pull query may hold at once: groups, sorted rows, the smaller side of a join."""
    engine_records: int = 2_000_000
    """A pull query about more records of streams than this is answered by the engine, on Spark."""
    engine_seconds: float = 600.0
    """Deadline of a pull query that the engine answers."""
    max_push_queries: int = 32
    """Push queries that may run at once."""
    max_push_queries_per_key: int = 0
    """Of one key; 0 is half of them where there are several keys."""
    max_connections: int = 0
    """Connections that may be open at once; 0 is as many as the limit of open files (`ulimit -Hn`) allows, less 2,000.
    Further ones wait."""
    max_subscribers: int = 0
    """Feeds, sockets and push queries that may be open at once (429 beyond that); 0 is three quarters of
    `max_connections`. The rest is kept for writes, queries, health and administration."""
    max_subscribers_per_key: int = 0
    """Of one key; 0 is half of `max_subscribers` where there are several keys."""
    max_subscribers_per_address: int = 0
    """Of one address; 0 is half of `max_subscribers`, and all of it for this machine's own."""
    first_byte_seconds: float = 10.0
    """A connection that has sent nothing for so long is closed; after a second while three quarters of the connections
    are taken."""
    header_seconds: float = 30.0
    """How long a request's headers may take, and how long a connection may wait for its next request."""
    frozen_seconds: float = 30.0
    """A process of the project (server, engine, collector, listener) that runs but does not answer the supervisor for
    this long is killed and started again, and one that a signal has stopped (SIGSTOP) after 10 s; 0 is never. Time in
    which the supervisor could not run does not count."""
    clock_trust_seconds: float = 600.0
    """A jump of the machine's clock is followed once it has lasted so long; until then times go on by the monotonic
    clock, and `status`, `/readyz` and `/metrics` say so."""


class TopicTimes(Settings, frozen=True):
    """`[collect.topics.NAME]`: which event times one topic takes, where it differs from the others."""

    max_future_seconds: float | None = None
    earliest_event_time: str | None = None

    def __post_init__(self) -> None:
        if self.earliest_event_time:
            datetime.fromisoformat(self.earliest_event_time)


class CollectSettings(Settings, frozen=True):
    max_event_bytes: int = 1024 * 1024
    """Largest single event."""
    max_events: int = 100_000
    """Most events of one request."""
    max_future_seconds: float = 86_400.0
    """An event further ahead of the clock than this is rejected: one wrong clock must not close everybody's windows."""
    earliest_event_time: str = ""
    """An event before this moment (ISO 8601) is rejected. Empty takes all since 1970, but no time that looks like
    seconds taken for milliseconds: between 8 and about 22 January 1970. `1970-01-01` takes those too."""
    topics: dict[str, TopicTimes] = {}
    """Topics with bounds of their own: `topics.NAME = { max_future_seconds = …, earliest_event_time = "…" }`."""
    buffer_bytes: int = 256 * 1024 * 1024
    """What a process may keep on disk while the log is away (collector processes; the server, on Kafka); 0 is nothing,
    then senders are told to come again at once."""
    tickets: int = 100_000
    """Most tickets that are kept; when as many wait, no more are given (429), and of the others the oldest go first."""
    ticket_hours: float = 24.0
    """How long a ticket's result is kept, and its callback tried."""
    callback_hosts: list[str] = []
    """Where results may be posted to: `host` or `host:port` each. None means nowhere."""
    callback_seconds: float = 10.0
    """How long a callback may take to answer."""
    callback_secret_env: str = "HEADRACE_CALLBACK_SECRET"
    """The environment variable that holds the secret callbacks are signed with. It is never written to a file."""
    session_minutes: float = 30.0
    """A visit's session ends when nothing was heard for so long."""
    visitor_days: float = 400.0
    """How long a browser keeps the cookie of a visit."""

    def __post_init__(self) -> None:
        if self.earliest_event_time:
            datetime.fromisoformat(self.earliest_event_time)


class KinesisSettings(Settings, frozen=True):
    region: str = "us-east-1"
    """The region in the names (ARNs) of streams. Clients may name any."""
    account: str = "000000000000"
    """The account in them."""
    max_record_bytes: int = 1024 * 1024
    """Largest record, with its partition key."""
    max_records: int = 500
    """Most records of one PutRecords."""
    max_request_bytes: int = 5 * 1024 * 1024
    """Most bytes of records of one PutRecords."""
    max_shards: int = 500
    """Most open shards of a stream."""
    retention_hours: float = 24.0
    """How long a stream made by CreateStream keeps its records; 0 is for ever."""
    iterator_seconds: float = 300.0
    """How long a shard iterator can be used."""
    buckets: str = "buckets"
    """Where delivery streams (Firehose) write: a folder with one for each bucket, relative to the data folder."""
    max_firehose_record_bytes: int = 1_024_000
    """Largest record of a delivery stream."""
    max_firehose_request_bytes: int = 4 * 1024 * 1024
    """Most bytes of records of one PutRecordBatch."""


class FunctionSettings(Settings, frozen=True):
    seconds: float = 5.0
    """How long one call of a Python function may take; then it is interrupted, and counts as failed."""
    memory_mb: int = 1024
    """How much memory the functions of one process may take."""


class Key(Settings, frozen=True):
    key: str
    """The secret a client sends as `Authorization: Bearer …`, 16 characters or more; or its hash `sha256:…` (`headrace
    key new` makes both), or where it is: `env:NAME`, `file:PATH`."""
    role: str = "read"
    """`read`, `write` (and read) or `admin` (and all)."""
    name: str = ""
    """Who it is, for logs."""
    topics: list[str] | None = None
    """Names and wildcards (`web-*`) of the topics that the key is limited to. Without `topics` and `views` it may use
    all."""
    views: list[str] | None = None
    """The same for tables, in any case. A key with `topics` alone may use no tables, and the other way round."""


class AuthSettings(Settings, frozen=True):
    keys: list[Key] = []
    """With at least one key, every request but `/healthz` and those for public collectors needs one. Without keys only
    the user who runs the server may use it, on the same machine."""


class ProjectSettings(Settings, frozen=True):
    name: str = ""
    """Shown in the console; the folder's name by default."""
    data: str = ".headrace"
    """Folder of log, checkpoints and views, relative to the project."""
    log: LogSettings = LogSettings()
    store: StoreSettings = StoreSettings()
    views: ViewsSettings = ViewsSettings()
    spark: SparkSettings = SparkSettings()
    server: ServerSettings = ServerSettings()
    collect: CollectSettings = CollectSettings()
    kinesis: KinesisSettings = KinesisSettings()
    functions: FunctionSettings = FunctionSettings()
    auth: AuthSettings = AuthSettings()


class Project(msgspec.Struct, frozen=True):
    """A user's project: its folder and its settings. All paths of the running system derive from here."""

    folder: Path
    settings: ProjectSettings

    @property
    def name(self) -> str:
        return self.settings.name or self.folder.name

    @property
    def data(self) -> Path:
        return self.folder / self.settings.data

    @property
    def log_folder(self) -> Path:
        return self.data / "log"

    @property
    def views_folder(self) -> Path:
        return self.data / "views"

    @property
    def checkpoints_folder(self) -> Path:
        """A checkpoint holds offsets of one log: of another it would be wrong."""
        backend = self.settings.log.backend
        return self.data / ("checkpoints" if backend == "local" else f"checkpoints-{backend}")

    @property
    def logs_folder(self) -> Path:
        """Where the supervisor's, the server's and the engine's own logs go."""
        return self.data / "logs"

    @property
    def pipelines(self) -> list[Path]:
        folder = self.folder / "pipelines"
        return sorted([*folder.glob("*.sql"), *folder.glob("*.py")])


def find_project(start: Path) -> Path | None:
    """The nearest folder at or above `start` that holds a headrace.toml."""
    for folder in (start.resolve(), *start.resolve().parents):
        if (folder / PROJECT_FILE).is_file():
            return folder
    return None


def load_project(folder: Path) -> Project:
    file = folder / PROJECT_FILE
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"no {PROJECT_FILE} in `{folder}`", hint="make a project here:  headrace init NAME") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{PROJECT_FILE} cannot be read: {error}") from error
    return Project(folder.resolve(), read_settings(PROJECT_FILE, text, parse_settings))


def parse_settings(raw: dict[str, Any]) -> ProjectSettings:
    """Return the settings of a parsed file. `ConfigError` says what is wrong, with the setting's `path`."""
    settings = convert_settings(raw, ProjectSettings, "docs/reference/settings.md lists every setting")
    _check_choice(settings.log.backend, BACKENDS, ("log", "backend"))
    for number, key in enumerate(settings.auth.keys):
        _check_choice(key.role, ROLES, ("auth", "keys", number, "role"))
        if not key.key:
            raise ConfigError("`auth.keys.key`: a key cannot be empty", path=("auth", "keys", number, "key"))
        _check_scopes(key, ("auth", "keys", number))
    workers = settings.server.workers
    if not 1 <= workers <= MOST_WORKERS:
        path = ("server", "workers")
        raise ConfigError(f"`server.workers`: cannot be {workers}", hint=f"1 to {MOST_WORKERS}", path=path)
    if not 0 <= settings.server.port <= 65535:
        path = ("server", "port")
        raise ConfigError(f"`server.port`: cannot be {settings.server.port}", hint="0 to 65535", path=path)
    return settings


def _check_scopes(key: Key, path: tuple[str | int, ...]) -> None:
    for setting, names in (("topics", key.topics), ("views", key.views)):
        if names is None:
            continue
        said, place = f"`auth.keys.{setting}`:", (*path, setting)
        if key.role == "admin":
            hint = "an admin's statements can make and read anything; the role is read or write"
            raise ConfigError(f"{said} a key with the role admin cannot be limited", hint=hint, path=place)
        if not all(names):
            raise ConfigError(f"{said} a name cannot be empty", path=place)
        if own := [name for name in names if setting == "topics" and name.startswith("_")]:
            hint = "leave both `topics` and `views` out of a key that is to read it"
            raise ConfigError(f"{said} `{own[0]}` is Headrace's own, for keys without limits", hint=hint, path=place)


def _check_choice(value: str, choices: tuple[str, ...], path: tuple[str | int, ...]) -> None:
    if value not in choices:
        name = ".".join(part for part in path if isinstance(part, str))
        said = did_you_mean(value, choices, f"it is one of {', '.join(choices)}")
        raise ConfigError(f"`{name}`: cannot be `{value}`", hint=said, path=path)
