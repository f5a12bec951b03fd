"""Messages on a connection: however it is cut into pieces, the same messages come out."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.collect.listening.pool import Pool
from headrace.collect.listening.streams import OutOfStep
from headrace.collect.syslog.framing import SyslogFramer
from headrace.collect.syslog.listen import _lines, _messages

MOST = 40


def framed(pieces: list[bytes], most: int = MOST) -> list[bytes]:
    async def feed() -> list[bytes]:
        pool, framer = Pool(1 << 20), SyslogFramer(most)
        for piece in pieces:
            framer.feed(piece, pool, "here")
        framer.end(pool, "here")
        gathered = pool.take_rest()
        return [message for one in gathered for message in _messages(one, _lines(one))]

    return asyncio.run(feed())


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(at % (len(data) + 1) for at in cuts)})
    return [data[start:end] for start, end in itertools.pairwise(places)]


message = st.binary(min_size=1, max_size=MOST).map(lambda body: b"<1>" + body)
line = message.filter(lambda one: not set(one) & {0, 10, 13}).map(lambda one: one[:MOST])
whole = message.map(lambda one: one[:MOST]).filter(lambda one: one == one.rstrip(b"\r\n\0"))


@given(st.lists(line, min_size=1), st.lists(st.integers(0, 10_000)), st.sampled_from([b"\n", b"\r\n", b"\0", b"\n\n"]))
def test_lines(messages: list[bytes], cuts: list[int], end: bytes) -> None:
    assert framed(cut(b"".join(one + end for one in messages), cuts)) == messages


@given(st.lists(whole, min_size=1), st.lists(st.integers(0, 10_000)))
def test_counted_octets(messages: list[bytes], cuts: list[int]) -> None:
    assert framed(cut(b"".join(b"%d %s" % (len(one), one) for one in messages), cuts)) == messages


@given(st.lists(st.integers(0, 10_000)))
def test_one_too_long_is_cut_off_and_the_next_is_read(cuts: list[int]) -> None:
    long = b"<1>" + b"x" * 500
    found = framed(cut(b"%d %s%d %s" % (len(long), long, 4, b"<2>y"), cuts))
    assert found == [long[: MOST + 1], b"<2>y"]
    *first, last = framed(cut(long + b"\n<2>y\n", cuts))
    assert last == b"<2>y"
    [cut_off] = first
    assert long.startswith(cut_off)
    assert len(cut_off) > MOST


def test_the_last_line_needs_no_end() -> None:
    assert framed([b"<1>a\n<1>b"]) == [b"<1>a", b"<1>b"]


def test_a_count_that_is_none_ends_the_connection() -> None:
    with pytest.raises(OutOfStep):
        framed([b"4 <1>axyz <1>b"])


def test_line_ends_for_ever_after_a_counted_message_take_no_memory() -> None:
    async def feed() -> tuple[int, list[bytes]]:
        pool, framer = Pool(1 << 20), SyslogFramer(MOST)
        framer.feed(b"4 <1>a", pool, "here")
        for _ in range(50):
            framer.feed(b"\n" * 65_536, pool, "here")
        held = len(framer._rest)
        framer.feed(b"4 <1>b", pool, "here")
        return held, [message for one in pool.take_rest() for message in one.messages]

    assert asyncio.run(feed()) == (0, [b"<1>a", b"<1>b"])


@given(st.lists(whole, min_size=1), st.lists(st.integers(0, 10_000)))
def test_counted_octets_with_line_ends_as_well(messages: list[bytes], cuts: list[int]) -> None:
    assert framed(cut(b"".join(b"%d %s\n\n" % (len(one), one) for one in messages), cuts)) == messages
