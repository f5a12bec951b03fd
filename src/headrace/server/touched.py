"""What requests read and write, for keys that are limited to some topics and views."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import HTTPConnection

from headrace.access.rights import Resource, Role
from headrace.server.auth import Auth
from headrace.sql.functions.function import Function
from headrace.sql.source import Source, Sources
from headrace.types import DataType


def by_handler(connection: HTTPConnection, services: Any = None) -> Iterable[Resource]:
    """Stands for a request whose handler finds out what it touches, and checks that."""
    return ()


def topic_of_path(connection: HTTPConnection, services: Any) -> Iterable[Resource]:
    return (Resource("topic", connection.path_params["topic"]),)


def view_of_path(connection: HTTPConnection, services: Any) -> Iterable[Resource]:
    return (Resource("view", connection.path_params["view"]),)


def read_resource(source: Source) -> Resource:
    """Return what a query reads: a table as the view, a stream as its topic."""
    return Resource("view", source.name) if source.kind == "table" else written_resource(source)


def written_resource(source: Source) -> Resource:
    return Resource("topic", source.topic)


@dataclass(frozen=True, slots=True)
class AllowedSources(Sources):
    """The catalog as a caller may see it. To look up what it may not use is `Refused`."""

    all: Sources
    auth: Auth
    connection: HTTPConnection
    needed: Role = "read"
    resource_of: Callable[[Source], Resource] = read_resource

    def source(self, name: str) -> Source | None:
        found = self.all.source(name)
        if found is not None:
            self.auth.check_each(self.connection, self.needed, [self.resource_of(found)])
        return found

    def sources(self) -> Iterable[Source]:
        return [one for one in self.all.sources() if self.auth.allows(self.connection, self.resource_of(one))]

    def types(self) -> Mapping[str, DataType]:
        return self.all.types()

    def functions(self) -> Mapping[str, Function]:
        return self.all.functions()
