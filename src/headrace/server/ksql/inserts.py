"""`POST /inserts-stream`: rows for one stream or table, acknowledged one by one, in order."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from headrace.collect.base import Outcome, RawEvents
from headrace.collect.http.bodies import decompress, read_body
from headrace.errors import HeadraceError, NotFound, UsageError
from headrace.log.codecs.json_encode import to_json
from headrace.nearest import did_you_mean
from headrace.server.events import arrival
from headrace.server.ksql.errors import error_object, ksql_error
from headrace.server.ksql.formats import Arrays, Lines, format_for
from headrace.server.services import Services
from headrace.server.touched import AllowedSources, written_resource
from headrace.sql.source import Source, Sources
from headrace.structs import ready
from headrace.types import display_name


class Target(msgspec.Struct):
    target: str
    properties: dict[str, Any] = {}


async def insert_rows(request: Request, services: Services) -> Response:
    limits = services.body_limits
    with services.budget.share() as share:
        body = await read_body(request.receive, request.headers.get("content-length"), limits, share)
        text = decompress(body, request.headers.get("content-encoding", ""), limits.max_bytes)
        first, _, rows = text.partition(b"\n")
        try:
            allowed = AllowedSources(services.catalog, services.auth, request, "write", written_resource)
            source = _source(first, allowed)
            outcome = await _send(rows, source, request, services) if rows.strip() else None
        except HeadraceError as error:
            return ksql_error(error)
    lines = _acknowledged(rows, outcome)
    if isinstance(format_for(request.headers.get("accept", ""), Lines()), Arrays):
        return Response(to_json(lines), media_type=Arrays.media_type)
    return Response(b"".join(to_json(line) + b"\n" for line in lines), media_type=Lines.media_type)


def _source(first: bytes, catalog: Sources) -> Source:
    try:
        wanted = msgspec.json.decode(first, type=ready(Target)).target
    except msgspec.MsgspecError as error:
        raise UsageError(f"the first line must say where to: {error}", hint='{"target": "MY_STREAM"}') from error
    quoted = len(wanted) > 2 and wanted[0] == wanted[-1] == "`"
    name = wanted[1:-1] if quoted else wanted.upper()
    source = catalog.source(name)
    if source is None:
        known = [source.name for source in catalog.sources()]
        hint = did_you_mean(name, known, "SHOW STREAMS; lists all", display_name)
        raise NotFound(f"stream `{display_name(name)}` does not exist", hint=hint)
    if source.query is not None:
        raise UsageError(f"`{display_name(name)}` is written by {source.query}, not by hand")
    return source


async def _send(rows: bytes, source: Source, request: Request, services: Services) -> Outcome:
    from_ = f"ksql {request.client.host}" if request.client else "ksql"
    raw = RawEvents(topic=source.topic, body=rows, form="ndjson", source=from_)
    taken = await services.run(services.gates.collect, raw, arrival(request, len(rows)))
    outcome = await asyncio.wrap_future(taken)
    services.metrics.collected(source.topic, outcome)
    return outcome


def _acknowledged(rows: bytes, outcome: Outcome | None) -> list[dict[str, Any]]:
    """One for each row; those that were refused say why."""
    if outcome is None:
        return []
    refused = {rejected.index: rejected.reason for rejected in outcome.rejected}
    count = outcome.accepted + outcome.duplicates + len(refused)
    return [
        {"status": "error", "seq": seq, **error_object(UsageError(refused[seq]))}
        if seq in refused
        else {"status": "ok", "seq": seq}
        for seq in range(count)
    ]
