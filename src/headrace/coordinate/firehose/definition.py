"""A delivery stream as AWS's clients define it, read into what is done here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from headrace.collect.kinesis.errors import INVALID, ApiError
from headrace.log.schema import is_topic_name

S3, EXTENDED, HTTP = (
    "S3DestinationConfiguration",
    "ExtendedS3DestinationConfiguration",
    "HttpEndpointDestinationConfiguration",
)
MEGABYTE = 1024 * 1024
DEFAULT_MB, DEFAULT_SECONDS = 5, 300
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_EXPRESSION = re.compile(r"!\{(\w[\w-]*):([^}]*)\}")
# Java's letters for a moment, as far as folders need them.
_LETTERS = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
# A record's time may be anything from 1970 on; a folder's name ends with the year 9987, whatever the zone.
_LAST_MS = 253_000_000_000_000
_TOPIC = re.compile(r"(?:topic:|https?://[^/]+/v1/topics/)([^/]+)(?:/events)?")


class DeliveryNote(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered of a delivery stream."""

    name: str
    made: int
    """Tells one from an earlier one of the same name."""
    created_ms: int
    updated_ms: int
    version: int = 1
    source: str = ""
    """The stream it reads; empty where records are put into it."""
    destination: str
    """`S3`, `EXTENDED` or `HTTP`."""
    configuration: dict[str, Any]
    """The destination's, as it was sent."""
    starts: dict[int, int] = {}
    """Where it begins to read a stream that was there before, by shard."""
    tags: dict[str, str] = {}

    @property
    def topic(self) -> str:
        """Where its records wait."""
        return self.source or buffer_topic(self.name)


def buffer_topic(name: str) -> str:
    return f"_firehose.{name}"


def attached_name(name: str) -> str:
    """By which it is a reader of its topic, and the source of its dead letters."""
    return f"delivery-{name}"


@dataclass(frozen=True, slots=True)
class Files:
    """Where files go, and what they are like."""

    bucket: str
    prefix: str
    size: int
    seconds: float
    gzip: bool
    parquet: bool
    schema_topic: str
    """Whose columns a Parquet file has; empty: as the records are."""
    delimiter: bytes
    extension: str
    zone: tzinfo = UTC
    """Whose dates folders and files are named by."""

    def folder(self, moment_ms: int, unique: str) -> str:
        """With `YYYY/MM/dd/HH/` behind it, unless the prefix says where its dates are."""
        moment = self._moment(moment_ms)
        named = _EXPRESSION.sub(
            lambda found: _moment(found[2], moment) if found[1] == "timestamp" else unique[-11:], self.prefix
        )
        return named if "!{timestamp:" in self.prefix else named + moment.strftime("%Y/%m/%d/%H/")

    def file(self, name: str, version: int, moment_ms: int, unique: str) -> str:
        stamp = self._moment(moment_ms).strftime("%Y-%m-%d-%H-%M-%S")
        ending = self.extension or (".parquet" if self.parquet else ".gz" if self.gzip else "")
        return f"{self.folder(moment_ms, unique)}{name}-{version}-{stamp}-{unique}{ending}"

    def _moment(self, moment_ms: int) -> datetime:
        return datetime.fromtimestamp(min(moment_ms, _LAST_MS) / 1000, self.zone)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a delivery stream does with its records."""

    transform: str
    """A function of the project's; empty for none."""
    files: Files | None
    to: str
    """The topic, where it is none of files."""


def plan_of(destination: str, configuration: Mapping[str, Any]) -> Plan:
    """`InvalidArgumentException` for what is not done here: nothing of a configuration is passed over silently."""
    transform, delimiter = _processing(configuration.get("ProcessingConfiguration") or {})
    if destination == HTTP:
        url = str((configuration.get("EndpointConfiguration") or {}).get("Url", ""))
        found = _TOPIC.fullmatch(url)
        if found is None or not is_topic_name(found[1]) or found[1].startswith("_"):
            raise ApiError(INVALID, f"`{url[:200]}` is no topic of this server: say topic:NAME")
        return Plan(transform, None, found[1])
    return Plan(transform, _files(configuration, delimiter), "")


def check_wanted(configuration: Mapping[str, Any]) -> None:
    """What would change nothing here, although who asks for it counts on it. A delivery stream that is there already
    goes on."""
    if configuration.get("S3BackupMode") in ("Enabled", "AllData"):
        raise ApiError(INVALID, "source records are not backed up here: a second delivery stream can write them")
    if "KMSEncryptionConfig" in (configuration.get("EncryptionConfiguration") or {}):
        raise ApiError(INVALID, "this server does not encrypt: encrypt the disk, or the data before it is sent")
    zone = str(configuration.get("CustomTimeZone") or "UTC")
    if _zone(zone) is None:
        raise ApiError(INVALID, f"`{zone[:100]}` is not a CustomTimeZone: say one such as Europe/Berlin")


def _files(configuration: Mapping[str, Any], delimiter: bytes) -> Files:
    bucket = str(configuration.get("BucketARN", "")).rpartition(":")[2]
    if not _BUCKET.fullmatch(bucket) or ".." in bucket:
        raise ApiError(INVALID, f"`{bucket[:100]}` is not a bucket's name")
    hints = configuration.get("BufferingHints") or {}
    size, seconds = hints.get("SizeInMBs", DEFAULT_MB), hints.get("IntervalInSeconds", DEFAULT_SECONDS)
    if not (isinstance(size, int) and 1 <= size <= 128 and isinstance(seconds, int) and 0 <= seconds <= 900):
        raise ApiError(INVALID, "SizeInMBs is 1 to 128, IntervalInSeconds 0 to 900")
    compression = configuration.get("CompressionFormat", "UNCOMPRESSED")
    parquet, schema_topic = _conversion(configuration.get("DataFormatConversionConfiguration") or {})
    if compression not in ("UNCOMPRESSED", "GZIP") or (parquet and compression == "GZIP"):
        raise ApiError(INVALID, f"CompressionFormat is UNCOMPRESSED or, not with Parquet, GZIP: got `{compression}`")
    if (configuration.get("DynamicPartitioningConfiguration") or {}).get("Enabled"):
        raise ApiError(INVALID, "dynamic partitioning is not done here: use a topic and a function")
    extension = str(configuration.get("FileExtension") or "")
    if extension and not re.fullmatch(r"\.[A-Za-z0-9!._-]{1,40}", extension):
        raise ApiError(INVALID, f"`{extension[:50]}` is not a FileExtension")
    prefix = _prefix(str(configuration.get("Prefix") or ""))
    gzip = compression == "GZIP"
    zone = _zone(str(configuration.get("CustomTimeZone") or "UTC")) or UTC
    return Files(bucket, prefix, size * MEGABYTE, seconds, gzip, parquet, schema_topic, delimiter, extension, zone)


def _zone(name: str) -> tzinfo | None:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown, no name at all, a folder of zones
        return None


def _prefix(prefix: str) -> str:
    if (
        len(prefix) > 1024
        or prefix.startswith("/")
        or "\0" in prefix
        or any(p in ("..", ".") for p in prefix.split("/"))
    ):
        raise ApiError(INVALID, f"`{prefix[:100]}` is not a prefix: it would lead out of the bucket")
    for kind, text in _EXPRESSION.findall(prefix):
        if (kind, text) == ("firehose", "random-string"):
            continue
        if kind != "timestamp" or re.sub("|".join(_LETTERS), "", text).strip("-_/. '="):
            raise ApiError(
                INVALID,
                f"`!{{{kind}:{text}}}` cannot be part of a prefix here: timestamp: with yyyy MM dd HH mm ss can, and "
                "firehose:random-string",
            )
    return prefix


def _moment(pattern: str, moment: datetime) -> str:
    """
    >>> _moment("yyyy/MM/dd", datetime(2026, 11, 5, tzinfo=UTC))
    '2026/11/05'
    """
    for letters, ours in _LETTERS.items():
        pattern = pattern.replace(letters, moment.strftime(ours))
    return pattern.replace("'", "")


def _conversion(configuration: Mapping[str, Any]) -> tuple[bool, str]:
    if not configuration or not configuration.get("Enabled", True):
        return False, ""
    serializer = (configuration.get("OutputFormatConfiguration") or {}).get("Serializer") or {}
    if "ParquetSerDe" not in serializer:
        raise ApiError(INVALID, "records are converted to Parquet only: Serializer needs a ParquetSerDe")
    return True, str((configuration.get("SchemaConfiguration") or {}).get("TableName") or "")


def _processing(configuration: Mapping[str, Any]) -> tuple[str, bytes]:
    """The function and the delimiter of a processing configuration."""
    function, delimiter = "", b""
    if not configuration.get("Enabled"):
        return function, delimiter
    for processor in configuration.get("Processors") or ():
        given = {one.get("ParameterName"): one.get("ParameterValue") for one in processor.get("Parameters") or ()}
        match processor.get("Type"):
            case "Lambda":
                # arn:aws:lambda:REGION:ACCOUNT:function:NAME, perhaps with a version behind it; or the name alone.
                arn = str(given.get("LambdaArn", "")).split(":")
                function = arn[6] if len(arn) > 6 else arn[-1]
            case "AppendDelimiterToRecord":
                delimiter = _delimiter(str(given.get("Delimiter", "\\n")))
            case other:
                raise ApiError(
                    INVALID, f"a processor of type `{other}` is not known here: Lambda, AppendDelimiterToRecord"
                )
    return function, delimiter


def _delimiter(text: str) -> bytes:
    r"""
    >>> _delimiter(r"\n"), _delimiter("\u2192")
    (b'\n', b'\xe2\x86\x92')
    """
    try:
        return text.encode().decode("unicode_escape").encode("latin-1")
    except UnicodeError:
        raise ApiError(
            INVALID, f"`{text[:20]}` is not a Delimiter: say \\n, \\t or the characters themselves"
        ) from None
