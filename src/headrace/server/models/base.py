"""What the API's models have in common. They are what it takes and answers, as types: `docs/reference/http-api.md` in a
form that programs check."""

from __future__ import annotations

from typing import Annotated

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0)]


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Answers have exactly these fields; requests may have no others, so that a misspelled one is noticed."""


class Optional(Model, frozen=True, omit_defaults=True):
    """A model whose fields at their default are left out."""


class Error(msgspec.Struct, frozen=True):
    """Errors may carry more, by their code."""

    code: str
    message: str
    detail: str | None = None
    hint: str | None = None


class ErrorAnswer(Model, frozen=True):
    error: Error


class ColumnModel(Model, frozen=True):
    name: str
    type: str


class KeyedColumn(Model, frozen=True):
    name: str
    type: str
    key: bool
