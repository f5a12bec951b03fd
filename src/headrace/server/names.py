"""Names in addresses → names in the catalog: any case will do, unless a quoted name differs only in that."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.errors import NotFound
from headrace.types import display_name


def resolve(name: str, known: Iterable[str], what: str, hint: str) -> str:
    """The exact name somebody means.

    >>> resolve("views_by_page", ["VIEWS_BY_PAGE"], "table", "")
    'VIEWS_BY_PAGE'
    """
    names = list(known)
    if name in names:
        return name
    for found in (name.upper(), *names):
        if found in names and found.casefold() == name.casefold():
            return found
    shown = ", ".join(f"`{display_name(each)}`" for each in sorted(names)[:8])
    raise NotFound(f"{what} `{name[:100]}` does not exist", detail=f"there is {shown}" if shown else None, hint=hint)
