"""Events sent with a question: `?view=V&key=K` answers with the row that includes them.

The wait is over as soon as the view has the events in it, so the row is the one they made, or a later one.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from headrace.access.rights import Resource
from headrace.coordinate.including import Inclusion
from headrace.errors import Refused, UsageError
from headrace.server.endpoint import Parameter
from headrace.server.errors import json_response
from headrace.server.models.events import EventsAnswer
from headrace.server.models.sql import ViewAnswer
from headrace.server.names import resolve
from headrace.server.parameters import number
from headrace.server.query import pull_plan
from headrace.server.services import Intake, Services
from headrace.server.views import rows_sql
from headrace.sql.plan import PushQuery

LOOK_S, LONGEST_LOOK_S = 0.002, 0.02
MAX_TIMEOUT_S = 60.0
ROWS = 100
KEY = "key."

PARAMETERS = (
    Parameter("view", "answer with rows of this view, as soon as it has the events in it"),
    Parameter("key", "the key of the row; `key.COLUMN` for each where the key has several columns"),
    Parameter("timeout", "seconds to wait for the view", {"type": "number", "default": 10, "maximum": MAX_TIMEOUT_S}),
)


@dataclass(frozen=True, slots=True)
class Question:
    request: Request
    services: Services
    inclusion: Inclusion
    sql: str
    seconds: float


def question_of(request: Request, intake: Intake) -> Question | None:
    """What is asked besides, checked before anything is taken."""
    name = request.query_params.get("view")
    if name is None:
        return None
    if not isinstance(intake, Services):
        raise Refused("this port takes events only, and answers no questions", hint="use the server's own port")
    services = intake
    known = {view.name for view in services.catalog.views()}
    view = resolve(name, dict.fromkeys(known), "table", "SHOW TABLES lists what there is")
    if request.query_params.get("acks", "all") not in ("all", "-1"):
        raise UsageError("a view includes only what is durable", hint="leave `acks` out")
    services.auth.check_each(request, "read", [Resource("view", view)])
    source = services.followers.view(view).source
    sql = rows_sql(source, _keys(request, [column.name for column in source.key]), ROWS)
    topic = services.log.topic(request.path_params["topic"]).name
    inclusion = Inclusion(services.log, services.catalog, lambda: services.followers.view(view), topic)
    inclusion.check()
    return Question(request, services, inclusion, sql, number(request, "timeout", 10.0, 0.001, MAX_TIMEOUT_S))


def _keys(request: Request, columns: list[str]) -> list[tuple[str, str]]:
    given = [(name.removeprefix(KEY), value) for name, value in request.query_params.items() if name.startswith(KEY)]
    alone = request.query_params.get("key")
    if alone is not None and len(columns) == 1:
        given.append((columns[0], alone))
    elif alone is not None:
        raise UsageError(
            f"the view's key has {len(columns)} columns: {', '.join(columns)}", hint="give `key.COLUMN` for each"
        )
    if not given:
        raise UsageError("which row of the view?", hint="`key=…`, or `key.COLUMN=…` for each column of its key")
    return given


async def answer(question: Question, taken: EventsAnswer) -> Response:
    services = question.services
    included = await _wait(question, taken)
    plan = await question.request.app.state.plans.plan(question.sql, services)
    rows = None if isinstance(plan, PushQuery) or not included else await pull_plan(services, plan, question.sql)
    body = msgspec.structs.replace(taken, view=ViewAnswer(included, rows))
    nothing_taken = taken.rejected and not taken.accepted and not taken.duplicates
    return json_response(body, 422 if nothing_taken else 200)


async def _wait(question: Question, taken: EventsAnswer) -> bool:
    await question.services.run(question.inclusion.begin, taken.positions)
    loop = asyncio.get_running_loop()
    end, pause = loop.time() + question.seconds, LOOK_S
    while True:
        if await question.services.run(question.inclusion.is_complete):
            return True
        if loop.time() >= end or question.services.stopping.is_set():
            return False
        await asyncio.sleep(pause)
        pause = min(LONGEST_LOOK_S, pause * 1.5)
