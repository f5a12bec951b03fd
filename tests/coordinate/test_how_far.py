"""How far queries are, by what they have committed and where they began."""

from __future__ import annotations

import pyarrow as pa

from headrace.clock import ManualClock
from headrace.coordinate.abreast import has_read_no_less
from headrace.coordinate.base import QueryDefinition
from headrace.coordinate.how_far import lag_of, read_by
from headrace.log.base import Append, BatchIdentity, TopicSpec
from headrace.log.local.open import LocalLog
from headrace.types import VARCHAR, Column


def query(name: str, starts: dict[str, dict[int, int]]) -> QueryDefinition:
    return QueryDefinition(name, 1, "", name, ("CLICKS",), reads={"CLICKS": "clicks"}, starts=starts)


def test_what_is_before_the_start_of_a_replay_is_not_left_to_read(log: LocalLog, clock: ManualClock) -> None:
    log.create_topic(TopicSpec("clicks", value=(Column("PAGE", VARCHAR),)))
    log.create_topic(TopicSpec("out", value=(Column("PAGE", VARCHAR),), role="derived"))
    page = pa.record_batch({"PAGE": ["/"] * 5})
    log.append([Append("clicks", page)]).result()
    old, new = query("OLD_1", {}), query("NEW_2", {"clicks": {0: 5}})
    assert (lag_of(log, old), lag_of(log, new)) == (5, 0)
    # The first batch of a replay from now on has no record, and so no arrival number to name.
    for one, offsets in ((old, '{"arrival": 99}'), (new, '{"arrival": 0, "partitions": {"0": 5}}')):
        log.commit(one.id, [], BatchIdentity(one.id, 1, "by hand", 0, offsets))
    assert (lag_of(log, new), read_by(log, old), read_by(log, new)) == (0, 5, 0)
    assert has_read_no_less(log, old, new)
    log.append([Append("clicks", page)]).result()
    assert (lag_of(log, new), lag_of(log, new, log.snapshot().arrival)) == (5, 5)
