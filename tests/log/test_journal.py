"""The journal: a torn tail is cut, damage in the middle is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import LogError
from headrace.log.base import BatchIdentity
from headrace.log.local import group, journal
from headrace.log.local.journal import Journal, decode_records, encode_record
from headrace.log.local.state import LogState, batch_payload, fold
from headrace.log.schema import topic_to_json
from headrace.log.writing.identities import CommittedBatch
from tests.log.support import PLAIN, numbers, open_owner, put

PAYLOADS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=20) | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)


@given(st.lists(st.tuples(st.integers(0, 2**32 - 1), PAYLOADS), max_size=6), st.binary(max_size=40))
def test_records_are_read_back_and_rubbish_after_them_is_not(records: list[tuple[int, Any]], rubbish: bytes) -> None:
    data = b"".join(encode_record(kind, payload) for kind, payload in records)
    assert [(kind, payload) for kind, payload, _ in decode_records(data + rubbish)] == records


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=5), st.data())
def test_a_cut_journal_is_a_shorter_one(payloads: list[int], data: st.DataObject) -> None:
    encoded = [encode_record(2, payload) for payload in payloads]
    whole = b"".join(encoded)
    cut = data.draw(st.integers(0, len(whole)))
    complete, size = 0, 0
    for record in encoded:
        size += len(record)
        complete += size <= cut
    assert [payload for _, payload, _ in decode_records(whole[:cut])] == payloads[:complete]


@given(st.integers(0, 10_000))
def test_a_flipped_bit_ends_the_records(bit: int) -> None:
    record = encode_record(2, [1, 2, {"three": "four"}])
    length = 16 + int.from_bytes(record[8:12], "little")
    bit %= length * 8
    damaged = bytearray(record)
    damaged[bit // 8] ^= 1 << bit % 8
    assert list(decode_records(bytes(damaged))) == []


def test_bytes_that_were_sent_never_pass_for_a_record(tmp_path: Path) -> None:
    """Someone sends a journal's record as a value, and the record that holds it is torn before it."""
    path = tmp_path / "journal"
    opened = Journal.create(path, LogState().to_payload())
    forged = encode_record(journal.GROUP, [1, 1, [], [], []])
    opened.append(journal.FULL_GROUP, [1, 1, [], [], [], [], [[1, 0, 0, 64, forged * 20]]])
    opened.close()
    torn = bytearray(path.read_bytes())
    torn[torn.index(b"HRJ1", 8) + 16] ^= 1
    for shift in range(8):
        path.write_bytes(torn + bytes(shift) + forged * 2)
        reopened, records = Journal.open(path)
        reopened.close()
        assert [kind for kind, _ in records] == [journal.SNAPSHOT]


def journal_with_groups(path: Path, groups: int) -> list[int]:
    """A journal of a snapshot and so many groups; returns the length after each."""
    opened = Journal.create(path, LogState().to_payload())
    lengths = [opened.length]
    for number in range(1, groups + 1):
        opened.append(journal.GROUP, [number, number * 10, [], [], []])
        lengths.append(opened.length)
    opened.close()
    return lengths


def test_a_torn_tail_is_cut_at_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    lengths = journal_with_groups(path, 3)
    whole = path.read_bytes()
    for size in range(lengths[2], lengths[3] + 1):
        path.write_bytes(whole[:size])
        opened, records = Journal.open(path)
        opened.cut()
        opened.close()
        complete = 3 if size == lengths[3] else 2
        assert fold(records).group == complete
        assert path.stat().st_size == opened.length == lengths[complete]


def test_damage_in_the_middle_is_not_taken_for_the_end(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    lengths = journal_with_groups(path, 3)
    damaged = bytearray(path.read_bytes())
    damaged[lengths[1] + 17] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(LogError, match="damaged in the middle") as raised:
        Journal.open(path)
    assert raised.value.data["position"] == lengths[1]
    assert path.read_bytes() == damaged


def test_only_what_was_synced_is_trusted_after_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    lengths = journal_with_groups(path, 3)
    opened, records = Journal.open(path, trusted=lengths[2])
    opened.cut()
    opened.close()
    assert (fold(records).group, path.stat().st_size) == (2, lengths[2])


def test_a_snapshot_says_what_the_records_said(tmp_path: Path) -> None:
    owner = open_owner(tmp_path / "log")
    topic = owner.create_topic(PLAIN)
    owner.close()
    batch = CommittedBatch(BatchIdentity("q", 1, "c", 0, "{}"), 7)
    state = fold(
        [
            (journal.SNAPSHOT, LogState().to_payload()),
            (journal.TOPIC, {"op": "created", "topic": topic_to_json(topic)}),
            (journal.GROUP, [1, 7, [[topic.id, 0, 7, 0, 640]], [[topic.id, 99]], [batch_payload(batch)]]),
            (journal.START, [topic.id, 0, 3]),
        ]
    )
    assert fold([(journal.SNAPSHOT, state.to_payload())]) == state
    assert (state.next_arrival, state.topics[topic.id].stream_time, state.next_topic_id) == (7, 99, topic.id + 1)


def test_a_long_journal_is_replaced_by_a_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MOST_BYTES", 2000)
    monkeypatch.setattr(group, "JOURNAL_BYTES", 0)
    log = open_owner(tmp_path / "log")
    log.create_topic(PLAIN)
    for number in range(100):
        put(log, "plain", N=[number])
    assert (tmp_path / "log" / "journal").stat().st_size < 3000
    log.close()
    again = open_owner(tmp_path / "log")
    assert numbers(again) == list(range(100))
    assert again.snapshot().arrival == 100
    again.close()
