"""What the registry's routes share: its content type, its errors, and what requests say."""

from __future__ import annotations

from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from headrace.errors import HeadraceError, UsageError
from headrace.log.codecs.json_encode import to_json
from headrace.log.registry.base import SCHEMA_TYPES, Reference, RegistryError, Schema, SubjectVersion
from headrace.log.registry.parsed import formatted
from headrace.log.registry.registry import Registry
from headrace.server.endpoint import Endpoint, Parameter
from headrace.server.errors import error_body
from headrace.server.models.registry import ReferenceModel, RegistryErrorAnswer, SchemaAnswer, SchemaRequest

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
NORMALIZE = Parameter("normalize", "compare and keep it in normal form", {"type": "boolean", "default": False})
DELETED = Parameter("deleted", "softly deleted ones too", {"type": "boolean", "default": False})
PERMANENT = Parameter("permanent", "for good; only what is softly deleted", {"type": "boolean", "default": False})
FORMAT = Parameter("format", "`serialized`: a Protobuf schema as a file descriptor in base64")


def answer(body: Any, status: int = 200) -> Response:
    return Response(to_json(body), status, media_type=CONTENT_TYPE)


def registry_error(error: Exception) -> Response:
    """Any error, as Confluent's clients expect it."""
    body = error_body(error)
    if isinstance(error, RegistryError):
        code = error.error_code
    elif isinstance(error, UsageError):
        code = 422
    elif isinstance(error, HeadraceError) and error.status < 500:
        code = error.status
    else:
        code = 50001
    status = int(str(code)[:3])
    wrong = RegistryErrorAnswer(
        code, body["message"], body.get("hint"), body.get("problems", []), body.get("breaks", [])
    )
    headers = {"www-authenticate": 'Basic realm="headrace", Bearer'} if status == 401 else None
    return Response(to_json(wrong), status, headers, CONTENT_TYPE)


registry_endpoint = partial(Endpoint, errors=registry_error, error_model=RegistryErrorAnswer, media_type=CONTENT_TYPE)


def wanted_schema(request: SchemaRequest) -> Schema:
    type_ = (request.schema_type or "AVRO").upper()
    if type_ not in SCHEMA_TYPES:
        raise RegistryError(42201, f"`{request.schema_type}` is not a type of schema", hint=", ".join(SCHEMA_TYPES))
    references = tuple(Reference(one.name, one.subject, one.version) for one in request.references or ())
    extra = {"metadata": request.metadata, "ruleSet": request.rule_set}
    given = {name: value for name, value in extra.items() if value is not None}
    return Schema(request.schema, type_, references, given)


def version_number(request: Request) -> int | None:
    """None for `latest`."""
    text = request.path_params["version"]
    if text in ("latest", "-1"):
        return None
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:12]) < 1 << 31:
        raise RegistryError(42202, f"`{text[:40]}` is not a version", hint="a number from 1, or `latest`")
    return int(text)


def schema_answer(registry: Registry, one: SubjectVersion, format_: str = "") -> SchemaAnswer:
    return described(
        registry, one.id, format_, subject=one.subject, id=one.id, version=one.version, deleted=one.deleted
    )


def described(registry: Registry, schema_id: int, format_: str = "", **more: Any) -> SchemaAnswer:
    schema = registry.schema(schema_id)
    text = formatted(registry.parsed(schema_id), format_) if format_ else schema.text
    return SchemaAnswer(
        schema=text,
        schema_type=schema.type,
        references=[ReferenceModel(r.name, r.subject, r.version) for r in schema.references],
        metadata=schema.extra.get("metadata"),
        rule_set=schema.extra.get("ruleSet"),
        **more,
    )
