"""Request bodies, read with suspicion: limits on size before and after decompression, on time and on memory."""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import zstandard

from headrace.collect.base import Form, RawEvents
from headrace.errors import DeadlineExceeded, Overloaded, TooLarge, UnsupportedMedia, UsageError

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

# RFC 9659: what a zstd body may ask the receiver to keep in memory.
ZSTD_WINDOW = 8 * 1024 * 1024
_STEP = 256 * 1024
_CRUMB = 512

JSON_TYPES = ("", "application/json", "text/json", "text/plain", "application/x-www-form-urlencoded")
LINES_TYPES = ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines")

AVRO_TYPES = ("application/avro", "avro/binary", "application/vnd.apache.avro", "application/vnd.confluent.avro")


class ClientGone(Exception):
    """The client went away before the body was complete. Nobody is left to answer."""


class Incoming:
    """A request's `receive` that knows whether the body has been read to its end."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._complete = False

    async def __call__(self) -> MutableMapping[str, Any]:
        message = await self._receive()
        self._complete = message["type"] == "http.disconnect" or not message.get("more_body", False)
        return message

    async def drain(self, seconds: float = 1.0, max_bytes: int = 64 * 1024 * 1024) -> None:
        """Read the rest and forget it, within reason. A refusal that is sent while the client still sends is lost with
        the connection: the client would see that it broke, not why."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._complete and max_bytes > 0:
                    max_bytes -= len((await self()).get("body", b""))


@dataclass(frozen=True, slots=True)
class BodyLimits:
    max_bytes: int
    seconds: float


class BodyBudget:
    """How many bytes of bodies may be held at once, over all requests: many slow clients must not fill the memory."""

    def __init__(self, max_bytes: int) -> None:
        self._left = max_bytes

    @property
    def left(self) -> int:
        return self._left

    @contextmanager
    def share(self) -> Iterator[Share]:
        share = Share(self)
        try:
            yield share
        finally:
            self.give_back(share.taken)

    def take(self, count: int) -> None:
        if count > self._left:
            raise Overloaded("too many request bodies are being read", retry_after=1.0)
        self._left -= count

    def give_back(self, count: int) -> None:
        self._left += count


class Share:
    """One request's part of the budget; given back when the request ends."""

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self.taken = 0

    def take(self, count: int) -> None:
        self._budget.take(count)
        self.taken += count


async def read_body(receive: Receive, content_length: str | None, limits: BodyLimits, share: Share) -> bytes:
    """The body as it was sent. `TooLarge` as soon as that is known, `DeadlineExceeded` if it dawdles."""
    if content_length is not None and content_length.isdecimal() and int(content_length) > limits.max_bytes:
        raise _too_large(limits.max_bytes)
    try:
        async with asyncio.timeout(limits.seconds):
            return await _receive_all(receive, limits.max_bytes, share)
    except TimeoutError:
        raise DeadlineExceeded(
            f"the body did not arrive within {limits.seconds:g} s", hint="send less at once; see [server] body_seconds"
        ) from None


async def _receive_all(receive: Receive, max_bytes: int, share: Share) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > max_bytes:
            raise _too_large(max_bytes)
        share.take(len(chunk))
        chunks.append(chunk)
        if not message.get("more_body", False):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def decompress(body: bytes, encoding: str, max_bytes: int) -> bytes:
    """Never makes more than `max_bytes` of it, however small it came."""
    match encoding.strip().lower():
        case "" | "identity":
            return body
        case "gzip" | "x-gzip":
            return _collect(_inflate(body, "gzip", 31), max_bytes)
        case "deflate":
            return _collect(_inflate(body, "deflate", 15), max_bytes)
        case "zstd":
            return _collect(_unzstd(body), max_bytes)
        case other:
            raise UnsupportedMedia(
                f"cannot read a body encoded as `{other}`", hint="gzip, deflate, zstd or none will do"
            )


def _collect(pieces: Iterator[bytes], max_bytes: int) -> bytes:
    found: list[bytes] = []
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > max_bytes:
            raise _too_large(max_bytes)
        found.append(piece)
    return b"".join(found)


def _inflate(body: bytes, name: str, window: int) -> Iterator[bytes]:
    """One or several gzip members, or zlib's streams, in steps."""
    while body:
        member = zlib.decompressobj(wbits=window)
        try:
            while not member.eof:
                piece = member.decompress(body, _STEP)
                if not piece and not member.unconsumed_tail and not member.eof:
                    raise UsageError(f"the body is not valid {name}: it ends too early")
                body = member.unconsumed_tail
                yield piece
        except zlib.error as error:
            raise UsageError(f"the body is not valid {name}", detail=str(error)) from None
        body = member.unused_data


def _unzstd(body: bytes) -> Iterator[bytes]:
    """One or several zstd frames. The decompressor has no limit of its own, so it is fed crumbs: four bytes can become
    128 KiB."""
    decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW)
    position = 0
    while position < len(body):
        frame = decompressor.decompressobj()
        try:
            while not frame.eof:
                crumb = body[position : position + _CRUMB]
                if not crumb:
                    raise UsageError("the body is not valid zstd: it ends too early")
                yield frame.decompress(crumb)
                position += len(crumb) - len(frame.unused_data)
        except zstandard.ZstdError as error:
            raise UsageError("the body is not valid zstd", detail=str(error)) from None


def _too_large(max_bytes: int) -> TooLarge:
    return TooLarge(
        f"the body is larger than {max_bytes} bytes", hint="send several smaller ones; see [server] max_body_bytes"
    )


def opened(raw: RawEvents, body: bytes, encoding: str, max_bytes: int) -> RawEvents:
    """The events with their body as it is to be read."""
    plain = decompress(body, encoding, max_bytes)
    if not plain and raw.form != "bytes":
        raise UsageError("the body is empty", hint='send an event:  curl -d \'{"field": "value"}\' …')
    return replace(raw, body=plain)


def form_of(content_type: str, raw_topic: bool) -> Form:
    """What a content type says of the body. Plain text and curl's default are taken for JSON."""
    kind = content_type.partition(";")[0].strip().lower()
    if raw_topic and kind == "application/octet-stream":
        return "bytes"
    if kind in AVRO_TYPES and not raw_topic:
        return "avro"
    if kind in LINES_TYPES:
        return "ndjson"
    if kind in JSON_TYPES or kind.endswith("+json"):
        return "json"
    raise UnsupportedMedia(
        f"cannot read events from `{kind}`",
        hint="send application/json, application/x-ndjson or "
        + ("application/octet-stream" if raw_topic else "application/avro"),
    )
