"""`/openapi.json`, made from the same table as the routes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from headrace import __version__
from headrace.server.endpoint import Endpoint, Parameter
from headrace.server.models.base import ErrorAnswer

REF = "#/components/schemas/{name}"
STATUS_TEXT = {
    200: "done",
    201: "made",
    202: "taken, not durable yet",
    204: "nothing more to say",
    307: "it is elsewhere",
    422: "all events were rejected",
    503: "not ready",
}


SCHEMES = {
    "key": {
        "type": "http",
        "scheme": "bearer",
        "description": "A key of [auth] keys, or the owner's. Without [auth] keys the user who runs the server needs "
        "none on the same machine, unless the request was forwarded or comes from a page of another origin.",
    },
    "password": {"type": "http", "scheme": "basic", "description": "The key as the password; the user is ignored."},
    "parameter": {
        "type": "apiKey",
        "in": "query",
        "name": "key",
        "description": "For EventSource and WebSocket, which cannot set headers: keys that read.",
    },
    "signature": {
        "type": "apiKey",
        "in": "header",
        "name": "Authorization",
        "description": "AWS Signature Version 4: the access key id is a key's name, the secret is the key.",
    },
    "collector": {
        "type": "apiKey",
        "in": "header",
        "name": "Authorization",
        "description": "A write key of the collector, sent as its protocol does. None for a collector that is public; "
        "for one without keys the same holds as for `key`.",
    },
}


def describe(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """The OpenAPI 3.1 document of these endpoints."""
    endpoints = list(endpoints)
    models = _models(endpoints)
    schemas, components = msgspec.json.schema_components(models, ref_template=REF)
    by_model = dict(zip(models, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(_path(endpoint), {})[endpoint.method.lower()] = _operation(endpoint, by_model)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headrace",
            "version": __version__,
            "summary": "Events in, live tables out.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": SCHEMES},
        "security": [{"key": []}, {"password": []}],
    }


def _path(endpoint: Endpoint) -> str:
    return re.sub(r"\{(\w+):\w+\}", r"{\1}", endpoint.path)


def _models(endpoints: list[Endpoint]) -> list[Any]:
    found: dict[Any, None] = {ErrorAnswer: None}
    for endpoint in endpoints:
        for contents in (*endpoint.answers.values(), endpoint.body, endpoint.error_model):
            for model in contents if isinstance(contents, tuple) else (contents,):
                if model is not None and not isinstance(model, str):
                    found[model] = None
    return list(found)


def _operation(endpoint: Endpoint, schemas: dict[Any, Any]) -> dict[str, Any]:
    page = ":path" in endpoint.path and not endpoint.operation
    operation: dict[str, Any] = {
        "operationId": f"{endpoint.name}_page" if page else endpoint.name,
        "summary": endpoint.summary,
        "responses": {
            str(status): _answer(status, model, schemas, endpoint.media_type)
            for status, model in endpoint.answers.items()
        },
    }
    operation["responses"]["default"] = {
        "description": "an error",
        "content": {endpoint.media_type: {"schema": schemas[endpoint.error_model]}},
    }
    parameters = [_path_parameter(name) for name in re.findall(r"\{(\w+)", endpoint.path)]
    parameters += [_parameter(parameter) for parameter in endpoint.parameters]
    if parameters:
        operation["parameters"] = parameters
    if endpoint.body is not None:
        operation["requestBody"] = {"required": True, "content": _content(endpoint.body, schemas)}
    operation["security"] = [{scheme: [endpoint.role]} for scheme in _schemes(endpoint)]
    if endpoint.role is not None:
        operation["description"] = f"Needs the role `{endpoint.role}`" + (
            ", or more, by what is asked." if endpoint.changes or endpoint.checks == "signature" else "."
        )
    if endpoint.websocket is not None:
        operation["description"] += " Also a WebSocket."
    return operation


def _schemes(endpoint: Endpoint) -> tuple[str, ...]:
    """How a caller may say who it is."""
    match endpoint.checks:
        case _ if endpoint.role is None:
            return ()
        case "signature":
            return ("signature",)
        case "collector":
            return ("collector",)
        case _:
            return (
                ("key", "password", "parameter")
                if (endpoint.method, endpoint.role) == ("GET", "read")
                else ("key", "password")
            )


def _answer(status: int, model: Any, schemas: dict[Any, Any], media_type: str) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": STATUS_TEXT.get(status, "")}
    return answer if model is None else answer | {"content": _content(model, schemas, media_type)}


def _content(model: Any, schemas: dict[Any, Any], media_type: str = "application/json") -> dict[str, Any]:
    """A model is JSON; a media type is itself, and says nothing more."""
    each = model if isinstance(model, tuple) else (model,)
    found = [schemas[one] for one in each if not isinstance(one, str)]
    content = {media_type: {"schema": found[0] if len(found) == 1 else {"anyOf": found}}} if found else {}
    return content | {one: {} for one in each if isinstance(one, str)}


def _path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.where,
        "description": parameter.description,
        "schema": dict(parameter.schema),
    }
