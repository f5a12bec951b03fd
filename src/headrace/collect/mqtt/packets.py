"""MQTT 3.1.1 on the wire: what a subscriber sends, and what it is sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = 1, 2, 3, 4, 5, 6, 7
SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT = 8, 9, 10, 11, 12, 13, 14
_HEADER_BYTES = 2 + 65_535 + 2
"""The most that comes before a message's payload."""

REFUSALS = {
    1: "it does not speak MQTT 3.1.1",
    2: "it refuses the client's name",
    3: "it is not available",
    4: "user or password are wrong",
    5: "the user may not connect",
}


class Malformed(Exception):
    """What came is not MQTT."""


@dataclass(frozen=True, slots=True)
class Packet:
    type: int
    flags: int
    body: bytes
    size: int
    """Of the whole body; more than there is of it where that was too large."""


@dataclass(frozen=True, slots=True)
class Message:
    topic: bytes
    payload: bytes
    qos: int
    number: int
    """The packet's identifier; 0 with QoS 0."""
    again: bool
    """The broker has sent it before."""
    retained: bool
    size: int
    """Of the payload, which is cut off where it is too large."""


# What is sent


def connect(client: str, keep_alive: int, user: str | None, password: str | None, clean: bool = False) -> bytes:
    flags = (2 if clean else 0) | (0x80 if user is not None else 0) | (0x40 if password is not None else 0)
    body = _text("MQTT") + bytes([4, flags]) + keep_alive.to_bytes(2, "big") + _text(client)
    for part in (user, password):
        if part is not None:
            body += _text(part)
    return _packet(CONNECT, 0, body)


def subscribe(number: int, filters: Sequence[tuple[str, int]]) -> bytes:
    return _packet(
        SUBSCRIBE, 2, number.to_bytes(2, "big") + b"".join(_text(one) + bytes([qos]) for one, qos in filters)
    )


def unsubscribe(number: int, filters: Sequence[str]) -> bytes:
    return _packet(UNSUBSCRIBE, 2, number.to_bytes(2, "big") + b"".join(map(_text, filters)))


def answer(type_: int, number: int) -> bytes:
    """PUBACK, PUBREC or PUBCOMP of a message."""
    return _packet(type_, 0, number.to_bytes(2, "big"))


PING = bytes([PINGREQ << 4, 0])
GOODBYE = bytes([DISCONNECT << 4, 0])


def publish(topic: str, payload: bytes, qos: int = 0, number: int = 0, again: bool = False) -> bytes:
    """What a broker sends; for tests."""
    body = _text(topic) + (number.to_bytes(2, "big") if qos else b"") + payload
    return _packet(PUBLISH, (8 if again else 0) | qos << 1, body)


def _packet(type_: int, flags: int, body: bytes) -> bytes:
    length, size = bytearray(), len(body)
    while True:
        size, digit = divmod(size, 128)
        length.append(digit | (128 if size else 0))
        if not size:
            return bytes([type_ << 4 | flags]) + bytes(length) + body


def _text(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(2, "big") + data


# What is received


class Decoder:
    """Bytes → packets. Of one larger than `most` only its beginning is kept."""

    def __init__(self, most: int) -> None:
        self._most = most + _HEADER_BYTES
        self._rest = b""
        self._skip = 0

    def feed(self, data: bytes) -> list[Packet]:
        if self._skip:
            step = min(self._skip, len(data))
            self._skip -= step
            data = data[step:]
        self._rest += data
        found: list[Packet] = []
        while (packet := self._next()) is not None:
            found.append(packet)
        return found

    def _next(self) -> Packet | None:
        rest = self._rest
        size, start = 0, 1
        while True:
            if start >= len(rest):
                return None
            if start > 4:
                raise Malformed("a packet whose length has no end")
            digit = rest[start]
            size |= (digit & 127) << 7 * (start - 1)
            start += 1
            if digit < 128:
                break
        kept = min(size, self._most)
        if len(rest) < start + kept:
            return None
        end = min(start + size, len(rest))
        self._skip = start + size - end
        self._rest = rest[end:]
        return Packet(rest[0] >> 4, rest[0] & 15, rest[start : start + kept], size)


def read_message(packet: Packet) -> Message:
    body, qos = packet.body, packet.flags >> 1 & 3
    if len(body) < 2 or qos == 3:
        raise Malformed("a message without a topic")
    end = 2 + int.from_bytes(body[:2], "big")
    start = end + (2 if qos else 0)
    if len(body) < start:
        raise Malformed("a message that ends before its payload")
    return Message(
        topic=body[2:end],
        payload=body[start:],
        qos=qos,
        number=int.from_bytes(body[end:start], "big"),
        again=bool(packet.flags & 8),
        retained=bool(packet.flags & 1),
        size=packet.size - start,
    )


def read_number(packet: Packet) -> int:
    if len(packet.body) < 2:
        raise Malformed("a packet without its number")
    return int.from_bytes(packet.body[:2], "big")
