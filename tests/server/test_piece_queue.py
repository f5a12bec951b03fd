"""Pieces between a reading thread and a slow client: in order, bounded, and never for ever."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest

from headrace.errors import DeadlineExceeded, QueryFailed
from headrace.server import piece_queue
from headrace.server.piece_queue import PieceQueue


@pytest.fixture(autouse=True)
def _little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(piece_queue, "MEMORY_BYTES", 100)


async def take_all(queue: PieceQueue) -> list[bytes]:
    found = []
    while not queue.ended:
        assert await queue.wait(60)
        piece = queue.take()
        if piece is not None:
            found.append(piece)
    return found


def test_reading_does_not_wait_for_a_client_that_takes_nothing(tmp_path: Path) -> None:
    """So its read transaction ends. Everything comes in order, from memory and from disk."""

    async def work() -> list[bytes]:
        queue = PieceQueue(asyncio.get_running_loop(), tmp_path, 1_000_000)
        for number in range(1000):
            queue.put(b"%d" % number, time.monotonic() + 60)
        queue.end()
        return await take_all(queue)

    assert asyncio.run(work()) == [b"%d" % number for number in range(1000)]
    assert list(tmp_path.iterdir()) == []


def test_beyond_its_share_of_the_disk_reading_waits_and_then_goes_on(tmp_path: Path) -> None:
    async def work() -> list[bytes]:
        queue = PieceQueue(asyncio.get_running_loop(), tmp_path, 500)

        def produce() -> None:
            for number in range(1000):
                queue.put(b"%03d" % number, time.monotonic() + 60)
            queue.end()

        producer = threading.Thread(target=produce)
        producer.start()
        found = await take_all(queue)
        producer.join(60)
        return found

    assert asyncio.run(work()) == [b"%03d" % number for number in range(1000)]


def test_it_does_not_wait_for_ever(tmp_path: Path) -> None:
    async def work() -> None:
        queue = PieceQueue(asyncio.get_running_loop(), tmp_path, 500)
        for _ in range(12):
            queue.put(b"x" * 50, time.monotonic())
        with pytest.raises(DeadlineExceeded, match="too slowly") as raised:
            queue.put(b"x", time.monotonic())
        assert "stream_seconds" in (raised.value.hint or "")

    asyncio.run(work())


def test_a_client_that_leaves_ends_the_waiting(tmp_path: Path) -> None:
    async def work() -> None:
        queue, raised = PieceQueue(asyncio.get_running_loop(), tmp_path, 500), []

        def produce() -> None:
            try:
                while True:
                    queue.put(b"x" * 50, time.monotonic() + 60)
            except QueryFailed as error:
                raised.append(error)

        producer = threading.Thread(target=produce)
        producer.start()
        assert await queue.wait(60)
        queue.close()
        producer.join(60)
        assert [error.message for error in raised] == ["nobody waits for the answer any more"]

    asyncio.run(work())


def test_an_error_comes_after_what_was_read_before(tmp_path: Path) -> None:
    async def work() -> None:
        queue = PieceQueue(asyncio.get_running_loop(), tmp_path, 500)
        queue.put(b"a", time.monotonic() + 60)
        queue.fail(ValueError("broken"))
        assert await take_all(queue) == [b"a"]
        assert str(queue.error) == "broken"

    asyncio.run(work())
