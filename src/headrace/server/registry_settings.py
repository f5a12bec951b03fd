"""The schema registry's compatibility checks, levels and modes, as Confluent's API has them."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from headrace.coordinate.dependents import broken_by
from headrace.log.registry.base import GLOBAL, Config, Mode, RegistryError
from headrace.log.registry.registry import Incompatibility
from headrace.server.endpoint import Parameter
from headrace.server.models.registry import (
    CompatibilityAnswer,
    ConfigAnswer,
    ConfigRequest,
    ConfigWritten,
    ModeModel,
    SchemaRequest,
)
from headrace.server.parameters import body_of, flag
from headrace.server.registry_common import NORMALIZE, answer, registry_endpoint, version_number, wanted_schema
from headrace.server.services import Services

VERBOSE = Parameter("verbose", "say what is wrong", {"type": "boolean", "default": False})
FORCE = Parameter("force", "even where there are schemas already", {"type": "boolean", "default": False})
DEFAULT_TO_GLOBAL = Parameter(
    "defaultToGlobal", "the global one where there is no own", {"type": "boolean", "default": False}
)


async def check_all(request: Request, services: Services) -> Response:
    return await _check(request, services, "all")


async def check_version(request: Request, services: Services) -> Response:
    return await _check(request, services, version_number(request))


async def _check(request: Request, services: Services, version: int | str | None) -> Response:
    schema = wanted_schema(await body_of(request, services, SchemaRequest))
    subject, verbose = request.path_params["subject"], flag(request, "verbose")
    normalize = flag(request, "normalize")

    def check() -> tuple[Incompatibility, ...]:
        return services.registry.check(subject, schema, version, normalize)

    found = await services.run(check)
    if not verbose:
        return answer({"is_compatible": not found})
    messages = [line for one in found for line in one.lines()]
    return answer(CompatibilityAnswer(not found, messages, broken_by(services.catalog, subject) if found else []))


# Levels


def _subject(request: Request) -> str:
    subject: str = request.path_params.get("subject", GLOBAL)
    return subject


async def show_config(request: Request, services: Services) -> Response:
    services.registry.refresh()
    subject = _subject(request)
    own = subject != GLOBAL and not flag(request, "defaultToGlobal")
    return answer(_config(services.registry.settings.config(subject, own)))


async def set_config(request: Request, services: Services) -> Response:
    body = await body_of(request, services, ConfigRequest)
    level = body.compatibility or body.compatibility_level
    if level is None and body.normalize is None:
        raise RegistryError(42203, "there is no `compatibility` in the body")
    settings = services.registry.settings
    config = await services.run(settings.set_config, _subject(request), level, body.normalize)
    return answer(ConfigWritten(config.compatibility, config.normalize))


async def delete_config(request: Request, services: Services) -> Response:
    return answer(_config(await services.run(services.registry.settings.delete_config, _subject(request))))


def _config(config: Config) -> ConfigAnswer:
    return ConfigAnswer(config.compatibility, config.normalize)


async def show_subject_config(request: Request, services: Services) -> Response:
    return await show_config(request, services)


async def set_subject_config(request: Request, services: Services) -> Response:
    return await set_config(request, services)


async def delete_subject_config(request: Request, services: Services) -> Response:
    return await delete_config(request, services)


# Modes


async def show_mode(request: Request, services: Services) -> Response:
    services.registry.refresh()
    subject = _subject(request)
    own = subject != GLOBAL and not flag(request, "defaultToGlobal")
    return answer(_mode(services.registry.settings.mode(subject, own)))


async def set_mode(request: Request, services: Services) -> Response:
    body = await body_of(request, services, ModeModel)
    set_ = services.registry.settings.set_mode
    return answer(_mode(await services.run(set_, _subject(request), body.mode, flag(request, "force"))))


async def delete_mode(request: Request, services: Services) -> Response:
    return answer(_mode(await services.run(services.registry.settings.delete_mode, _subject(request))))


def _mode(mode: Mode) -> ModeModel:
    return ModeModel(mode)


async def show_subject_mode(request: Request, services: Services) -> Response:
    return await show_mode(request, services)


async def set_subject_mode(request: Request, services: Services) -> Response:
    return await set_mode(request, services)


async def delete_subject_mode(request: Request, services: Services) -> Response:
    return await delete_mode(request, services)


ENDPOINTS = (
    registry_endpoint(
        method="POST",
        path="/registry/compatibility/subjects/{subject}/versions",
        handler=check_all,
        summary="Would a schema be accepted for a subject?",
        answers={200: CompatibilityAnswer},
        body=SchemaRequest,
        parameters=(NORMALIZE, VERBOSE),
    ),
    registry_endpoint(
        method="POST",
        path="/registry/compatibility/subjects/{subject}/versions/{version}",
        handler=check_version,
        summary="Is a schema compatible with one version?",
        answers={200: CompatibilityAnswer},
        body=SchemaRequest,
        parameters=(NORMALIZE, VERBOSE),
    ),
    registry_endpoint(
        method="GET",
        path="/registry/config",
        handler=show_config,
        summary="The compatibility level of subjects without their own",
        answers={200: ConfigAnswer},
    ),
    registry_endpoint(
        method="PUT",
        path="/registry/config",
        handler=set_config,
        summary="Set the compatibility level of subjects without their own",
        answers={200: ConfigWritten},
        role="admin",
        body=ConfigRequest,
    ),
    registry_endpoint(
        method="DELETE",
        path="/registry/config",
        handler=delete_config,
        summary="Back to BACKWARD",
        answers={200: ConfigAnswer},
        role="admin",
    ),
    registry_endpoint(
        method="GET",
        path="/registry/config/{subject}",
        handler=show_subject_config,
        summary="A subject's compatibility level",
        answers={200: ConfigAnswer},
        parameters=(DEFAULT_TO_GLOBAL,),
    ),
    registry_endpoint(
        method="PUT",
        path="/registry/config/{subject}",
        handler=set_subject_config,
        summary="Set a subject's compatibility level",
        answers={200: ConfigWritten},
        role="admin",
        body=ConfigRequest,
    ),
    registry_endpoint(
        method="DELETE",
        path="/registry/config/{subject}",
        handler=delete_subject_config,
        summary="A subject follows the global level again",
        answers={200: ConfigAnswer},
        role="admin",
    ),
    registry_endpoint(
        method="GET",
        path="/registry/mode",
        handler=show_mode,
        summary="The mode of subjects without their own",
        answers={200: ModeModel},
    ),
    registry_endpoint(
        method="PUT",
        path="/registry/mode",
        handler=set_mode,
        summary="Set the mode of subjects without their own",
        answers={200: ModeModel},
        role="admin",
        body=ModeModel,
        parameters=(FORCE,),
    ),
    registry_endpoint(
        method="DELETE",
        path="/registry/mode",
        handler=delete_mode,
        summary="Back to READWRITE",
        answers={200: ModeModel},
        role="admin",
    ),
    registry_endpoint(
        method="GET",
        path="/registry/mode/{subject}",
        handler=show_subject_mode,
        summary="A subject's mode",
        answers={200: ModeModel},
        parameters=(DEFAULT_TO_GLOBAL,),
    ),
    registry_endpoint(
        method="PUT",
        path="/registry/mode/{subject}",
        handler=set_subject_mode,
        summary="Set a subject's mode",
        answers={200: ModeModel},
        role="admin",
        body=ModeModel,
        parameters=(FORCE,),
    ),
    registry_endpoint(
        method="DELETE",
        path="/registry/mode/{subject}",
        handler=delete_subject_mode,
        summary="A subject follows the global mode again",
        answers={200: ModeModel},
        role="admin",
    ),
)
