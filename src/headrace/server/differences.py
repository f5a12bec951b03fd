"""Two versions of a view, compared when somebody asks: begun, looked at page by page, and taken away as a file."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headrace.coordinate.differences import Difference
from headrace.errors import UsageError
from headrace.server.endpoint import Endpoint, Parameter
from headrace.server.errors import error_body, json_response, logger
from headrace.server.models.base import Error
from headrace.server.models.differences import CompareRequest, DifferenceModel, DifferenceRowsAnswer
from headrace.server.names import resolve
from headrace.server.parameters import body_of, choice, flag, integer, moment, number
from headrace.server.pump import SEND_S
from headrace.server.services import Services
from headrace.server.sever import sever
from headrace.server.versions import version_name
from headrace.server.why import key_value
from headrace.store.json_rows import to_json_rows
from headrace.types import display_name
from headrace.views.difference import KINDS, Kind
from headrace.views.difference_files import FORMATS, MEDIA_TYPES, Format, file_pieces
from headrace.views.difference_rows import DifferenceRows, Filters

MOST_ROWS = 1000
KEY, PREFIX = "key.", "prefix."


async def compare_versions(request: Request, services: Services) -> Response:
    name = version_name(request, services)
    wanted = await body_of(request, services, CompareRequest)
    started = await services.run(services.differences.start, name, wanted.old, wanted.new)
    return json_response(difference_model(started), 202)


async def show_difference(request: Request, services: Services) -> Response:
    name = version_name(request, services)
    return json_response(difference_model(services.differences.get(name, _number(request))))


async def cancel_difference(request: Request, services: Services) -> Response:
    name = version_name(request, services)
    return json_response(difference_model(services.differences.cancel(name, _number(request))))


async def list_difference_rows(request: Request, services: Services) -> Response:
    rows = _rows(request, services)
    filters = _filters(request, rows)
    limit, after = integer(request, "limit", 100, 1, MOST_ROWS), integer(request, "after", 0)

    def look() -> DifferenceRowsAnswer:
        found, more = rows.page(filters, after, limit)
        return DifferenceRowsAnswer(found, rows.count(filters), more)

    return json_response(await services.run_explanation(look))


async def export_difference(request: Request, services: Services) -> Response:
    rows = _rows(request, services)
    filters, format_ = _filters(request, rows), choice(request, "format", "csv", *FORMATS)
    made: Format = next(one for one in FORMATS if one == format_)
    pieces = file_pieces(rows, filters, made, flag(request, "spreadsheet"))
    found = services.differences.get(version_name(request, services), _number(request))
    name = f"{display_name(found.view)}-v{found.old}-v{found.new}.{made}"
    return Download(services.differences.watched(found, pieces), services, MEDIA_TYPES[made], name)


class Download(Response):
    """A file in pieces, each made when the one before was taken. One that is not whole does not look as if it were: the
    connection is cut."""

    def __init__(self, pieces: Iterator[bytes], services: Services, media_type: str, name: str) -> None:
        super().__init__(media_type=media_type)
        self.headers["content-disposition"] = f"attachment; filename*=UTF-8''{quote(name, safe='')}"
        self.headers["cache-control"] = "no-store"
        self._pieces, self._services = pieces, services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(name, value) for name, value in self.raw_headers if name != b"content-length"]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        try:
            while (piece := await self._services.run_explanation(next, self._pieces, None)) is not None:
                async with asyncio.timeout(SEND_S):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        except Exception as error:
            logger.warning("a difference was not sent whole: %s", error_body(error)["message"])
            sever(scope)
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def difference_model(found: Difference) -> DifferenceModel:
    rows, error = found.rows, found.error
    return DifferenceModel(
        id=found.id,
        view=display_name(found.view),
        old=found.old,
        new=found.new,
        state=found.state,
        error=None if error is None else Error(error.code, error.message, error.detail, error.hint),
        comparison=None if found.comparison is None else msgspec.to_builtins(found.comparison),
        keys=[] if rows is None else [display_name(name) for name in rows.keys],
        columns=[] if rows is None else rows.columns,
        windowed=rows is not None and _is_windowed(rows),
        made_ms=found.made_ms,
        found=found.found,
    )


def _number(request: Request) -> int:
    text = request.path_params["number"]
    return int(text) if text.isdecimal() and len(text) < 10 else 0


def _rows(request: Request, services: Services) -> DifferenceRows:
    return services.differences.done(version_name(request, services), _number(request))[1]


def _is_windowed(rows: DifferenceRows) -> bool:
    return rows.old.window is not None or rows.new.window is not None


def _filters(request: Request, rows: DifferenceRows) -> Filters:
    given = request.query_params
    for name in given:
        if name not in KNOWN and not name.startswith((KEY, PREFIX)):
            raise UsageError(f"`{name[:40]}` is no filter", hint=f"a key's column is given as {KEY}{name[:40]}=VALUE")
    key = tuple(_key(name, text, rows) for name, text in given.multi_items() if name.startswith(KEY))
    times = [None if (text := given.get(name)) is None else moment(text, name) for name in ("window", "from", "to")]
    if any(time is not None for time in times) and not _is_windowed(rows):
        raise UsageError("this view has no windows", hint="choose rows by their key")
    begun = [(_resolved(name, PREFIX, rows), text) for name, text in given.multi_items() if name.startswith(PREFIX)]
    begun += [(_next_column(key, rows), text) for text in given.getlist("prefix")]
    least = number(request, "min_delta", -1.0, 0.0, math.inf)
    return Filters(
        kinds=_kinds(given.getlist("kind")),
        key=key,
        prefixes=tuple(begun),
        window=times[0],
        between=(times[1], times[2]),
        column=_column(given.get("column"), rows),
        min_delta=None if least < 0 else least,
    )


def _kinds(given: list[str]) -> tuple[Kind, ...]:
    named = [text.strip() for texts in given for text in texts.split(",")]
    for text in named:
        if text not in KINDS:
            raise UsageError(f"`kind` must be {', '.join(KINDS[:-1])} or {KINDS[-1]}, got `{text[:40]}`")
    return tuple(kind for kind in KINDS if kind in named)


def _key(name: str, text: str, rows: DifferenceRows) -> tuple[str, Any]:
    found = _resolved(name, KEY, rows)
    columns = {column.name: column for source in (rows.old, rows.new) for column in source.key}
    [[value]] = to_json_rows([columns[found]], [[key_value(columns[found], text)]])
    return found, msgspec.to_builtins(value)


def _resolved(name: str, before: str, rows: DifferenceRows) -> str:
    hint = f"the key's columns are given as {before}NAME=TEXT"
    return resolve(name.removeprefix(before), rows.keys, "key column", hint)


def _next_column(key: tuple[tuple[str, Any], ...], rows: DifferenceRows) -> str:
    """A prefix is of the first of the key's columns that is not given itself."""
    given = {name for name, _ in key}
    for name in rows.keys:
        if name not in given:
            return name
    raise UsageError("`prefix` is of a key's column, and all of them are given")


def _column(text: str | None, rows: DifferenceRows) -> str | None:
    if text is None:
        return None
    names = {name.casefold(): name for name in rows.columns}
    return names[resolve(text.casefold(), names, "column", "one that both versions have")]


FILTERS = (
    Parameter("kind", "changed, only_old, only_new; several by commas"),
    Parameter(f"{KEY}NAME", "rows whose key has this value in the column NAME"),
    Parameter(f"{PREFIX}NAME", "rows whose key begins with this in the column NAME"),
    Parameter("prefix", "the same in the first column that is not given by its value"),
    Parameter("window", "a moment: windows that begin then, or contain it"),
    Parameter("from", "windows that end at or after this moment"),
    Parameter("to", "windows that begin at or before this moment"),
    Parameter("column", "rows in which this column changed"),
    Parameter("min_delta", "rows in which a number, or that of `column`, changed by this much", {"type": "number"}),
)

KNOWN = {*(filter_.name for filter_ in FILTERS), "limit", "after", "format", "spreadsheet", "key"}

ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/v1/views/{view}/diff",
        handler=compare_versions,
        summary="Compare two versions of a view, at the same records, row by row",
        role="admin",
        body=CompareRequest,
        answers={202: DifferenceModel},
    ),
    Endpoint(
        method="GET",
        path="/v1/views/{view}/diff/{number}",
        handler=show_difference,
        summary="How far a comparison is, and what it found",
        answers={200: DifferenceModel},
    ),
    Endpoint(
        method="POST",
        path="/v1/views/{view}/diff/{number}/cancel",
        handler=cancel_difference,
        summary="End a comparison that waits or runs",
        role="admin",
        answers={200: DifferenceModel},
    ),
    Endpoint(
        method="GET",
        path="/v1/views/{view}/diff/{number}/rows",
        handler=list_difference_rows,
        summary="The rows that differ, a page at a time",
        answers={200: DifferenceRowsAnswer},
        parameters=(
            *FILTERS,
            Parameter("limit", "how many at most", {"type": "integer", "default": 100, "maximum": MOST_ROWS}),
            Parameter("after", "go on from here: `next` of the page before", {"type": "integer"}),
        ),
    ),
    Endpoint(
        method="GET",
        path="/v1/views/{view}/diff/{number}/export",
        handler=export_difference,
        summary="All rows that differ, as a file",
        answers={200: tuple(MEDIA_TYPES.values())},
        parameters=(
            *FILTERS,
            Parameter("format", "csv, json or parquet", {"enum": list(FORMATS), "default": "csv"}),
            Parameter("spreadsheet", "keep texts that look like formulas as texts, in CSV", {"type": "boolean"}),
        ),
    ),
)
