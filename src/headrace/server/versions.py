"""Versions of views: which serves, which are kept, how they differ, and going back."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from headrace.coordinate.layers import refresh_ms
from headrace.errors import NotFound
from headrace.server.deployments import answer
from headrace.server.endpoint import Endpoint
from headrace.server.errors import json_response
from headrace.server.models.deploy import (
    DeploymentModel,
    DiffAnswer,
    LayersModel,
    RebuildRequest,
    RefreshRequest,
    VersionModel,
    VersionsAnswer,
)
from headrace.server.names import resolve
from headrace.server.parameters import body_of
from headrace.server.services import Services
from headrace.store.cuts import place_texts
from headrace.types import display_name
from headrace.views.versions import Version, query_ids


async def list_view_versions(request: Request, services: Services) -> Response:
    name = version_name(request, services)
    return json_response(await services.run(versions_model, name, services))


async def forget_view_versions(request: Request, services: Services) -> Response:
    """Give up what is kept for a rollback."""
    name = version_name(request, services)
    await services.run(services.deployments.forget, name)
    return json_response(await services.run(versions_model, name, services))


async def roll_back_view(request: Request, services: Services) -> Response:
    name = version_name(request, services)
    return await answer(services, lambda: services.deployments.rollback(name))


def versions_model(name: str, services: Services) -> VersionsAnswer:
    versions = services.catalog.versions(name)
    return VersionsAnswer(display_name(name), [_version_model(version, services) for version in versions])


def _version_model(version: Version, services: Services) -> VersionModel:
    keep_ms = int(services.project.settings.views.keep_hours * 3_600_000)
    rows = lag = None
    if version.source.kind == "table":
        try:
            rows = services.followers.version(version.name, version.number).count()
            lag = services.followers.lag(version.name, version.number)
        except NotFound:
            pass  # not opened yet, or just closed
    return VersionModel(
        version=version.number,
        state=version.state,
        topic=version.source.topic,
        query_id=version.source.query,
        deployment=version.deployment,
        since_ms=version.since_ms,
        served=list(version.served),
        kept_until_ms=version.since_ms + keep_ms if version.state == "retired" else None,
        rows=rows,
        lag=lag,
        statement=version.source.statement,
        strategy="kappa" if version.layers is None else "lambda",
        layers=_layers_model(version),
    )


def _layers_model(version: Version) -> LayersModel | None:
    layers = version.layers
    if layers is None:
        return None
    return LayersModel(
        cut=layers.cut if isinstance(layers.cut, int) else None,
        inputs={} if isinstance(layers.cut, int) else place_texts(layers.cut),
        batch_query=layers.batch,
        speed_query=layers.speed,
        batch_rows=None if layers.ends is None else sum(layers.ends.values()),
        made_ms=layers.made_ms or None,
        refresh_ms=refresh_ms(version.source.statement),
    )


async def refresh_view(request: Request, services: Services) -> Response:
    name = version_name(request, services)
    wanted = await body_of(request, services, RefreshRequest)
    who = services.auth.caller(request, wanted.who[:100])
    return await answer(services, lambda: services.deployments.refresh(name, who))


async def rebuild_views(request: Request, services: Services) -> Response:
    wanted = await body_of(request, services, RebuildRequest)
    known = {name: name for name in services.catalog.state.versions}
    hint = "headrace view list lists what there is"
    names = [resolve(name, known, "table", hint) for name in wanted.names] or failed_names(services)
    if not names:
        raise NotFound("no query has failed: there is nothing to compute again", hint="name what to compute again")
    who = services.auth.caller(request, wanted.who[:100])
    return await answer(services, lambda: services.deployments.rebuild(names, wanted.accept_loss, who))


def failed_names(services: Services) -> list[str]:
    """What serves and is written by a query that the engine has given up."""
    failed = {status.id for status in services.engine.all() if status.state == "failed"}
    catalog = services.catalog
    serving = ((name, catalog.state.versions[name].get(number)) for name, number in catalog.state.serving.items())
    return [name for name, version in serving if version is not None and failed & set(query_ids(version))]


async def show_view_diff(request: Request, services: Services) -> Response:
    name = display_name(version_name(request, services))
    for deployment in reversed(services.catalog.deployments()):
        for comparison in deployment.comparisons:
            if comparison.get("view") == name:
                return json_response(await services.run(_diff, deployment.id, name, services))
    return json_response(DiffAnswer(None, None))


def _diff(number: int, name: str, services: Services) -> DiffAnswer:
    """With its samples, wherever they are."""
    comparisons = services.deployments.get(number).comparisons
    return DiffAnswer(number, next(one for one in comparisons if one.get("view") == name))


def version_name(request: Request, services: Services) -> str:
    """A stream or table that is there, or of which a version is kept."""
    known = {name: name for name in services.catalog.state.versions}
    return resolve(request.path_params["view"], known, "table", "headrace view list lists what there is")


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/v1/views/{view}/versions",
        handler=list_view_versions,
        summary="The versions of a view, or of a stream",
        answers={200: VersionsAnswer},
    ),
    Endpoint(
        method="GET",
        path="/v1/views/{view}/diff",
        handler=show_view_diff,
        summary="How the versions of a view differed when they were last compared",
        answers={200: DiffAnswer},
    ),
    Endpoint(
        method="POST",
        path="/v1/views/{view}/rollback",
        handler=roll_back_view,
        summary="Let the versions serve again that did before the deployment which made this one's",
        role="admin",
        answers={200: DeploymentModel},
    ),
    Endpoint(
        method="POST",
        path="/v1/views/{view}/refresh",
        handler=refresh_view,
        summary="Compute the batch layer of a Lambda view again, up to now, and let both layers take over",
        role="admin",
        body=RefreshRequest,
        answers={200: DeploymentModel},
    ),
    Endpoint(
        method="POST",
        path="/v1/rebuild",
        handler=rebuild_views,
        summary="Compute streams and tables again from the log, as they are defined, with all that reads them",
        role="admin",
        body=RebuildRequest,
        answers={200: DeploymentModel},
    ),
    Endpoint(
        method="POST",
        path="/v1/views/{view}/forget",
        handler=forget_view_versions,
        summary="Give up the versions that are kept for a rollback",
        role="admin",
        answers={200: VersionsAnswer},
    ),
)
