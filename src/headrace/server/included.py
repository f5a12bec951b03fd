"""Reads that wait for writes: `after` names what a view or stream has to include before it is read.

`after` is the `token` that a write returned, `TOPIC@PARTITION:OFFSET,….EPOCH`; the event id of a feed, alone or as
`VIEW/ID`; or `now`, everything that was written before the read. A token without offsets, `TOPIC@`, is everything
that the topic holds when the read begins.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

from starlette.requests import Request

from headrace.access.rights import Resource
from headrace.collect.base import Outcome
from headrace.coordinate.including import Inclusion, moment_of, token_of
from headrace.deliver.ids import position_after
from headrace.errors import DeadlineExceeded, PositionOfAnotherLog, UsageError
from headrace.log.base import Log, PartitionEnds, Snapshot
from headrace.server.names import resolve
from headrace.server.services import Services
from headrace.sql.ask_plan import AskQuery
from headrace.sql.plan import PullQuery
from headrace.sql.source import Source

NOW = "now"
LOOK_S, LONGEST_LOOK_S = 0.002, 0.05
MAX_WAIT_S = 600.0
CLIENT_S = 1.0
"""How often to look whether the client still waits."""
_PLACE = r"[0-9]{1,9}:[0-9]{1,18}"
_TOKEN = re.compile(rf"(?P<topic>[^@/]+)@(?P<places>({_PLACE}(,{_PLACE})*)?)(\.(?P<epoch>[0-9a-f]{{1,32}}))?", re.ASCII)
_HINT = "take the `token` of a write, the event id of a feed (VIEW/ID), or `now`"


def token_of_outcome(log: Log, topic: str, outcome: Outcome) -> str | None:
    """Return what a read accepts as `after`, so that it includes the events of a write. None if nothing was written, or
    nobody waited for it. Events that were known are somewhere in the topic: then it is everything there."""
    if not outcome.positions and not outcome.duplicates:
        return None
    return token_of(log, topic, () if outcome.duplicates else outcome.positions)


async def wait_until_included(
    request: Request, services: Services, plan: PullQuery | AskQuery, after: Sequence[str], seconds: float
) -> None:
    """Return once all that the plan reads includes what `after` names. `DeadlineExceeded` after so many seconds, or
    when the client has left."""
    services.auth.check_each(request, "read", filter(None, map(_named_in, after)))
    inclusions = await services.run(_begin, services, plan, after)
    loop = asyncio.get_running_loop()
    end, pause, asked = loop.time() + seconds, LOOK_S, loop.time()
    for inclusion in inclusions:
        while not await services.run(inclusion.is_complete):
            gone = False
            if loop.time() > asked + CLIENT_S:
                asked, gone = loop.time(), await request.is_disconnected()
            if gone or loop.time() >= end or services.stopping.is_set():
                raise DeadlineExceeded(
                    f"what was written is not included after {seconds:g} s",
                    detail=await services.run(inclusion.missing),
                    hint="wait longer (`wait_ms`, `wait`), or see in `headrace status` whether the query runs",
                )
            await asyncio.sleep(pause)
            pause = min(LONGEST_LOOK_S, pause * 1.5)


def _named_in(text: str) -> Resource | None:
    """Return what an `after` is about, if it names that."""
    if token := _TOKEN.fullmatch(text):
        return Resource("topic", token["topic"])
    name, _, _ = text.rpartition("/")
    return Resource("view", name) if name else None


def _begin(services: Services, plan: PullQuery | AskQuery, after: Sequence[str]) -> list[Inclusion]:
    sources = (plan.source,) if isinstance(plan, PullQuery) else plan.inputs
    found = [_inclusion(services, source) for source in sources]
    for text in after:
        if text == NOW:
            for inclusion in found:
                inclusion.include_all()
        else:
            topic, moment = _moment(services, sources, text)
            reached = [inclusion for inclusion in found if inclusion.can_include(topic)]
            for inclusion in reached or found:
                inclusion.include(topic, moment)
    return [inclusion for inclusion in found if inclusion.moments]


def _inclusion(services: Services, source: Source) -> Inclusion:
    if source.kind != "table":
        return Inclusion(services.log, services.catalog, None, source.topic)
    return Inclusion(services.log, services.catalog, lambda: services.followers.view(source.name), source.topic)


def _moment(services: Services, sources: Sequence[Source], text: str) -> tuple[str, Snapshot]:
    log = services.log
    if token := _TOKEN.fullmatch(text):
        topic = log.topic(token["topic"]).name
        if not token["places"]:
            return topic, log.snapshot()
        pairs = (place.split(":") for place in token["places"].split(","))
        offsets = {int(partition): int(last) + 1 for partition, last in pairs}
        moment = moment_of(log, topic, offsets)
        _check_epoch(log, moment, token["epoch"], text)
        return topic, moment
    name, _, id_ = text.rpartition("/")
    known = {view.name: view for view in services.catalog.views()}
    tables = [source.name for source in sources if source.kind == "table"]
    if not name and len(tables) != 1:
        raise UsageError(f"`{text[:80]}` is not a position that can be waited for here", hint=_HINT)
    view = services.followers.view(
        resolve(name, known, "table", "SHOW TABLES lists what there is") if name else tables[0]
    )
    if "~" in id_:
        raise UsageError(f"`{id_[:80]}` is in the middle of a switch of versions", hint="take a later event id")
    position = position_after(log, log.snapshot(), view, id_)
    ends = tuple(PartitionEnds(0, position.offsets.get(n, 0)) for n in range(max(position.offsets, default=-1) + 1))
    return view.source.topic, Snapshot(position.arrival, {view.source.topic: ends}, {})


def _check_epoch(log: Log, moment: Snapshot, epoch: str | None, text: str) -> None:
    epochs = log.epochs()
    if epochs is None or epoch is None or epoch == epochs.current.id:
        return
    if not epochs.include(epoch, moment.arrival):
        raise PositionOfAnotherLog(
            f"`{text[:80]}` is not a position of this log",
            detail="the log was restored to an earlier moment since, or is another one; what was written may be lost",
            hint="look whether it is there, and write it again if not",
        )
