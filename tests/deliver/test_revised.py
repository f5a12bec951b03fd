"""A change that a repair made says so, and what was there before."""

from __future__ import annotations

import asyncio
from pathlib import Path

from headrace.deliver.base import FeedEvent
from headrace.deliver.feed import feed
from headrace.log.base import Append
from headrace.store.revisions import REVISIONS_SPEC, Revision, append_revisions
from tests.deliver.serving import Serving, take
from tests.store.changelog import PER_MINUTE
from tests.store.project import batch_of, write

FIRST = {"$window_start": 0, "$window_end": 60_000}


def test_a_revision_is_marked(tmp_path: Path) -> None:
    serving = Serving(tmp_path)
    try:
        serving.add(PER_MINUTE)
        serving.log.create_topic(REVISIONS_SPEC)
        write(serving.log, PER_MINUTE, {"PAGE": "/a", "VIEWS": 1, **FIRST}, {"PAGE": "/b", "VIEWS": 1, **FIRST})
        revision = Revision(
            "PER_MINUTE", 1, "Q", '{"page":"/a"}', 0, 60_000, '{"views":1}', '{"views":2}', late=1, ledger=1, time_ms=5
        )
        rows = Append("per_minute", batch_of(PER_MINUTE, [{"PAGE": "/a", "VIEWS": 2, **FIRST}]))
        serving.log.append([rows, append_revisions([revision])]).result()

        async def changes() -> list[FeedEvent]:
            return await take(feed(serving.delivery, "PER_MINUTE", start="beginning"), 3)

        first, other, revised = asyncio.run(changes())
        assert "revised" not in first.data
        assert "revised" not in other.data
        assert (revised.data["value"], revised.data["revised"]) == ({"views": 2}, {"old": {"views": 1}})
    finally:
        serving.close()
