"""The schema registry's subjects and schemas, as Confluent's API has them."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from headrace.coordinate.dependents import with_broken
from headrace.log.registry.base import SCHEMA_TYPES, RegistryError, schema_not_found
from headrace.log.registry.registry import Incompatible
from headrace.server.endpoint import Parameter
from headrace.server.models.registry import Registered, SchemaAnswer, SchemaRequest, VersionOf
from headrace.server.parameters import body_of, flag, integer
from headrace.server.registry_common import (
    CONTENT_TYPE,
    DELETED,
    FORMAT,
    NORMALIZE,
    PERMANENT,
    answer,
    described,
    registry_endpoint,
    schema_answer,
    version_number,
    wanted_schema,
)
from headrace.server.services import Services

_ALL = 1 << 31
DELETED_ONLY = Parameter("deletedOnly", "only softly deleted ones", {"type": "boolean", "default": False})
NEWEST = Parameter("latestOnly", "the newest version of each subject", {"type": "boolean", "default": False})
PREFIX = Parameter("subjectPrefix", "only subjects that begin with it")
PAGE = (
    Parameter("offset", "how many to leave out", {"type": "integer", "default": 0}),
    Parameter("limit", "how many at most; -1 for all", {"type": "integer", "default": -1}),
)


def _page(request: Request) -> slice:
    start = integer(request, "offset", 0)
    limit = integer(request, "limit", -1, -1)
    return slice(start, None if limit < 0 else start + limit)


async def registry_root(request: Request, services: Services) -> Response:
    return answer({})


async def list_subjects(request: Request, services: Services) -> Response:
    prefix = request.query_params.get("subjectPrefix", "").removeprefix(":*:")
    services.registry.refresh()
    found = services.registry.subjects(prefix, flag(request, "deleted"), flag(request, "deletedOnly"))
    return answer(found[_page(request)])


async def list_schemas(request: Request, services: Services) -> Response:
    prefix, newest = request.query_params.get("subjectPrefix", ""), flag(request, "latestOnly")
    deleted = flag(request, "deleted")

    def read() -> list[SchemaAnswer]:
        registry = services.registry
        registry.refresh()
        found = []
        for subject in registry.subjects(prefix, deleted):
            versions = registry.versions(subject, deleted)
            found += versions[-1:] if newest else versions
        return [schema_answer(registry, one) for one in found[_page(request)]]

    return answer(await services.run(read))


async def list_versions(request: Request, services: Services) -> Response:
    services.registry.refresh()
    subject = request.path_params["subject"]
    found = services.registry.versions(subject, flag(request, "deleted"), flag(request, "deletedOnly"))
    return answer([one.version for one in found][_page(request)])


async def register_schema(request: Request, services: Services) -> Response:
    body = await body_of(request, services, SchemaRequest)
    subject, schema = request.path_params["subject"], wanted_schema(body)
    normalize = flag(request, "normalize")

    def register() -> Registered:
        try:
            one = services.registry.register(subject, schema, normalize, body.id or 0, max(0, body.version or 0))
        except Incompatible as error:
            raise with_broken(services.catalog, error) from None
        return Registered(one.id, one.version, one.subject)

    return answer(await services.run(register))


async def look_up_schema(request: Request, services: Services) -> Response:
    body = await body_of(request, services, SchemaRequest)
    subject, schema = request.path_params["subject"], wanted_schema(body)
    normalize, deleted = flag(request, "normalize"), flag(request, "deleted")

    def look_up() -> SchemaAnswer:
        one = services.registry.lookup(subject, schema, normalize, deleted)
        return schema_answer(services.registry, one, request.query_params.get("format", ""))

    return answer(await services.run(look_up))


async def delete_subject(request: Request, services: Services) -> Response:
    subject = request.path_params["subject"]
    return answer(await services.run(services.registry.delete_subject, subject, flag(request, "permanent")))


async def show_version(request: Request, services: Services) -> Response:
    subject, number = request.path_params["subject"], version_number(request)
    deleted = flag(request, "deleted")

    def read() -> SchemaAnswer:
        services.registry.refresh()
        one = services.registry.version(subject, number, deleted)
        return schema_answer(services.registry, one, request.query_params.get("format", ""))

    return answer(await services.run(read))


async def show_version_text(request: Request, services: Services) -> Response:
    services.registry.refresh()
    one = services.registry.version(request.path_params["subject"], version_number(request), flag(request, "deleted"))
    return answer_text(services.registry.schema(one.id).text)


def answer_text(text: str) -> Response:
    """The schema itself, not wrapped into JSON."""
    return Response(text, media_type=CONTENT_TYPE)


async def delete_version(request: Request, services: Services) -> Response:
    subject, number = request.path_params["subject"], version_number(request)
    return answer(await services.run(services.registry.delete_version, subject, number, flag(request, "permanent")))


async def list_references(request: Request, services: Services) -> Response:
    services.registry.refresh()
    subject, number = request.path_params["subject"], version_number(request)
    one = services.registry.version(subject, number, deleted=True)
    return answer(services.registry.referenced_by(subject, one.version))


async def find_by_metadata(request: Request, services: Services) -> Response:
    """The newest version whose metadata has all the given properties."""
    keys, values = request.query_params.getlist("key"), request.query_params.getlist("value")
    if len(keys) != len(values):
        raise RegistryError(42201, "as many `key` as `value` parameters are needed")
    wanted = dict(zip(keys, values, strict=True))
    services.registry.refresh()
    versions = services.registry.versions(request.path_params["subject"], flag(request, "deleted"))
    for one in reversed(versions):
        metadata = services.registry.schema(one.id).extra.get("metadata") or {}
        if wanted.items() <= (metadata.get("properties") or {}).items():
            return answer(schema_answer(services.registry, one, request.query_params.get("format", "")))
    raise schema_not_found("no version of the subject has that metadata")


def _id(request: Request) -> int:
    text = request.path_params["id"]
    if not text.isascii() or not text.isdecimal() or int(text[:12]) >= _ALL:
        raise schema_not_found(f"schema `{text[:40]}` not found")
    return int(text)


async def show_schema(request: Request, services: Services) -> Response:
    schema_id = _id(request)

    def read() -> SchemaAnswer:
        services.registry.refresh()
        return described(services.registry, schema_id, request.query_params.get("format", ""))

    return answer(await services.run(read))


async def show_schema_text(request: Request, services: Services) -> Response:
    services.registry.refresh()
    return answer_text(services.registry.schema(_id(request)).text)


async def list_schema_subjects(request: Request, services: Services) -> Response:
    services.registry.refresh()
    uses = services.registry.uses(_id(request), flag(request, "deleted"))
    return answer(sorted({one.subject for one in uses})[_page(request)])


async def list_schema_versions(request: Request, services: Services) -> Response:
    services.registry.refresh()
    uses = services.registry.uses(_id(request), flag(request, "deleted"))
    return answer([VersionOf(one.subject, one.version) for one in uses][_page(request)])


async def list_schema_types(request: Request, services: Services) -> Response:
    return answer(sorted(SCHEMA_TYPES, reverse=True))


async def list_contexts(request: Request, services: Services) -> Response:
    services.registry.refresh()
    return answer(services.registry.settings.contexts())


SUBJECT, VERSIONS = "/registry/subjects/{subject}", "/registry/subjects/{subject}/versions"
VERSION, ID = "/registry/subjects/{subject}/versions/{version}", "/registry/schemas/ids/{id}"
ENDPOINTS = (
    registry_endpoint(
        method="GET",
        path="/registry",
        handler=registry_root,
        summary="The schema registry is here",
        answers={200: dict[str, str]},
    ),
    registry_endpoint(
        method="GET",
        path="/registry/subjects",
        handler=list_subjects,
        summary="All subjects",
        answers={200: list[str]},
        parameters=(PREFIX, DELETED, DELETED_ONLY, *PAGE),
    ),
    registry_endpoint(
        method="GET",
        path="/registry/schemas",
        handler=list_schemas,
        summary="All schemas of all subjects",
        answers={200: list[SchemaAnswer]},
        parameters=(PREFIX, DELETED, NEWEST, *PAGE),
    ),
    registry_endpoint(
        method="GET",
        path="/registry/schemas/types",
        handler=list_schema_types,
        summary="The kinds of schemas there are",
        answers={200: list[str]},
    ),
    registry_endpoint(
        method="GET",
        path=ID,
        handler=show_schema,
        summary="A schema by its id",
        answers={200: SchemaAnswer},
        parameters=(FORMAT,),
    ),
    registry_endpoint(
        method="GET",
        path=f"{ID}/schema",
        handler=show_schema_text,
        summary="A schema's text by its id",
        answers={200: (CONTENT_TYPE,)},
    ),
    registry_endpoint(
        method="GET",
        path=f"{ID}/subjects",
        handler=list_schema_subjects,
        summary="Subjects that have a schema",
        answers={200: list[str]},
        parameters=(DELETED, *PAGE),
    ),
    registry_endpoint(
        method="GET",
        path=f"{ID}/versions",
        handler=list_schema_versions,
        summary="Versions that are a schema",
        answers={200: list[VersionOf]},
        parameters=(DELETED, *PAGE),
    ),
    registry_endpoint(
        method="POST",
        path=SUBJECT,
        handler=look_up_schema,
        summary="Which version of a subject a schema is",
        answers={200: SchemaAnswer},
        body=SchemaRequest,
        parameters=(NORMALIZE, DELETED, FORMAT),
    ),
    registry_endpoint(
        method="DELETE",
        path=SUBJECT,
        handler=delete_subject,
        summary="Delete a subject: softly, or what is so already for good",
        answers={200: list[int]},
        role="admin",
        parameters=(PERMANENT,),
    ),
    registry_endpoint(
        method="GET",
        path=f"{SUBJECT}/metadata",
        handler=find_by_metadata,
        summary="The newest version with some metadata",
        answers={200: SchemaAnswer},
        parameters=(
            DELETED,
            FORMAT,
            Parameter("key", "a property's name; may come again"),
            Parameter("value", "its value"),
        ),
    ),
    registry_endpoint(
        method="GET",
        path=VERSIONS,
        handler=list_versions,
        summary="Versions of a subject",
        answers={200: list[int]},
        parameters=(DELETED, DELETED_ONLY, *PAGE),
    ),
    registry_endpoint(
        method="POST",
        path=VERSIONS,
        handler=register_schema,
        summary="Register a schema; the same one again has the same id",
        answers={200: Registered},
        role="write",
        body=SchemaRequest,
        parameters=(NORMALIZE,),
    ),
    registry_endpoint(
        method="GET",
        path=VERSION,
        handler=show_version,
        summary="One version, or the `latest`",
        answers={200: SchemaAnswer},
        parameters=(DELETED, FORMAT),
    ),
    registry_endpoint(
        method="DELETE",
        path=VERSION,
        handler=delete_version,
        summary="Delete a version: softly, or what is so already for good",
        answers={200: int},
        role="admin",
        parameters=(PERMANENT,),
    ),
    registry_endpoint(
        method="GET",
        path=f"{VERSION}/schema",
        handler=show_version_text,
        summary="A version's text",
        answers={200: (CONTENT_TYPE,)},
        parameters=(DELETED,),
    ),
    registry_endpoint(
        method="GET",
        path=f"{VERSION}/referencedby",
        handler=list_references,
        summary="Ids of schemas that refer to a version",
        answers={200: list[int]},
    ),
    registry_endpoint(
        method="GET",
        path="/registry/contexts",
        handler=list_contexts,
        summary="Contexts of subjects; `.` is the one without a name",
        answers={200: list[str]},
    ),
)
