"""Groups over HTTP: join, poll, commit, leave; and looking at groups, resetting and deleting them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Any

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from headrace.access.rights import Resource
from headrace.coordinate.groups import describe_group, describe_groups, reset_offsets
from headrace.errors import Fenced
from headrace.log.base import Subscription, TopicPartition
from headrace.log.codecs.json_encode import to_json
from headrace.log.schema import is_topic_name
from headrace.server.answers import LargeAnswer, json_list
from headrace.server.consumers import Member, Polled, offsets_by_topic, shown, subscription
from headrace.server.endpoint import Endpoint, Parameter
from headrace.server.errors import json_response
from headrace.server.long_poll import long_poll
from headrace.server.models.log import (
    CommitRequest,
    ConsumedAnswer,
    ConsumerModel,
    GroupModel,
    Groups,
    NewConsumer,
    OffsetModel,
    PartitionOf,
    ResetRequest,
)
from headrace.server.parameters import body_of, integer, moment, number
from headrace.server.records import MAX_BYTES, MAX_PAGE_BYTES, MAX_RECORDS, MAX_WAIT_S, WAIT
from headrace.server.services import Services
from headrace.server.touched import by_handler
from headrace.store.base import Position

LOOK_AGAIN_S = 1.0
"""How long a poll waits before it asks the group again: partitions may have moved meanwhile."""


# Groups


async def list_groups(request: Request, services: Services) -> Response:
    return json_response({"groups": await services.run(describe_groups, services.log)})


async def show_group(request: Request, services: Services) -> Response:
    found = await services.run(services.log.group, request.path_params["group"])
    return json_response(describe_group(found))


def _partitions(partitions: tuple[TopicPartition, ...] | frozenset[TopicPartition]) -> list[PartitionOf]:
    return [PartitionOf(at.topic, at.partition) for at in sorted(partitions)]


async def delete_group(request: Request, services: Services) -> Response:
    await services.run(services.log.delete_group, request.path_params["group"])
    return Response(status_code=204)


async def reset_group(request: Request, services: Services) -> Response:
    wanted = await body_of(request, services, ResetRequest)
    name = request.path_params["group"]

    def reset() -> dict[str, Any]:
        time_ms = None if wanted.time is None else moment(str(wanted.time), "time")
        given = None if wanted.offsets is None else _by_partition(wanted.offsets)
        offsets = reset_offsets(services.log, name, wanted.to, time_ms, given, wanted.topics)
        services.log.reset_group(name, offsets, wanted.force)
        return describe_group(services.log.group(name))

    return json_response(await services.run(reset))


def _by_partition(offsets: list[OffsetModel]) -> dict[TopicPartition, int]:
    return {TopicPartition(one.topic, one.partition): one.offset for one in offsets}


# Members


async def join_group(request: Request, services: Services) -> Response:
    wanted = await body_of(request, services, NewConsumer)
    topics = subscription(wanted.topics)
    services.auth.check_each(request, "read", _subscribed(topics))
    member = await services.run(
        services.members.join,
        request.path_params["group"],
        topics,
        wanted.start,
        wanted.client,
        wanted.session_timeout_s,
        wanted.id,
    )
    # One that is in already may read others.
    services.auth.check_each(request, "read", _subscribed(member.topics))
    return json_response(await services.run(consumer_model, member), 201)


def consumer_model(member: Member) -> ConsumerModel:
    return ConsumerModel(
        member.id,
        member.group,
        shown(member.topics),
        member.session_timeout_s,
        _partitions(member.consumer.assignment()),
    )


def _subscribed(topics: Subscription) -> Iterable[Resource | None]:
    """Return what a member reads; a pattern is nothing that a key with scopes may name."""
    return [Resource("topic", one) if is_topic_name(one) else None for one in shown(topics)]


def topics_of_member(connection: HTTPConnection, services: Services) -> Iterable[Resource | None]:
    return _subscribed(_member(connection, services).topics)


def _member(request: HTTPConnection, services: Services) -> Member:
    return services.members.member(request.path_params["group"], request.path_params["consumer"])


async def consume(request: Request, services: Services) -> Response:
    member = _member(request, services)
    limit = integer(request, "limit", 500, 1, MAX_RECORDS)
    max_bytes = integer(request, "max_bytes", 4 * 1024 * 1024, 1, MAX_PAGE_BYTES)
    numbered = integer(request, "poll", 0) if "poll" in request.query_params else None
    async with member.lock:
        try:
            polled = await long_poll(
                request,
                services,
                number(request, "wait", 0.0, 0.0, MAX_WAIT_S),
                partial(services.run, services.members.poll, member, numbered, limit, max_bytes),
                partial(_news, services, member),
                lambda polled: bool(polled.records),
            )
        except Fenced:
            await services.run(services.members.leave, member)
            raise
        finally:
            member.heard = services.clock.monotonic()
    return LargeAnswer(_consumed(polled), services.answers)


def _consumed(polled: Polled) -> bytes:
    offsets = [{"topic": at.topic, "partition": at.partition, "offset": to} for at, to in polled.offsets.items()]
    tail = to_json({"offsets": offsets, "cut": polled.cut})
    return b'{"records":' + json_list(polled.records) + b"," + tail[1:]


async def _news(services: Services, member: Member, seconds: float) -> None:
    """Records in a partition it has, or time to look whether it has others."""
    seconds = min(seconds, LOOK_AGAIN_S, member.session_timeout_s / 3)
    here = {at: member.consumer.position(at) for at in member.consumer.assignment()}
    waits = []
    for topic, offsets in offsets_by_topic(here).items():
        # Other members' partitions are no news.
        ends = services.log.snapshot().ends.get(topic, ())
        position = Position(0, {partition: offsets.get(partition, 1 << 62) for partition in range(len(ends))})
        waits.append(asyncio.ensure_future(services.delivery.tails.wait(topic, position, seconds)))
    try:
        if waits:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(seconds)
    finally:
        for wait in waits:
            wait.cancel()


async def _wanted_offsets(request: Request, services: Services) -> CommitRequest:
    wanted = await body_of(request, services, CommitRequest)
    services.auth.check_each(request, "write", [Resource("topic", one.topic) for one in wanted.offsets or ()])
    return wanted


async def commit_offsets(request: Request, services: Services) -> Response:
    wanted = await _wanted_offsets(request, services)
    member = _member(request, services)
    offsets = None if wanted.offsets is None else _by_partition(wanted.offsets)
    async with member.lock:
        await services.run(member.consumer.commit, offsets)
    return Response(status_code=204)


async def seek(request: Request, services: Services) -> Response:
    wanted = await _wanted_offsets(request, services)
    member = _member(request, services)

    def go() -> list[OffsetModel]:
        for one in wanted.offsets or ():
            member.consumer.seek(TopicPartition(one.topic, one.partition), one.offset)
        return [
            OffsetModel(at.topic, at.partition, member.consumer.position(at))
            for at in sorted(member.consumer.assignment())
        ]

    async with member.lock:
        return json_response(CommitRequest(await services.run(go)))


async def heartbeat(request: Request, services: Services) -> Response:
    member = _member(request, services)
    async with member.lock:
        await services.run(member.consumer.heartbeat)
        return json_response(await services.run(consumer_model, member))


async def leave_group(request: Request, services: Services) -> Response:
    member = _member(request, services)
    async with member.lock:
        await services.run(services.members.leave, member)
    return Response(status_code=204)


GROUP, CONSUMER = "/v1/groups/{group}", "/v1/groups/{group}/consumers/{consumer}"

ENDPOINTS = (
    Endpoint(method="GET", path="/v1/groups", handler=list_groups, summary="All groups", answers={200: Groups}),
    Endpoint(
        method="GET",
        path=GROUP,
        handler=show_group,
        summary="One group: members, offsets, lag",
        answers={200: GroupModel},
    ),
    Endpoint(
        method="DELETE",
        path=GROUP,
        handler=delete_group,
        summary="Forget a group that has no members",
        role="admin",
        answers={204: None},
    ),
    Endpoint(
        method="POST",
        path=f"{GROUP}/reset",
        handler=reset_group,
        summary="Set a group's offsets; 409 while it has members, unless forced",
        role="admin",
        body=ResetRequest,
        answers={200: GroupModel},
    ),
    Endpoint(
        method="POST",
        path=f"{GROUP}/consumers",
        handler=join_group,
        touches=by_handler,
        summary="Join a group",
        role="write",
        body=NewConsumer,
        answers={201: ConsumerModel},
    ),
    Endpoint(
        method="GET",
        path=f"{CONSUMER}/records",
        handler=consume,
        touches=topics_of_member,
        summary="What is new in the consumer's partitions; with `wait`, what comes. Keeps it in the group",
        role="write",
        answers={200: (ConsumedAnswer,)},
        parameters=(
            Parameter("limit", f"how many, at most {MAX_RECORDS}", {"type": "integer", "default": 500}),
            MAX_BYTES,
            WAIT,
            Parameter("poll", "a number; the same again repeats an answer that was lost", {"type": "integer"}),
        ),
    ),
    Endpoint(
        method="POST",
        path=f"{CONSUMER}/offsets",
        handler=commit_offsets,
        touches=topics_of_member,
        summary="Commit offsets: those given, or all that was polled",
        role="write",
        body=CommitRequest,
        answers={204: None},
    ),
    Endpoint(
        method="POST",
        path=f"{CONSUMER}/seek",
        handler=seek,
        touches=topics_of_member,
        summary="Go on from other offsets; answers where the consumer is",
        role="write",
        body=CommitRequest,
        answers={200: CommitRequest},
    ),
    Endpoint(
        method="POST",
        path=f"{CONSUMER}/heartbeat",
        handler=heartbeat,
        touches=topics_of_member,
        summary="Stay in the group without polling",
        role="write",
        answers={200: ConsumerModel},
    ),
    Endpoint(
        method="DELETE",
        path=CONSUMER,
        handler=leave_group,
        touches=topics_of_member,
        summary="Leave the group",
        role="write",
        answers={204: None},
    ),
)
