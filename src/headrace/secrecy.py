"""Settings that are for nobody's eyes: declared so by their types, so that nothing that shows settings has to guess."""

from __future__ import annotations

import re
from typing import Annotated, Any, get_args, get_origin

import msgspec

from headrace.toml_files import FROM_ENVIRONMENT

HIDDEN = "…"
Secret = Annotated[str, msgspec.Meta(extra={"shown": "never"})]
"""Shown only where it is the name of a variable of the environment, `env:NAME`."""
Address = Annotated[str, msgspec.Meta(extra={"shown": "address"})]
"""A URL, which may have a password, and a key among its parameters."""

_USER = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*://|//)?[^/?#]*@")
_PARAMETER = re.compile(r"([^=&]*=)?([^&]+)")
_PLACE = re.compile(r"\{\w+\}")
# Of tables with names that are not ours.
_SECRET_WORDS = ("key", "secret", "password", "passphrase", "token", "credential", "authorization", "cookie", "jaas")


def shown_address(url: str) -> str:
    """Without what only its owner may know.

    >>> shown_address("https://ann:pa55@shop.example/items?after={cursor}&api_key=abc#x")
    'https://…@shop.example/items?after={cursor}&api_key=…'
    """
    place, mark, query = _USER.sub(rf"\1{HIDDEN}@", url).partition("#")[0].partition("?")
    return place + mark + _PARAMETER.sub(_without_value, query)


def _without_value(found: re.Match[str]) -> str:
    return (found[1] or "") + (found[2] if _PLACE.fullmatch(found[2]) else HIDDEN)


def shown_settings(settings: msgspec.Struct) -> dict[str, Any]:
    """What was given, for people to look at: defaults left out, secrets not told."""
    given = {}
    for field in msgspec.structs.fields(settings):
        value = getattr(settings, field.name)
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        if value != default:
            given[field.name] = _shown(value, field.type)
    return given


def _shown(value: Any, type_: Any) -> Any:
    match value:
        case msgspec.Struct():
            return shown_settings(value)
        case dict():
            of = (*get_args(type_), Any, Any)[1]
            return {name: _shown_undeclared(name, one) if of is Any else _shown(one, of) for name, one in value.items()}
        case list() | tuple():
            of = (*get_args(type_), Any)[0]
            return [_shown(one, of) for one in value]
        case str():
            return _shown_text(value, type_)
        case _:
            return value


def _shown_text(value: str, type_: Any) -> str:
    if get_origin(type_) is not Annotated or not value or value.startswith(FROM_ENVIRONMENT):
        return value
    metas = [meta.extra for meta in get_args(type_)[1:] if isinstance(meta, msgspec.Meta) and meta.extra]
    how = next((extra["shown"] for extra in metas if "shown" in extra), "")
    return {"never": HIDDEN, "address": shown_address(value)}.get(how, value)


def _shown_undeclared(name: str, value: Any) -> Any:
    """Of a table whose settings are another program's: by their names, and as a whole where those say so."""
    if any(word in name.casefold() for word in _SECRET_WORDS):
        return value if isinstance(value, str) and value.startswith(FROM_ENVIRONMENT) else HIDDEN
    if isinstance(value, dict):
        return {inner: _shown_undeclared(inner, one) for inner, one in value.items()}
    return shown_address(value) if isinstance(value, str) and "://" in value else value
