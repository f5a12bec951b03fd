"""Reading server-sent events as a client does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx


@dataclass(frozen=True, slots=True)
class Sent:
    event: str
    data: Any
    id: str | None


class Stream:
    """The events of a response, and the last id seen, by the rules of the HTML standard."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.last_id: str | None = None
        self._lines = response.iter_lines()

    def __iter__(self) -> Iterator[Sent]:
        fields: dict[str, str] = {}
        for line in self._lines:
            name, _, value = line.partition(":")
            if line and name:
                fields[name] = value.removeprefix(" ")
                if name == "id":
                    self.last_id = fields["id"]
            elif not line:
                if "data" in fields:
                    yield Sent(fields.get("event", "message"), json.loads(fields["data"]), fields.get("id"))
                fields = {}

    def take(self, count: int) -> list[Sent]:
        events = iter(self)
        return [next(events) for _ in range(count)]


@contextmanager
def follow(http: httpx.Client, path: str, method: str = "GET", **options: Any) -> Iterator[Stream]:
    with http.stream(method, path, **options) as response:
        assert response.status_code == 200, response.read()
        yield Stream(response)
