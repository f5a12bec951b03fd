"""Firehose's actions, as AWS's clients call them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from headrace.collect.kinesis.account import name_in_arn
from headrace.collect.kinesis.actions import Action
from headrace.collect.kinesis.errors import INTERNAL, INVALID, VALIDATION, ApiError
from headrace.collect.kinesis.numbers import sequence_number
from headrace.collect.kinesis.put import Entry, Failed, Result
from headrace.collect.kinesis.wire import Model, Moment
from headrace.coordinate.firehose.definition import EXTENDED, HTTP, S3, DeliveryNote, plan_of
from headrace.log.schema import is_topic_name
from headrace.server.services import Services

DESTINATION_ID = "destinationId-000000000001"
LONGEST_NAME = 64
MOST_RECORDS = 500
MOST_TAGS = 50


class Tag(Model, frozen=True, kw_only=True):
    key: str
    value: str = ""


class KinesisSource(Model, frozen=True, kw_only=True):
    kinesis_stream_arn: str = msgspec.field(name="KinesisStreamARN")


class CreateDeliveryStream(Model, frozen=True, kw_only=True):
    delivery_stream_name: str
    delivery_stream_type: str = "DirectPut"
    kinesis_stream_source_configuration: KinesisSource | None = None
    s3_destination_configuration: dict[str, Any] | None = msgspec.field(name=S3, default=None)
    extended_s3_destination_configuration: dict[str, Any] | None = msgspec.field(name=EXTENDED, default=None)
    http_endpoint_destination_configuration: dict[str, Any] | None = msgspec.field(name=HTTP, default=None)
    tags: list[Tag] = []


class OfDelivery(Model, frozen=True, kw_only=True):
    delivery_stream_name: str


class ListDeliveryStreams(Model, frozen=True, kw_only=True):
    limit: int = 10
    delivery_stream_type: str | None = None
    exclusive_start_delivery_stream_name: str = ""


class UpdateDestination(OfDelivery, frozen=True, kw_only=True):
    current_delivery_stream_version_id: str
    destination_id: str
    s3_destination_update: dict[str, Any] | None = msgspec.field(name="S3DestinationUpdate", default=None)
    extended_s3_destination_update: dict[str, Any] | None = msgspec.field(
        name="ExtendedS3DestinationUpdate", default=None
    )
    http_endpoint_destination_update: dict[str, Any] | None = msgspec.field(
        name="HttpEndpointDestinationUpdate", default=None
    )


class FirehoseRecord(Model, frozen=True, kw_only=True):
    data: bytes


class PutRecord(OfDelivery, frozen=True, kw_only=True):
    record: FirehoseRecord


class PutRecordBatch(OfDelivery, frozen=True, kw_only=True):
    records: list[FirehoseRecord]


class TagDelivery(OfDelivery, frozen=True, kw_only=True):
    tags: list[Tag] = []
    tag_keys: list[str] = []


def create_delivery_stream(services: Services, request: CreateDeliveryStream) -> dict[str, Any]:
    name = request.delivery_stream_name
    if not is_topic_name(name) or len(name) > LONGEST_NAME:
        raise ApiError(VALIDATION, f"`{name[:100]}` is not a delivery stream's name: letters, digits, `.`, `_` and `-`")
    given = {
        S3: request.s3_destination_configuration,
        EXTENDED: request.extended_s3_destination_configuration,
        HTTP: request.http_endpoint_destination_configuration,
    }
    chosen = [(kind, one) for kind, one in given.items() if one is not None]
    if len(chosen) != 1:
        raise ApiError(INVALID, f"a delivery stream has one destination of {S3}, {EXTENDED}, {HTTP}")
    source = request.kinesis_stream_source_configuration
    if (request.delivery_stream_type == "KinesisStreamAsSource") != (source is not None) or (
        request.delivery_stream_type not in ("DirectPut", "KinesisStreamAsSource")
    ):
        raise ApiError(INVALID, "DeliveryStreamType is DirectPut, or KinesisStreamAsSource with its configuration")
    now = services.clock.now_ms()
    note = DeliveryNote(
        name=name,
        made=now,
        created_ms=now,
        updated_ms=now,
        source=name_in_arn(source.kinesis_stream_arn) if source else "",
        destination=chosen[0][0],
        configuration=chosen[0][1],
        tags={tag.key: tag.value for tag in request.tags},
    )
    services.deliveries.create(note)
    return {"DeliveryStreamARN": _arn(services, name)}


def _arn(services: Services, name: str) -> str:
    settings = services.project.settings.kinesis
    return f"arn:aws:firehose:{settings.region}:{settings.account}:deliverystream/{name}"


def describe_delivery_stream(services: Services, request: OfDelivery) -> dict[str, Any]:
    note = services.deliveries.get(request.delivery_stream_name)
    described: dict[str, Any] = {
        "DeliveryStreamName": note.name,
        "DeliveryStreamARN": _arn(services, note.name),
        "DeliveryStreamStatus": "ACTIVE",
        "DeliveryStreamType": "KinesisStreamAsSource" if note.source else "DirectPut",
        "VersionId": str(note.version),
        "CreateTimestamp": Moment(note.created_ms),
        "LastUpdateTimestamp": Moment(note.updated_ms),
        "Destinations": [{"DestinationId": DESTINATION_ID, **_destination(note)}],
        "HasMoreDestinations": False,
    }
    if note.source:
        settings = services.project.settings.kinesis
        arn = f"arn:aws:kinesis:{settings.region}:{settings.account}:stream/{note.source}"
        described["Source"] = {"KinesisStreamSourceDescription": {"KinesisStreamARN": arn}}
    error = services.deliveries.error(note.name)
    if error is not None:
        described["FailureDescription"] = {"Type": "UNKNOWN_ERROR", "Details": error}
    return {"DeliveryStreamDescription": described}


def _destination(note: DeliveryNote) -> dict[str, Any]:
    if note.destination == HTTP:
        return {"HttpEndpointDestinationDescription": note.configuration}
    files = plan_of(note.destination, note.configuration).files
    assert files is not None
    hints = {"SizeInMBs": files.size // (1024 * 1024), "IntervalInSeconds": int(files.seconds)}
    whole = {
        "CompressionFormat": "UNCOMPRESSED",
        "EncryptionConfiguration": {"NoEncryptionConfig": "NoEncryption"},
        **note.configuration,
        "BufferingHints": hints,
    }
    plain = ("RoleARN", "BucketARN", "Prefix", "BufferingHints", "CompressionFormat", "EncryptionConfiguration")
    simple = {name: whole[name] for name in plain if name in whole}
    return {"S3DestinationDescription": simple, "ExtendedS3DestinationDescription": whole}


def list_delivery_streams(services: Services, request: ListDeliveryStreams) -> dict[str, Any]:
    names = [
        note.name
        for note in services.deliveries.all()
        if note.name > request.exclusive_start_delivery_stream_name
        and request.delivery_stream_type in (None, "KinesisStreamAsSource" if note.source else "DirectPut")
    ]
    limit = max(1, min(request.limit, 10_000))
    return {"DeliveryStreamNames": names[:limit], "HasMoreDeliveryStreams": len(names) > limit}


def delete_delivery_stream(services: Services, request: OfDelivery) -> dict[str, Any]:
    services.deliveries.delete(request.delivery_stream_name)
    return {}


def update_destination(services: Services, request: UpdateDestination) -> dict[str, Any]:
    note = services.deliveries.get(request.delivery_stream_name)
    if request.current_delivery_stream_version_id != str(note.version):
        raise ApiError("ConcurrentModificationException", f"the delivery stream is at version {note.version}")
    given = {
        S3: request.s3_destination_update,
        EXTENDED: request.extended_s3_destination_update,
        HTTP: request.http_endpoint_destination_update,
    }
    changes = {kind: one for kind, one in given.items() if one is not None}
    # A plain S3 destination and an extended one are the same thing, described in more or fewer words.
    same = {S3, EXTENDED} if note.destination != HTTP else {HTTP}
    if len(changes) != 1 or not set(changes) <= same or request.destination_id != DESTINATION_ID:
        raise ApiError(INVALID, "an update is of the one destination that the delivery stream has")
    [(kind, change)] = changes.items()
    changed = msgspec.structs.replace(
        note,
        destination=kind,
        configuration=note.configuration | change,
        version=note.version + 1,
        updated_ms=services.clock.now_ms(),
    )
    services.deliveries.change(changed)
    return {}


# Records


def entries_of(services: Services, request: PutRecord | PutRecordBatch) -> list[Entry]:
    """As records of the buffer."""
    settings = services.project.settings.kinesis
    records = [request.record] if isinstance(request, PutRecord) else request.records
    if not 0 < len(records) <= MOST_RECORDS:
        raise ApiError(VALIDATION, f"a call has 1 to {MOST_RECORDS} records, got {len(records)}")
    largest = max(len(record.data) for record in records)
    if largest > settings.max_firehose_record_bytes:
        raise ApiError(INVALID, f"a record has at most {settings.max_firehose_record_bytes} bytes, got {largest}")
    if sum(len(record.data) for record in records) > settings.max_firehose_request_bytes:
        raise ApiError(INVALID, f"the records of a call have at most {settings.max_firehose_request_bytes} bytes")
    return [Entry(data=record.data, partition_key="") for record in records]


def put_answer(request: PutRecord | PutRecordBatch, topic_id: int, results: Sequence[Result]) -> dict[str, Any]:
    if isinstance(request, PutRecord):
        [result] = results
        if isinstance(result, Failed):
            raise ApiError(result.name, result.message, 500 if result.name == INTERNAL else 400)
        return {"RecordId": sequence_number(topic_id, *result), "Encrypted": False}
    answers = [
        {"ErrorCode": one.name, "ErrorMessage": one.message}
        if isinstance(one, Failed)
        else {"RecordId": sequence_number(topic_id, *one)}
        for one in results
    ]
    failed = sum("ErrorCode" in one for one in answers)
    return {"FailedPutCount": failed, "Encrypted": False, "RequestResponses": answers}


# Tags


def tag_delivery_stream(services: Services, request: TagDelivery) -> dict[str, Any]:
    return _retag(services, request.delivery_stream_name, {tag.key: tag.value for tag in request.tags}, [])


def untag_delivery_stream(services: Services, request: TagDelivery) -> dict[str, Any]:
    return _retag(services, request.delivery_stream_name, {}, request.tag_keys)


def _retag(services: Services, name: str, added: dict[str, str], removed: Sequence[str]) -> dict[str, Any]:
    note = services.deliveries.get(name)
    tags = {key: value for key, value in (note.tags | added).items() if key not in removed}
    if len(tags) > MOST_TAGS:
        raise ApiError(INVALID, f"a delivery stream has at most {MOST_TAGS} tags")
    services.deliveries.write(msgspec.structs.replace(note, tags=tags))
    return {}


def list_tags(services: Services, request: OfDelivery) -> dict[str, Any]:
    tags = services.deliveries.get(request.delivery_stream_name).tags
    return {"Tags": [{"Key": key, "Value": value} for key, value in sorted(tags.items())], "HasMoreTags": False}


def refuse_encryption(services: Services, request: OfDelivery) -> None:
    services.deliveries.get(request.delivery_stream_name)
    raise ApiError(INVALID, "this server does not encrypt: encrypt the disk, or the data before it is sent")


ACTIONS: dict[str, Action] = {
    "CreateDeliveryStream": Action("admin", CreateDeliveryStream, create_delivery_stream),
    "DescribeDeliveryStream": Action("read", OfDelivery, describe_delivery_stream),
    "ListDeliveryStreams": Action("read", ListDeliveryStreams, list_delivery_streams),
    "DeleteDeliveryStream": Action("admin", OfDelivery, delete_delivery_stream),
    "UpdateDestination": Action("admin", UpdateDestination, update_destination),
    "PutRecord": Action("write", PutRecord, None),
    "PutRecordBatch": Action("write", PutRecordBatch, None),
    "TagDeliveryStream": Action("admin", TagDelivery, tag_delivery_stream),
    "UntagDeliveryStream": Action("admin", TagDelivery, untag_delivery_stream),
    "ListTagsForDeliveryStream": Action("read", OfDelivery, list_tags),
    "StartDeliveryStreamEncryption": Action("admin", OfDelivery, refuse_encryption),
}
