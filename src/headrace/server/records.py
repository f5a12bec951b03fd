"""`GET /v1/topics/{topic}/records`: a topic read page by page, with long poll. `POST`: a batch of records with keys,
headers, times and partitions of their own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response

from headrace.deliver.arrow import ArrowPage, read_arrow
from headrace.deliver.browse import (
    Page,
    offsets_at,
    page_json,
    position_text,
    read_after,
    read_before,
)
from headrace.deliver.filtering import Where, compile_where
from headrace.errors import UsageError
from headrace.log.base import Topic
from headrace.server.answers import LargeAnswer
from headrace.server.endpoint import NDJSON, Endpoint, Parameter
from headrace.server.models.events import RecordsPage
from headrace.server.parameters import choice, integer, number
from headrace.server.services import Services
from headrace.server.touched import topic_of_path
from headrace.store.arrivals import topic_ends
from headrace.store.base import Position

MAX_RECORDS = 10_000
MAX_PAGE_BYTES = 16 * 1024 * 1024
MAX_WAIT_S = 60.0
ARROW = "application/vnd.apache.arrow.stream"
NEXT = "headrace-next"
"""The header that says where the next page begins, for the formats whose body cannot."""
DAMAGE = "headrace-damage"
"""The header that says, as JSON text, what cannot be read behind the records of a page."""

WAIT = Parameter("wait", "seconds to wait for the first record (long poll)", {"type": "number", "maximum": MAX_WAIT_S})
MAX_BYTES = Parameter(
    "max_bytes",
    "about how many bytes of records at most; one record always comes",
    {"type": "integer", "default": 4 * 1024 * 1024, "maximum": MAX_PAGE_BYTES},
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to read: from these offsets on, or the last before them."""

    topic: Topic
    offsets: dict[int, int]
    direction: Literal["after", "before"]
    limit: int
    max_bytes: int
    where: Where | None


async def read_records(request: Request, services: Services) -> Response:
    form = choice(request, "format", "json", "json", "ndjson", "arrow")
    wait = number(request, "wait", 0.0, 0.0, MAX_WAIT_S)
    wanted = await services.run(_wanted, request, services)
    if wait and wanted.direction == "after":
        position = Position(0, _others_at_end(services, wanted))
        await services.delivery.tails.wait(wanted.topic.name, position, wait)
    if form == "arrow":
        return arrow_answer(await services.run(_read_arrow, services, wanted), services)
    if wanted.where is None:
        page = await services.run(_read, services, wanted)
    else:
        what = f"records of {wanted.topic.name}: {request.url.query}"
        page = await services.run_search(what, _read, services, wanted)
    if form == "ndjson":
        body = b"".join(record + b"\n" for record in page.records)
        damage = {DAMAGE: json.dumps(page.damage.message)} if page.damage else {}
        return LargeAnswer(body, services.answers, NDJSON, {NEXT: position_text(page.next)} | damage)
    return LargeAnswer(page_json(page), services.answers)


def _wanted(request: Request, services: Services) -> Wanted:
    topic = services.log.topic(request.path_params["topic"])
    limit = integer(request, "limit", 500, 1, MAX_RECORDS)
    max_bytes = integer(request, "max_bytes", 4 * 1024 * 1024, 1, MAX_PAGE_BYTES)
    before = "before" in request.query_params
    condition = request.query_params.get("where")
    return Wanted(
        topic,
        offsets_at(services.log, topic.name, **_place(request)),
        "before" if before else "after",
        limit,
        max_bytes,
        compile_where(topic, condition) if condition else None,
    )


def _place(request: Request) -> dict[str, Any]:
    """What the address says about where to begin."""
    given = request.query_params
    place: dict[str, Any] = {name: given[name] for name in ("at", "before", "time", "from") if name in given}
    return place | {name: integer(request, name, 0) for name in ("partition", "offset") if name in given}


def _others_at_end(services: Services, wanted: Wanted) -> dict[int, int]:
    """Partitions nobody asks about have nothing to wait for."""
    ends = topic_ends(services.log.snapshot(), wanted.topic.name)
    return {number: wanted.offsets.get(number, 1 << 62) for number in range(len(ends))}


def _read(services: Services, wanted: Wanted) -> Page:
    read = read_after if wanted.direction == "after" else read_before
    return read(services.log, wanted.topic.name, wanted.offsets, wanted.limit, wanted.max_bytes, wanted.where)


def _read_arrow(services: Services, wanted: Wanted) -> ArrowPage:
    if wanted.direction == "before" or wanted.where is not None:
        raise UsageError("Arrow is read forwards, and all of it", hint="take format=json for `before` and `where`")
    return read_arrow(services.log, wanted.topic.name, wanted.offsets, wanted.limit, wanted.max_bytes)


def arrow_answer(page: ArrowPage, services: Services) -> Response:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, page.schema) as writer:
        for batch in page.batches:
            writer.write_batch(batch)
    body = sink.getvalue().to_pybytes()
    return LargeAnswer(body, services.answers, ARROW, {NEXT: position_text(page.next)})


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/v1/topics/{topic}/records",
        handler=read_records,
        touches=topic_of_path,
        summary="Records of a topic page by page; with `wait`, those to come",
        answers={200: (RecordsPage, NDJSON, ARROW)},
        parameters=(
            Parameter("partition", "only this one", {"type": "integer", "minimum": 0}),
            Parameter("from", "earliest or latest", {"enum": ["earliest", "latest"], "default": "earliest"}),
            Parameter("offset", "begin at this offset of the partition", {"type": "integer", "minimum": 0}),
            Parameter("time", "begin at the first record of that time or later: ISO 8601, or milliseconds"),
            Parameter("at", "begin where a page said `next`: PARTITION:OFFSET,…; with `@EPOCH`, only in that log"),
            Parameter("before", "the last records before a page's `from`, or before `latest`"),
            Parameter("where", "only records for which this SQL condition holds; a page may then be empty but `cut`"),
            Parameter("limit", f"how many, at most {MAX_RECORDS}", {"type": "integer", "default": 500}),
            MAX_BYTES,
            WAIT,
            Parameter("format", "json, ndjson or arrow", {"enum": ["json", "ndjson", "arrow"], "default": "json"}),
        ),
    ),
)
