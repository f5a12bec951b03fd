"""What to say where nobody answers: there is nothing there (404), or there is, but not for this method (405)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from headrace.server.endpoint import Endpoint

OURS = ("v1", "registry")
"""First parts of paths that belong to programs: the console has no pages there."""


class Paths:
    """The API's paths, to look up which methods one takes."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._methods: dict[str, tuple[re.Pattern[str], set[str]]] = {}
        for endpoint in endpoints:
            _, methods = self._methods.setdefault(endpoint.path, (compile_path(endpoint.path)[0], set()))
            methods.add(endpoint.method)

    def refusal(self, path: str) -> HTTPException:
        """The error for a request that no endpoint took."""
        allowed = sorted({m for pattern, methods in self._methods.values() if pattern.match(path) for m in methods})
        if not allowed and not is_ours(path):
            allowed = ["GET"]  # a page of the console
        return HTTPException(405, headers={"allow": ", ".join(allowed)}) if allowed else HTTPException(404)


def is_ours(path: str) -> bool:
    """
    >>> is_ours("/v1/topics"), is_ours("/v1"), is_ours("/views/v1")
    (True, True, False)
    """
    return path.lstrip("/").partition("/")[0] in OURS
