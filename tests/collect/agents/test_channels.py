"""What every channel promises, and what the one on disk promises besides."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.collect.agents.base import AgentError, Channel, ChannelFull, Event
from headrace.collect.agents.channels import file as file_channel
from headrace.collect.agents.channels import memory as memory_channel
from headrace.collect.agents.channels import spool
from headrace.collect.agents.channels.file import FileChannel
from headrace.collect.agents.channels.memory import MemoryChannel
from headrace.collect.agents.options import read_options
from headrace.collect.agents.selectors import ChannelProcessor, replicating
from headrace.errors import ConfigError
from tests.collect.agents.making import bodies, counters, events, put, take

Make = Callable[..., Channel]


@pytest.fixture(params=["memory", "file"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    made: list[Channel] = []

    def make_channel(capacity: int = 100, transaction: int = 100) -> Channel:
        if request.param == "memory":
            made.append(MemoryChannel("c", counters(), capacity, transaction, patience_s=0.05))
        else:
            folder = tmp_path / str(len(made))
            made.append(FileChannel("c", counters(), folder, capacity, transaction, patience_s=0.05))
        return made[-1]

    yield make_channel
    for channel in made:
        channel.close()


def test_first_in_is_first_out(make: Make) -> None:
    channel = make()
    put(channel, "a", "b")
    put(channel, "c")
    assert channel.size() == 3
    assert take(channel, 2) == ["a", "b"]
    assert take(channel, 2) == ["c"]
    assert channel.size() == 0
    assert take(channel) == []


def test_headers_and_ids_stay(make: Make) -> None:
    channel = make()
    event = Event(b"\x00\xff body", {"host": "wéb", "empty": ""}, "id-1")
    with channel.transaction() as transaction:
        transaction.put([event])
    with channel.transaction() as transaction:
        assert transaction.take(1) == [event]


def test_what_is_rolled_back_was_never_put(make: Make) -> None:
    channel = make()
    transaction = channel.transaction()
    transaction.put(events("a"))
    transaction.rollback()
    assert channel.size() == 0
    assert take(channel) == []


def test_what_was_not_delivered_is_at_the_head_again(make: Make) -> None:
    channel = make()
    put(channel, "a", "b", "c")
    transaction = channel.transaction()
    assert bodies(transaction.take(2)) == ["a", "b"]
    transaction.rollback()
    assert channel.size() == 3
    assert take(channel) == ["a", "b", "c"]


def test_two_takers_get_different_events(make: Make) -> None:
    channel = make()
    put(channel, "a", "b", "c", "d")
    first, second = channel.transaction(), channel.transaction()
    assert bodies(first.take(2)) == ["a", "b"]
    assert bodies(second.take(1)) == ["c"]
    second.commit()
    first.rollback()
    assert take(channel) == ["a", "b", "d"]


def test_a_full_channel_says_so_and_takes_again_when_there_is_room(make: Make) -> None:
    channel = make(capacity=2)
    put(channel, "a", "b")
    with pytest.raises(ChannelFull, match="is full"):
        put(channel, "c")
    with channel.transaction() as transaction:
        transaction.take(1)
        # Taken is not gone: until the commit it needs its place.
        with pytest.raises(ChannelFull):
            put(channel, "c")
    put(channel, "c")
    assert take(channel) == ["b", "c"]


def test_a_put_waits_for_room(make: Make) -> None:
    channel = make(capacity=1)
    channel.room.patience_s = 120  # type: ignore[attr-defined]
    put(channel, "a")
    waiting = threading.Thread(target=put, args=(channel, "b"))
    waiting.start()
    assert take(channel) == ["a"]
    waiting.join(120)
    assert take(channel) == ["b"]


def test_a_transaction_has_its_limit(make: Make) -> None:
    channel = make(transaction=2)
    with pytest.raises(ChannelFull, match="transactionCapacity"):
        put(channel, "a", "b", "c")
    put(channel, "a", "b")
    put(channel, "c")
    assert take(channel, 100) == ["a", "b"]


def test_bytes_are_bounded_too() -> None:
    channel = MemoryChannel("c", counters(), 100, 100, byte_capacity=10, patience_s=0.0)
    put(channel, "12345", "1234")
    with pytest.raises(ChannelFull, match="is full"):
        put(channel, "12")
    with pytest.raises(ChannelFull, match="never"):
        put(channel, "123456", "123456")
    take(channel)
    put(channel, "1234567890")


# The one on disk


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "channel"


def open_file(folder: Path, file_bytes: int = 4096, **more: int) -> FileChannel:
    return FileChannel("c", counters(), folder, 100_000, 10_000, 0.05, file_bytes, **more)


def test_events_are_there_after_a_restart(folder: Path) -> None:
    channel = open_file(folder)
    put(channel, "a", "b", "c")
    assert take(channel, 1) == ["a"]
    with channel.transaction() as transaction:
        transaction.take(1)
        transaction.rollback()
    channel.close()
    channel = open_file(folder)
    assert channel.size() == 2
    put(channel, "d")
    assert take(channel) == ["b", "c", "d"]
    channel.close()


def test_an_event_without_an_id_gets_one_that_stays(folder: Path) -> None:
    channel = open_file(folder)
    put(channel, "a", "b")
    with channel.transaction() as transaction:
        first = [event.id for event in transaction.take(2)]
        transaction.rollback()
    channel.close()
    channel = open_file(folder)
    with channel.transaction() as transaction:
        assert [event.id for event in transaction.take(2)] == first
    assert len(set(first)) == 2
    assert None not in first
    channel.close()


def test_files_that_are_done_with_are_deleted(folder: Path) -> None:
    channel = open_file(folder)
    for number in range(50):
        put(channel, "x" * 500 + str(number))
    assert len(list(folder.glob("log-*"))) > 3
    assert [text[500:] for text in take(channel)] == [str(number) for number in range(50)]
    put(channel, "y" * 5000)
    put(channel, "z")
    assert len(take(channel)) == 2
    assert len(list(folder.glob("log-*"))) <= 2
    channel.close()


def test_a_torn_write_is_cut_off(folder: Path) -> None:
    channel = open_file(folder)
    file = folder / "log-1"
    put(channel, "a")
    first = file.stat().st_size
    put(channel, "b")
    channel.close()
    whole = file.read_bytes()
    for cut in range(first + 1, len(whole)):
        file.write_bytes(whole[:cut])
        channel = open_file(folder)
        assert channel.size() == 1
        channel.close()
    channel = open_file(folder)
    put(channel, "c")
    assert take(channel) == ["a", "c"]
    channel.close()


def test_damage_costs_its_own_events_only_and_is_set_aside(folder: Path) -> None:
    channel = open_file(folder, file_bytes=256)
    for number in range(20):
        put(channel, f"event number {number} " + "x" * 100)
    channel.close()
    file = folder / "log-2"
    data = bytearray(file.read_bytes())
    at = data.index(b"event number")
    lost = int(data[at:].split(b" ")[2])
    data[at + 20] ^= 0xFF
    file.write_bytes(data)
    channel = open_file(folder, file_bytes=256)
    assert [int(text.split()[2]) for text in take(channel)] == [number for number in range(20) if number != lost]
    assert channel.size() == 0
    assert channel.counters.read()["EventsDamagedCount"] == 1
    assert len(list(folder.glob("damaged-*"))) == 1
    channel.close()


def test_a_full_disk_refuses_and_keeps_what_it_has(folder: Path) -> None:
    channel = open_file(folder)
    put(channel, "a")
    channel.spool._min_free = 2**62
    with pytest.raises(AgentError, match="cannot be written"):
        put(channel, "b")
    assert channel.size() == 1
    channel.spool._min_free = 0
    put(channel, "c")
    assert take(channel) == ["a", "c"]
    channel.close()


def test_a_folder_has_one_channel(folder: Path) -> None:
    channel = open_file(folder)
    with pytest.raises(ConfigError, match="another agent uses"):
        open_file(folder)
    channel.close()
    open_file(folder).close()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(1, 7)),
        st.tuples(st.just("take"), st.integers(1, 9)),
        st.tuples(st.just("roll back"), st.integers(1, 9)),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=25, deadline=None)
@given(STEPS)
def test_it_is_a_queue_whatever_happens(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]) -> None:
    folder = tmp_path_factory.mktemp("channel")
    channel, number, waiting = open_file(folder, file_bytes=300), 0, list[str]()
    for what, count in steps:
        match what:
            case "put":
                texts = [f"event {n}" for n in range(number, number + count)]
                number += count
                put(channel, *texts)
                waiting += texts
            case "take":
                assert take(channel, count) == waiting[:count]
                del waiting[:count]
            case "roll back":
                transaction = channel.transaction()
                assert bodies(transaction.take(count)) == waiting[:count]
                transaction.rollback()
            case _:
                channel.close()
                channel = open_file(folder, file_bytes=300)
        assert channel.size() == len(waiting)
    assert take(channel, 10_000) == waiting
    channel.close()
    assert sum(os.path.getsize(file) for file in folder.glob("log-*")) < 20_000


def test_a_number_never_comes_twice(folder: Path) -> None:
    """A new file was begun, the old one is deleted, and nothing was put yet: then the process is killed."""
    channel = open_file(folder, file_bytes=100)
    put(channel, "a" * 200)
    with channel.transaction() as transaction:
        [first] = transaction.take(1)
    channel.spool._begin(2)
    channel.close()
    assert [file.name for file in folder.glob("log-*")] == ["log-2"]
    channel = open_file(folder, file_bytes=100)
    put(channel, "b")
    with channel.transaction() as transaction:
        [second] = transaction.take(1)
    assert first.id != second.id
    channel.close()


def test_a_take_ends_after_so_many_bytes(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sink's batch of 10,000 may be of lines of megabytes."""
    for module in (memory_channel, spool):
        monkeypatch.setattr(module, "TAKE_BYTES", 25)
    channel = make()
    for letter in "abcdef":
        put(channel, letter * 10)
    assert [take(channel), take(channel)] == [["a" * 10, "b" * 10, "c" * 10], ["d" * 10, "e" * 10, "f" * 10]]


def processor(channel: Channel) -> ChannelProcessor:
    selector = replicating(["c"], read_options("it", (), {}, 1)[0].changed("optional", None))
    return ChannelProcessor({"c": channel}, selector, lambda events: events, counters("source", "r"))


def test_a_batch_that_never_fits_goes_in_pieces() -> None:
    """Records of a Kafka source, say, are as large as they are: tried again as they came, they would wait for ever."""
    channel = MemoryChannel("c", counters(), 100, 100, byte_capacity=25, patience_s=60.0)
    taken: list[str] = []

    def drain() -> None:
        while len(taken) < 8:
            taken.extend(take(channel, 1))

    draining = threading.Thread(target=drain)
    draining.start()
    sent = [letter * 10 for letter in "abcdefg"] + ["larger than the channel, all by itself"]
    processor(channel)(events(*sent))
    draining.join(120)
    assert taken == sent
    assert (channel.size(), channel.room.bytes) == (0, 0)


def test_what_is_too_much_for_a_frame_goes_in_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_channel, "FRAME_BYTES", 25)
    channel = FileChannel("c", counters(), tmp_path)
    processor(channel)(events("a" * 10, "b" * 10, "c" * 10, "d" * 30))
    assert [body[0] for body in take(channel)] == ["a", "b", "c", "d"]
    channel.close()
