"""What the commands about topics, groups and queues need: of the server that runs the project, or, while none does, of
the log itself. Answers are the HTTP API's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from headrace.cli.options import open_api, open_project
from headrace.coordinate.local import is_held

if TYPE_CHECKING:
    from headrace.cli.api import Api

Body = dict[str, Any]


class Backend(Protocol):
    live: bool
    """Whether others write meanwhile, so that waiting for records makes sense."""

    def topics(self, internal: bool) -> list[Body]: ...
    def topic(self, name: str) -> Body: ...
    def create_topic(self, body: Body) -> Body: ...
    def alter_topic(self, name: str, body: Body) -> Body: ...
    def delete_topic(self, name: str) -> None: ...
    def delete_records(self, name: str, partition: int | None, before: int | None) -> Body: ...
    def page(self, name: str, where: str | None, **place: Any) -> Body: ...
    def put(self, name: str, body: bytes, idempotency_key: str | None) -> Body: ...
    def groups(self) -> list[Body]: ...
    def group(self, name: str) -> Body: ...
    def reset_group(self, name: str, body: Body) -> Body: ...
    def delete_group(self, name: str) -> None: ...
    def queues(self) -> list[Body]: ...
    def queue(self, name: str) -> Body: ...
    def create_queue(self, body: Body) -> Body: ...
    def delete_queue(self, name: str) -> None: ...
    def receive(self, name: str, limit: int, wait: float, lease: float | None) -> list[Body]: ...
    def settle(self, name: str, how: str, body: Mapping[str, Any]) -> Body: ...


class ServerBackend:
    live = True

    def __init__(self, api: Api) -> None:
        self._api = api

    def topics(self, internal: bool) -> list[Body]:
        return list(self._api.get("/v1/topics", internal="true" if internal else None)["topics"])

    def topic(self, name: str) -> Body:
        return self._api.get(_topic(name))

    def create_topic(self, body: Body) -> Body:
        return self._api.post("/v1/topics", body)

    def alter_topic(self, name: str, body: Body) -> Body:
        return self._api.request("PATCH", _topic(name), json=body)

    def delete_topic(self, name: str) -> None:
        self._api.delete(_topic(name))

    def delete_records(self, name: str, partition: int | None, before: int | None) -> Body:
        given = {"partition": partition, "before": before}
        parameters = {key: value for key, value in given.items() if value is not None}
        return self._api.request("DELETE", f"{_topic(name)}/records", params=parameters)

    def page(self, name: str, where: str | None, **place: Any) -> Body:
        return self._api.get(f"{_topic(name)}/records", where=where, **place)

    def put(self, name: str, body: bytes, idempotency_key: str | None) -> Body:
        headers = {"Content-Type": "application/x-ndjson"}
        if idempotency_key:
            headers["Idempotency-Key"] = idempotency_key
        return self._api.request("POST", f"{_topic(name)}/events", content=body, headers=headers)

    def groups(self) -> list[Body]:
        return list(self._api.get("/v1/groups")["groups"])

    def group(self, name: str) -> Body:
        return self._api.get(f"/v1/groups/{quote(name, safe='')}")

    def reset_group(self, name: str, body: Body) -> Body:
        return self._api.post(f"/v1/groups/{quote(name, safe='')}/reset", body)

    def delete_group(self, name: str) -> None:
        self._api.delete(f"/v1/groups/{quote(name, safe='')}")

    def queues(self) -> list[Body]:
        return list(self._api.get("/v1/queues")["queues"])

    def queue(self, name: str) -> Body:
        return self._api.get(_queue(name))

    def create_queue(self, body: Body) -> Body:
        return self._api.post("/v1/queues", body)

    def delete_queue(self, name: str) -> None:
        self._api.delete(_queue(name))

    def receive(self, name: str, limit: int, wait: float, lease: float | None) -> list[Body]:
        answer = self._api.post(f"{_queue(name)}/receive", None, limit=limit, wait=wait or None, lease=lease)
        return list(answer["messages"])

    def settle(self, name: str, how: str, body: Mapping[str, Any]) -> Body:
        return self._api.post(f"{_queue(name)}/{how}", dict(body))


def _topic(name: str) -> str:
    return f"/v1/topics/{quote(name, safe='')}"


def _queue(name: str) -> str:
    return f"/v1/queues/{quote(name, safe='')}"


@contextmanager
def open_backend(project: Path | None, url: str | None, key: str | None) -> Iterator[Backend]:
    """The server's if one runs, else the log's own."""
    if url is None:
        found = open_project(project)
        if not is_held(found.data):
            from headrace.cli.offline import open_offline

            with open_offline(found) as offline:
                yield offline
            return
    with open_api(project, url, key) as api:
        yield ServerBackend(api)
