"""Why this number?"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response

from headrace.access.rights import Resource
from headrace.coordinate.care_jobs import CareJob, Wish
from headrace.coordinate.subjects import source_subject, view_subject
from headrace.errors import UsageError
from headrace.functions.arrow_values import to_values
from headrace.log.codecs.formats import make_codec
from headrace.log.codecs.json_encode import from_json, to_json
from headrace.server.care_jobs import answer_with_job
from headrace.server.endpoint import Endpoint, Parameter
from headrace.server.errors import json_response
from headrace.server.models.trust import CareJobModel, WhyAnswer
from headrace.server.names import resolve
from headrace.server.parameters import choice, integer, moment
from headrace.server.services import Services
from headrace.server.touched import view_of_path
from headrace.server.trust_models import MOST_SHOWN, why_model
from headrace.server.views import find_view
from headrace.sql.casting import caster
from headrace.sql.coerce import castable
from headrace.sql.source import Source
from headrace.types import VARCHAR, Column, Varchar, display_name
from headrace.views.keyless import is_null
from headrace.views.reading import Reader
from headrace.views.subject import Subject
from headrace.views.why import Page, Why, why

LONGEST_S = 24 * 3600.0
"""Of an explanation that runs as a job."""
OURS = ("limit", "skip", "order", "window", "version")


async def explain_row(request: Request, services: Services) -> Response:
    view = find_view(request, services)
    version = integer(request, "version", view.version)
    subject = view_subject(services.catalog, view, version)
    services.auth.check_each(request, "read", (Resource("topic", one) for one in _topics_below(services, subject)))
    key = _key(request, subject.source, services)
    window = request.query_params.get("window")
    order = choice(request, "order", "newest", "newest", "oldest", "largest")
    page = Page(integer(request, "limit", 20, 0, MOST_SHOWN), integer(request, "skip", 0), order)  # type: ignore[arg-type]
    explain = partial(
        why,
        services.log,
        subject,
        services.followers.version(view.name, subject.version),
        key,
        None if window is None else moment(window, "window"),
        page,
        partial(source_subject, services.catalog),
        services.care.revisions,
    )
    if request.method == "POST":
        wish = Wish("why", view.name, text=str(request.query_params))
        return await answer_with_job(services.care_jobs.start(wish, partial(_explain_long, explain)), services)
    return json_response(why_model(await services.run_explanation(explain), services))


def _topics_below(services: Services, subject: Subject) -> set[str]:
    """Return the topics whose records an explanation may show: what the row is made of, down to what was sent in."""
    found: set[str] = set()
    todo = [subject]
    while todo:
        for source in todo.pop().query.inputs:
            below = None if source.topic in found else source_subject(services.catalog, source.name, source.topic)
            found.add(source.topic)
            todo += [] if below is None else [below]
    return found


def _explain_long(explain: Callable[..., Why], job: CareJob) -> Why:
    """Explain without a deadline, but for who cancels."""
    job.unit = "records looked at"
    done = threading.Event()
    readers: list[Reader] = []

    def watch() -> None:
        while not done.wait(0.2):
            for reader in readers[-1:]:
                if not job.progress(reader.looked_at, None):
                    reader.deadline = 0.0

    watching = threading.Thread(target=watch, name="headrace-why", daemon=True)
    watching.start()
    try:
        found = explain(seconds=LONGEST_S, watch=readers.append)
    finally:
        done.set()
        watching.join()
    job.progress(found.looked_at, None)
    return found


def _key(request: Request, source: Source, services: Services) -> dict[str, Any]:
    """The key's columns by name, as text, in the types they have."""
    ours = {*OURS, "key"} if services.auth.keys_set else set(OURS)
    columns = {column.name: column for column in source.key}
    given = {}
    for name, text in request.query_params.multi_items():
        if name not in ours:
            found = columns[resolve(name, columns, "key column", "the key's columns say which row is meant")]
            given[found.name] = key_value(found, text)
    missing = [display_name(name) for name in columns if name not in given]
    if missing:
        raise UsageError(f"`{missing[0]}` is missing", hint="all of the key's columns say which row is meant")
    return {name: given[name] for name in columns}


def key_value(column: Column, text: str) -> Any:
    """A key's value, as a row has it: arrays and structures are given as JSON."""
    if isinstance(column.type, Varchar):
        return text
    if is_null(text):
        return None
    try:
        value = caster(VARCHAR, column.type)(text) if castable(VARCHAR, column.type) else _from_json(column, text)
    except (ValueError, ArithmeticError):
        value = None
    if value is None:
        raise UsageError(f"`{display_name(column.name)}` is {column.type}, got `{text[:40]}`")
    return value


def _from_json(column: Column, text: str) -> Any:
    decoded = make_codec("JSON", "", (column,)).decode(pa.array([to_json({column.name: from_json(text)})]))
    return None if decoded.errors else to_values(decoded.batch.column(0), column.type)[0]


PARAMETERS = (
    Parameter("window", "a moment: the window that begins then, or contains it; the newest by default"),
    Parameter("version", "of the view; the one that serves by default", {"type": "integer"}),
    Parameter("limit", "how many records to show", {"type": "integer", "default": 20}),
    Parameter("skip", "how many to leave out before those", {"type": "integer", "default": 0}),
    Parameter("order", "which come first", {"enum": ["newest", "oldest", "largest"]}),
)

ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/v1/views/{view}/why",
        handler=explain_row,
        touches=view_of_path,
        summary="The records that made a row, and the row computed again; the key's columns are parameters",
        answers={200: WhyAnswer},
        parameters=PARAMETERS,
    ),
    Endpoint(
        method="POST",
        path="/v1/views/{view}/why",
        handler=explain_row,
        summary="The same as a job, for rows that are made of much: see /v1/care",
        role="read",
        answers={202: CareJobModel},
        operation="start_explanation",
        parameters=PARAMETERS,
    ),
)
