"""Plans and deployments: what would change, what is changing, and what has changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from headrace.coordinate.base import QueryDefinition
from headrace.coordinate.changes import project_files
from headrace.coordinate.deployments import Options
from headrace.coordinate.functions import function_texts, of_folder
from headrace.coordinate.how_far import lag_of, read_by
from headrace.deliver.alerts.definitions import Definition
from headrace.errors import NotFound, UsageError
from headrace.functions.files import FunctionFile, Problem
from headrace.server.endpoint import Endpoint, Handler, Parameter
from headrace.server.errors import json_response
from headrace.server.models.deploy import (
    BuildModel,
    ChangeModel,
    DeployAnswer,
    DeploymentModel,
    DeploymentsAnswer,
    DeployRequest,
    FunctionChangeModel,
    ItemModel,
    PlanAnswer,
    PlanRequest,
    RestoreRequest,
    ThrottleRequest,
)
from headrace.server.parameters import body_of, integer
from headrace.server.services import Services
from headrace.types import display_name
from headrace.views.change import Change, Plan
from headrace.views.difference import parse_gate
from headrace.views.versions import Deployment

MOST_LISTED = 1000


async def make_plan(request: Request, services: Services) -> Response:
    wanted = await body_of(request, services, PlanRequest)

    def describe(file: FunctionFile) -> tuple[FunctionFile, tuple[Problem, ...]]:
        """To look into a file of functions is to run it, which not everybody who may look at a plan may."""
        services.auth.check(request, "admin")
        return services.statements.describe(file)

    def run() -> PlanAnswer:
        files = _files(wanted.files, services)
        scratch = wanted.from_scratch and services.auth.identify(request, "read").may("admin")
        options = Options(in_place=wanted.in_place, describe=describe, strategy=wanted.strategy, from_scratch=scratch)
        alerts = [status.definition for status in services.alerts.statuses()]
        return plan_model(services.deployments.plan(files, options), alerts)

    return json_response(await services.run(run))


def _files(given: Mapping[str, str] | None, services: Services) -> Mapping[str, str]:
    """Those given; where there are no functions among them, the server's own."""
    if given is None:
        return project_files(services.project)
    if any(of_folder(name) for name in given):
        return given
    return {**given, **function_texts(services.project.folder)}


def plan_model(plan: Plan, alerts: Sequence[Definition]) -> PlanAnswer:
    return PlanAnswer(
        changes=[_change_model(plan, change, alerts) for change in plan.changes],
        pending=len(plan.pending),
        refused=len(plan.refused),
        replays=plan.replays,
        seconds=plan.seconds(plan.replays),
        rows_per_second=round(plan.figures.rows_per_second, 1),
        functions=[
            FunctionChangeModel(
                one.name.lower(), one.file, one.verdict, [display_name(name) for name in one.used_by], one.topic
            )
            for one in plan.functions
        ],
        from_scratch=list(plan.from_scratch),
    )


def _change_model(plan: Plan, change: Change, alerts: Sequence[Definition]) -> ChangeModel:
    name = display_name(change.name)
    return ChangeModel(
        name=name,
        kind=change.kind,
        verdict=change.verdict,
        reason=change.reason,
        hint=change.hint,
        file=change.wanted.file if change.wanted else "",
        line=change.wanted.line if change.wanted else 0,
        column=change.wanted.column if change.wanted else 0,
        dependents=[display_name(name) for name in change.dependents],
        alerts=[alert.name for alert in alerts if alert.subject.casefold() == name.casefold()],
        replays=change.replays,
        seconds=plan.seconds(change.replays),
        offsets={str(partition): offset for partition, offset in change.offsets.items()},
        warnings=list(change.warnings),
        version=change.number,
        serving=change.before,
        statement=change.statement,
        old_statement=change.old_statement,
        strategy=change.strategy,
        because=display_name(change.because) if change.because else "",
    )


async def start_deployment(request: Request, services: Services) -> Response:
    wanted = await body_of(request, services, DeployRequest)
    options = Options(
        who=services.auth.caller(request, wanted.who[:100]),
        strategy=wanted.strategy,
        max_changed=_gate(wanted.gate),
        approve=wanted.approve,
        in_place=wanted.in_place,
        start=wanted.start,
        rows_per_second=wanted.rows_per_second,
    )

    def run() -> DeployAnswer:
        started = services.deployments.start(_files(wanted.files, services), options)
        # All files could be read and planned, and they are what runs or is being built.
        services.problems.clear()
        return DeployAnswer(None if started is None else deployment_model(started, services))

    return json_response(await services.run(run))


def _gate(text: str | None) -> float | None:
    try:
        return parse_gate(text) if text else None
    except ValueError:
        raise UsageError(f"`{(text or '')[:40]}` is not a gate", hint="such as max_changed=0.1%") from None


async def restore_deployment(request: Request, services: Services) -> Response:
    number, wanted = _number(request), await body_of(request, services, RestoreRequest)
    options = Options(
        who=services.auth.caller(request, wanted.who[:100]),
        max_changed=_gate(wanted.gate),
        approve=wanted.approve,
        rows_per_second=wanted.rows_per_second,
    )

    def run() -> DeployAnswer:
        started = services.deployments.restore(number, wanted.before, options)
        return DeployAnswer(None if started is None else deployment_model(started, services))

    return json_response(await services.run(run))


def deployment_model(deployment: Deployment, services: Services) -> DeploymentModel:
    queries = [] if deployment.over else services.deployments.queries(deployment)
    return DeploymentModel(
        id=deployment.id,
        stage=deployment.stage,
        detail=deployment.detail,
        who=deployment.who,
        strategy=deployment.strategy,
        started_ms=deployment.started_ms,
        changed_ms=deployment.changed_ms,
        paused=deployment.paused,
        approved=deployment.approved,
        max_changed=deployment.max_changed,
        rows_per_second=deployment.rows_per_second,
        items=[
            ItemModel(display_name(i.name), i.verdict, i.number, i.before, i.statement, i.old_statement)
            for i in deployment.items
        ],
        builds=_builds(queries, services),
        warnings=deployment.warnings,
        comparisons=deployment.comparisons,
    )


def _builds(queries: Sequence[QueryDefinition], services: Services) -> list[BuildModel]:
    """The progress of queries, inputs first. A query that has read all that its inputs have written so far has not read
    more of the whole than they have: without that its progress would fall whenever they write."""
    done: dict[str, float] = {}
    found = []
    for query in queries:
        build = _build_model(query, services)
        own = build.read / (build.read + build.left) if build.read + build.left else 1.0
        inputs = [done[topic] for topic in query.reads.values() if topic in done]
        done[query.sink_topic] = min([own, *(own * below for below in inputs)])
        found.append(msgspec.structs.replace(build, done=round(done[query.sink_topic], 4)))
    return found


def _build_model(query: QueryDefinition, services: Services) -> BuildModel:
    status = services.engine.status(query.id)
    left, rate = lag_of(services.log, query), status.rows_per_second if status else 0.0
    read = read_by(services.log, query)
    if query.layer == "batch" and status is not None:
        read, left = status.rows, status.lag
    return BuildModel(
        name=display_name(query.sink),
        query_id=query.id,
        state=status.state if status else ("stopped" if query.wanted == "stopped" else "starting"),
        read=read,
        left=left,
        rows_per_second=round(rate, 1),
        seconds_left=round(left / rate, 1) if rate and left else (0.0 if not left else None),
    )


async def list_deployments(request: Request, services: Services) -> Response:
    limit = integer(request, "limit", MOST_LISTED, 0, MOST_LISTED)

    def run() -> DeploymentsAnswer:
        found = services.catalog.deployments()[::-1][:limit]
        return DeploymentsAnswer([_briefly(deployment_model(deployment, services)) for deployment in found])

    return json_response(await services.run(run))


def _briefly(deployment: DeploymentModel) -> DeploymentModel:
    """Without the rows that differed: whoever looks each second would be sent megabytes."""
    counts = [{**comparison, "samples": [], "windows": []} for comparison in deployment.comparisons]
    return msgspec.structs.replace(deployment, comparisons=counts)


async def show_deployment(request: Request, services: Services) -> Response:
    number = _number(request)
    return json_response(await services.run(lambda: deployment_model(services.deployments.get(number), services)))


def _number(request: Request) -> int:
    text = str(request.path_params["deployment"])
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise NotFound(f"deployment `{text[:40]}` does not exist", hint="headrace history lists all")
    return int(text)


async def pause_deployment(request: Request, services: Services) -> Response:
    number = _number(request)
    return await answer(services, lambda: services.deployments.pause(number, True))


async def resume_deployment(request: Request, services: Services) -> Response:
    number = _number(request)
    return await answer(services, lambda: services.deployments.pause(number, False))


async def throttle_deployment(request: Request, services: Services) -> Response:
    number, wanted = _number(request), await body_of(request, services, ThrottleRequest)
    return await answer(services, lambda: services.deployments.throttle(number, wanted.rows_per_second))


async def approve_deployment(request: Request, services: Services) -> Response:
    number = _number(request)
    return await answer(services, lambda: services.deployments.approve(number))


async def cancel_deployment(request: Request, services: Services) -> Response:
    number = _number(request)
    return await answer(services, lambda: services.deployments.cancel(number))


async def answer(services: Services, change: Callable[[], Deployment]) -> Response:
    return json_response(await services.run(lambda: deployment_model(change(), services)))


def _changing(path: str, handler: Handler, summary: str, body: object = None) -> Endpoint:
    return Endpoint(
        method="POST",
        path=f"/v1/deployments/{{deployment}}/{path}",
        handler=handler,
        summary=summary,
        role="admin",
        body=body,
        answers={200: DeploymentModel},
    )


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/v1/plan",
        handler=make_plan,
        summary="What the project's files would change, statement by statement. Changes nothing",
        body=PlanRequest,
        changes=True,
        answers={200: PlanAnswer},
    ),
    Endpoint(
        method="GET",
        path="/v1/deployments",
        handler=list_deployments,
        summary="The newest deployments: who, when, what, and how it went; without the rows that differed",
        parameters=(Parameter("limit", f"at most; {MOST_LISTED:,} if it does not say"),),
        answers={200: DeploymentsAnswer},
    ),
    Endpoint(
        method="POST",
        path="/v1/deployments",
        handler=start_deployment,
        summary="Make what runs what the files say: built beside, compared, switched",
        role="admin",
        body=DeployRequest,
        answers={200: DeployAnswer},
    ),
    Endpoint(
        method="GET",
        path="/v1/deployments/{deployment}",
        handler=show_deployment,
        summary="One deployment, with its progress",
        answers={200: DeploymentModel},
    ),
    _changing("pause", pause_deployment, "Stop building for now"),
    _changing("resume", resume_deployment, "Go on building"),
    _changing("throttle", throttle_deployment, "How many rows a second its build may read", ThrottleRequest),
    _changing("approve", approve_deployment, "Switch although the versions differ"),
    _changing("cancel", cancel_deployment, "Throw away what was built; what served, serves"),
    Endpoint(
        method="POST",
        path="/v1/deployments/{deployment}/restore",
        handler=restore_deployment,
        summary="Deploy again what a deployment defined, or what there was before it",
        role="admin",
        body=RestoreRequest,
        answers={200: DeployAnswer},
    ),
)
