"""Topics: what there is, what is in it, and what did not get in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from headrace.access.rights import Resource
from headrace.coordinate.describe import (
    CONFIG,
    altered_topic,
    check_unused,
    describe_topic,
    new_topic,
)
from headrace.coordinate.describe import delete_records as forget_records
from headrace.coordinate.needed import refuse_needed
from headrace.deliver.base import FeedEvent
from headrace.deliver.browse import Page, chosen, offsets_at_time, read_after, read_before
from headrace.deliver.tail import tail
from headrace.errors import UsageError
from headrace.log.base import Log, Topic
from headrace.log.codecs.json_encode import to_json
from headrace.log.missing import of_each
from headrace.server.answers import LargeAnswer, json_list
from headrace.server.endpoint import EVENT_STREAM, NDJSON, Endpoint, Parameter
from headrace.server.errors import json_response
from headrace.server.models.base import KeyedColumn
from headrace.server.models.events import Events
from headrace.server.models.topics import (
    AlterTopic,
    DeletedRecords,
    NewTopic,
    PartitionModel,
    TopicModel,
    Topics,
    TopicSettings,
)
from headrace.server.parameters import body_of, flag, integer, moment
from headrace.server.services import Services
from headrace.server.sse import stream
from headrace.server.touched import by_handler, topic_of_path
from headrace.store.arrivals import topic_ends
from headrace.structs import ready
from headrace.types import Column, display_name

MAX_EVENTS = 1000
LIMIT = Parameter("limit", f"how many, at most {MAX_EVENTS}", {"type": "integer", "default": 50})


async def list_topics(request: Request, services: Services) -> Response:
    internal = flag(request, "internal")

    def describe() -> Topics:
        shown = (topic for topic in services.log.topics() if internal or not topic.internal)
        topics = [topic for topic in shown if services.auth.allows(request, Resource("topic", topic.name))]
        return Topics(list(of_each(topics, partial(topic_model, services))))

    return json_response(await services.run(describe))


async def show_topic(request: Request, services: Services) -> Response:
    topic = services.log.topic(request.path_params["topic"])
    return json_response(await services.run(topic_model, services, topic))


async def create_topic(request: Request, services: Services) -> Response:
    wanted = await body_of(request, services, NewTopic)

    def create() -> TopicModel:
        spec = new_topic(wanted.name, wanted.columns, wanted.partitions, wanted.kind, _config(wanted))
        return topic_model(services, services.log.create_topic(spec))

    return json_response(await services.run(create), 201)


async def alter_topic(request: Request, services: Services) -> Response:
    wanted = await body_of(request, services, AlterTopic)

    def alter() -> TopicModel:
        topic = services.log.topic(request.path_params["topic"])
        spec = altered_topic(topic, wanted.add_columns, _config(wanted))
        return topic_model(services, services.log.alter_topic(spec))

    return json_response(await services.run(alter))


def _config(wanted: TopicSettings) -> dict[str, Any]:
    """What is said of the configuration; the rest stays as it is."""
    return {name: value for name in CONFIG if (value := getattr(wanted, name)) is not None}


async def delete_topic(request: Request, services: Services) -> Response:
    def delete() -> None:
        topic = services.log.topic(request.path_params["topic"])
        check_unused(topic, services.catalog, services.queues)
        services.log.delete_topic(topic.name)

    await services.run(delete)
    return Response(status_code=204)


async def delete_records(request: Request, services: Services) -> Response:
    """Forget what is before an offset of a partition, or before the end."""
    partition = integer(request, "partition", 0) if "partition" in request.query_params else None
    before = integer(request, "before", 0) if "before" in request.query_params else None

    def delete() -> list[PartitionModel]:
        topic = services.log.topic(request.path_params["topic"])
        ends = dict(enumerate(services.log.stats(topic.name).partitions))
        chosen = ends if partition is None else {partition: ends[partition]} if partition in ends else {}
        wanted = {number: end.end if before is None else before for number, end in chosen.items()}
        refuse_needed(services.log, services.catalog, topic.name, wanted)
        left = forget_records(services.log, topic, partition, before)
        return [PartitionModel(number, end.start, end.end) for number, end in enumerate(left)]

    return json_response(DeletedRecords(await services.run(delete)))


def topic_model(services: Services, topic: Topic) -> TopicModel:
    described = describe_topic(
        services.log,
        services.catalog,
        topic,
        services.rates.topic(topic.name),
        services.dead_letters.counts()[topic.name],
    )
    return msgspec.convert(described, ready(TopicModel))


def keyed_columns(key: tuple[Column, ...], value: tuple[Column, ...]) -> list[KeyedColumn]:
    return [
        KeyedColumn(display_name(column.name), str(column.type), is_key)
        for columns, is_key in ((key, True), (value, False))
        for column in columns
    ]


async def list_events(request: Request, services: Services) -> Response:
    limit = integer(request, "limit", 50, 0, MAX_EVENTS)
    partition = integer(request, "partition", 0) if "partition" in request.query_params else None
    start = request.query_params.get("from", "newest")

    def read() -> bytes:
        name = request.path_params["topic"]
        services.log.topic(name)
        page = _page(services.log, name, start, partition, limit)
        records = reversed(page.records) if start == "newest" else page.records
        return b'{"events":' + json_list(records) + b',"cut":' + to_json(page.cut) + b"}"

    return LargeAnswer(await services.run(read), services.answers)


def _page(log: Log, name: str, start: str, partition: int | None, limit: int) -> Page:
    """From where somebody says, in words, as an offset or as a time."""
    ends = topic_ends(log.snapshot(), name)
    numbers = chosen(ends, partition)
    if start == "newest":
        return read_before(log, name, {number: ends[number].end for number in numbers}, limit)
    if start == "oldest":
        return read_after(log, name, {number: ends[number].start for number in numbers}, limit)
    if not (start.isascii() and start.isdecimal() and len(start) < 19):
        return read_after(log, name, offsets_at_time(log, name, moment(start, "from"), partition), limit)
    if len(numbers) > 1:
        raise UsageError(f"an offset needs a partition: `{name}` has {len(ends)}", hint="add ?partition=0")
    [number] = numbers
    return read_after(log, name, {number: max(ends[number].start, int(start))}, limit)


async def tail_topic(request: Request, services: Services) -> Response:
    partition = integer(request, "partition", 0) if "partition" in request.query_params else None
    oldest = request.query_params.get("from") == "oldest"

    def begin() -> AsyncIterator[FeedEvent]:
        return tail(services.delivery, request.path_params["topic"], from_beginning=oldest, partition=partition)

    return stream(await services.run(begin), request, services, "tail")


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/v1/topics",
        handler=list_topics,
        touches=by_handler,
        summary="All topics",
        answers={200: Topics},
        parameters=(Parameter("internal", "Headrace's own too", {"type": "boolean", "default": False}),),
    ),
    Endpoint(
        method="POST",
        path="/v1/topics",
        handler=create_topic,
        summary="Make a topic",
        role="admin",
        body=NewTopic,
        answers={201: TopicModel},
    ),
    Endpoint(
        method="GET",
        path="/v1/topics/{topic}",
        handler=show_topic,
        touches=topic_of_path,
        summary="One topic",
        answers={200: TopicModel},
    ),
    Endpoint(
        method="PATCH",
        path="/v1/topics/{topic}",
        handler=alter_topic,
        summary="Add columns to a topic, or change its configuration",
        role="admin",
        body=AlterTopic,
        answers={200: TopicModel},
    ),
    Endpoint(
        method="DELETE",
        path="/v1/topics/{topic}/records",
        handler=delete_records,
        summary="Forget the records before an offset, or all there are now",
        role="admin",
        answers={200: DeletedRecords},
        parameters=(
            Parameter("partition", "only of this one", {"type": "integer", "minimum": 0}),
            Parameter("before", "the oldest offset to keep; the end by default", {"type": "integer", "minimum": 0}),
        ),
    ),
    Endpoint(
        method="DELETE",
        path="/v1/topics/{topic}",
        handler=delete_topic,
        summary="Delete a topic that no stream or table is declared over",
        role="admin",
        answers={204: None},
    ),
    Endpoint(
        method="GET",
        path="/v1/topics/{topic}/events",
        handler=list_events,
        touches=topic_of_path,
        summary="Records of a topic",
        answers={200: Events},
        parameters=(
            LIMIT,
            Parameter(
                "from", "newest, oldest, an offset, or a time (ISO 8601)", {"type": "string", "default": "newest"}
            ),
            Parameter("partition", "only this one", {"type": "integer"}),
        ),
    ),
    Endpoint(
        method="GET",
        path="/v1/topics/{topic}/tail",
        handler=tail_topic,
        touches=topic_of_path,
        summary="New records of a topic, live",
        answers={200: (EVENT_STREAM, NDJSON)},
        parameters=(
            Parameter("from", "newest, or oldest for all that the log holds", {"enum": ["newest", "oldest"]}),
            Parameter("partition", "only this one", {"type": "integer"}),
        ),
    ),
)
