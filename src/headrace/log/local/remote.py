"""The owner's desk and coordinator, seen from another process: over the socket."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import pyarrow as pa

from headrace.log.base import Acks, Appended
from headrace.log.local import wire
from headrace.log.local.connection import AppendChannel
from headrace.log.local.gather import Run
from headrace.log.local.group_operations import answer_from_json, beat_to_json, sent_to_json
from headrace.log.local.producers import Stamp
from headrace.log.local.services import Answer, Beat, SentOffsets

Request = Callable[[dict[str, Any]], dict[str, Any]]


class RemoteDesk:
    """Appends, stages and commits go down one connection, in order, without waiting for answers."""

    def __init__(self, request: Request, channel: AppendChannel) -> None:
        self._request, self._channel = request, channel

    def open(self, name: str | None) -> tuple[int, int]:
        answer = self._request({"op": "open_producer", "name": name})
        return answer["id"], answer["epoch"]

    def append(self, runs: Sequence[Run], acks: Acks, stamp: Stamp | None) -> Future[list[Appended]]:
        return self._channel.send({"op": "append", "acks": acks, "producer": stamp} | _entries(runs), _streams(runs))

    def stage(self, stamp: Stamp, task: int, runs: Sequence[Run], timeout_s: float) -> Future[list[Appended]]:
        request = {"op": "stage_sends", "producer": stamp, "task": task, "timeout_s": timeout_s}
        return self._channel.send(request | _entries(runs), _streams(runs))

    def commit(self, stamp: Stamp, tasks: int, offsets: Sequence[SentOffsets]) -> Future[list[Appended]]:
        sent = [sent_to_json(one) for one in offsets]
        return self._channel.send({"op": "commit_sends", "producer": stamp, "tasks": tasks, "offsets": sent}, [])

    def abort(self, stamp: Stamp) -> None:
        self._request({"op": "abort_sends", "producer": stamp})


def _entries(runs: Sequence[Run]) -> dict[str, Any]:
    appends = [{"topic": run.topic, "partition": run.partition, "cuts": run.cuts} for run in runs]
    return {"appends": appends, "arrow": True}


def _streams(runs: Sequence[Run]) -> list[pa.Buffer]:
    return [wire.encode_batches(run.batch.schema, [run.batch]) for run in runs]


class RemoteCoordination:
    def __init__(self, request: Request) -> None:
        self._request = request

    def beat(self, beat: Beat) -> Answer:
        return answer_from_json(self._request({"op": "group_beat"} | beat_to_json(beat)))

    def keep_alive(self, group: str, member: str) -> None:
        self._request({"op": "group_alive", "group": group, "member": member})

    def leave(self, group: str, member: str) -> None:
        self._request({"op": "group_leave", "group": group, "member": member})

    def commit(self, sent: SentOffsets) -> None:
        self._request({"op": "group_commit"} | sent_to_json(sent))
