"""The HTTP API, as the commands use it. Errors come back as the exceptions the server raised."""

from __future__ import annotations

import json
import ssl
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import IO, Any

import httpx

from headrace.client.arrow_rows import ARROW, ArrowReading
from headrace.client.rows import LineSplitter, RowReading
from headrace.errors import Disconnected, HeadraceError, NotRunning, Overloaded, error_from_json

ANSWER_S = 3600.0
"""The server has deadlines of its own; this is only for one that has died."""
SILENCE_S = 20.0
"""A stream says something at least every 5 s; longer silence means the server is gone."""


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event of a server-sent stream."""

    event: str
    data: Any
    id: str | None


class Api:
    def __init__(
        self, url: str, key: str | None = None, timeout: float = 30.0, trust: ssl.SSLContext | None = None
    ) -> None:
        self.url = url
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        # trust_env: a proxy of the environment has no business between us and our own server.
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout, trust_env=False, verify=trust or True)

    # Names of columns are parameters too, and may be called like ours: so ours have no names.
    def get(self, path: str, /, **query: Any) -> dict[str, Any]:
        return self.request("GET", path, params=_given(query))

    def post(self, path: str, body: Any = None, /, **query: Any) -> dict[str, Any]:
        return self.request("POST", path, json=body, params=_given(query))

    def get_exactly(self, path: str, /, **query: Any) -> dict[str, Any]:
        """Values of somebody's data, to the last digit."""
        return self.request("GET", path, exact=True, params=_given(query))

    def post_exactly(self, path: str, body: Any = None, /, **query: Any) -> dict[str, Any]:
        return self.request("POST", path, exact=True, json=body, params=_given(query))

    def delete(self, path: str) -> dict[str, Any]:
        return self.request("DELETE", path)

    def request(self, method: str, path: str, exact: bool = False, **options: Any) -> dict[str, Any]:
        """With `exact`, numbers that are not whole are decimals: what the server wrote, to the last digit."""
        with _as_ours(self.url):
            answer = self._http.request(method, path, **options)
        return _body(answer, exact)

    def stream(
        self, method: str, path: str, body: Any = None, exact: bool = False, **query: Any
    ) -> Iterator[ServerEvent]:
        """The events of a server-sent stream until it ends."""
        headers = {"Accept": "text/event-stream"}
        last = query.pop("last_event_id", None)
        if last is not None:
            headers["Last-Event-ID"] = last
        options = {"json": body} if body is not None else {}
        timeout = httpx.Timeout(30.0, read=SILENCE_S)
        with (
            _as_ours(self.url),
            self._http.stream(
                method, path, params=_given(query), headers=headers, timeout=timeout, **options
            ) as answer,
        ):
            if answer.status_code >= 400:
                answer.read()
                _body(answer)
            yield from parse_events(answer.iter_lines(), exact)

    def query_rows(self, body: dict[str, Any], reading: RowReading) -> Generator[list[list[Any]]]:
        """Yield a pull query's rows as they come, however many. `reading` knows header and progress; no rows (an empty
        list) come with progress. Closing the iterator cancels the query."""
        timeout = httpx.Timeout(30.0, read=ANSWER_S)
        with (
            _as_ours(self.url),
            self._http.stream("POST", "/v1/query", json=body | {"stream": True}, timeout=timeout) as answer,
        ):
            if answer.status_code >= 400:
                answer.read()
                _body(answer)
            lines = LineSplitter()
            for piece in answer.iter_bytes():
                for line in lines.split(piece):
                    yield reading.take(line) or []
        reading.finish()

    @contextmanager
    def query_batches(self, body: dict[str, Any]) -> Generator[ArrowReading]:
        """Yield the one `ArrowReading` of a pull query's rows, while the connection is open."""
        headers, timeout = {"accept": ARROW}, httpx.Timeout(30.0, read=ANSWER_S)
        with (
            _as_ours(self.url),
            self._http.stream(
                "POST", "/v1/query", json=body | {"stream": True}, headers=headers, timeout=timeout
            ) as answer,
        ):
            if answer.status_code >= 400:
                answer.read()
                _body(answer)
            yield ArrowReading(answer.iter_bytes())

    def download(self, path: str, file: IO[bytes], **query: Any) -> int:
        """A file as it comes, into another; how many bytes. Not whole is an error."""
        size, timeout = 0, httpx.Timeout(30.0, read=120.0)
        with _as_ours(self.url), self._http.stream("GET", path, params=_given(query), timeout=timeout) as answer:
            if answer.status_code >= 400:
                answer.read()
                _body(answer)
            for piece in answer.iter_bytes():
                size += file.write(piece)
        return size

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Api:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def parse_events(lines: Iterator[str], exact: bool = False) -> Iterator[ServerEvent]:
    """Server-sent events, by the rules of the HTML standard as far as our server uses them.

    >>> list(parse_events(iter(["id: 1-7", "event: row", 'data: {"a":1}', ""])))
    [ServerEvent(event='row', data={'a': 1}, id='1-7')]
    """
    fields: dict[str, str] = {}
    for line in lines:
        if line.startswith(":"):
            continue
        if line:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            fields[name] = f"{fields['data']}\n{value}" if name == "data" and "data" in fields else value
        elif "data" in fields:
            data = json.loads(fields["data"], parse_float=Decimal if exact else None)
            yield ServerEvent(fields.get("event", "message"), data, fields.get("id"))
            fields = {}


def _given(query: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in query.items() if value is not None}


def _body(answer: httpx.Response, exact: bool = False) -> dict[str, Any]:
    if answer.status_code == 204:
        return {}
    try:
        body = answer.json(parse_float=Decimal if exact else None)
    except ValueError:
        raise HeadraceError(f"the server answered {answer.status_code}", detail=answer.text[:500] or None) from None
    # Rejected events are an answer, not an error of the request.
    if answer.status_code >= 400 and isinstance(body, dict) and "error" in body:
        raise error_from_json(body["error"])
    if answer.status_code == 429:
        raise Overloaded("the server is busy", retry_after=float(answer.headers.get("Retry-After", 1)))
    return body if isinstance(body, dict) else {"result": body}


@contextmanager
def _as_ours(url: str) -> Iterator[None]:
    """httpx's errors in our words."""
    try:
        yield
    except httpx.ConnectError:
        raise NotRunning(f"nothing answers at `{url}`", hint="start it:  headrace up") from None
    except httpx.TimeoutException:
        raise Disconnected(f"`{url}` did not answer in time", hint="headrace logs says what it is doing") from None
    except httpx.InvalidURL as error:
        raise HeadraceError(f"`{url}` is not an address: {error}") from None
    except httpx.TransportError as error:
        raise Disconnected(f"the connection to `{url}` broke: {error}", hint="headrace status") from None
