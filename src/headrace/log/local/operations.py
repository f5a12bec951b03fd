"""What the owner does for other processes: one operation per `op` of its socket (docs/log-format.md)."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import asdict
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa

from headrace.errors import HeadraceError, UsageError
from headrace.log.base import Appended, BatchIdentity, Route
from headrace.log.local import wire
from headrace.log.local.gather import Chosen, Run
from headrace.log.local.group_operations import GroupOperations, sent_from_json, stamp_from_json
from headrace.log.schema import spec_from_json, topic_to_json

if TYPE_CHECKING:
    from headrace.log.local.log import LocalLog

logger = logging.getLogger(__name__)

Answer = bytes | Future[bytes]


class Operations(GroupOperations):
    """One method per `op`. Each consumes the Arrow streams that belong to its request, whatever happens."""

    def __init__(self, log: LocalLog, started_ms: int) -> None:
        self._log, self._started_ms = log, started_ms

    def run(self, request: dict[str, Any], file: IO[bytes]) -> Answer:
        """The answer, or the promise of one. Raises only if the connection cannot go on."""
        streams = len(request["appends"]) if isinstance(request.get("appends"), list) else 1
        streams = streams if request.get("arrow") else 0
        body = _Streams(file, streams)
        try:
            operation = getattr(self, f"op_{request.get('op')}", None)
            if operation is None:
                raise UsageError(f"the owner has no operation `{request.get('op')}`")
            result = operation(request, body)
            return result if isinstance(result, Future) else wire.answer(result or {})
        except HeadraceError as error:
            body.drain()
            return wire.failure(error)
        except (KeyError, TypeError, AttributeError) as error:
            body.drain()
            return wire.failure(UsageError("a request is incomplete", detail=f"{type(error).__name__}: {error}"))

    def op_hello(self, request: dict[str, Any], body: _Streams) -> dict[str, Any]:
        return {"pid": os.getpid(), "format": 2, "started_ms": self._started_ms}

    def op_create_topic(self, request: dict[str, Any], body: _Streams) -> dict[str, Any]:
        return {"topic": topic_to_json(self._log.create_topic(spec_from_json(request["topic"])))}

    def op_alter_topic(self, request: dict[str, Any], body: _Streams) -> dict[str, Any]:
        return {"topic": topic_to_json(self._log.alter_topic(spec_from_json(request["topic"])))}

    def op_delete_topic(self, request: dict[str, Any], body: _Streams) -> None:
        self._log.delete_topic(request["name"])

    def op_append(self, request: dict[str, Any], body: _Streams) -> Future[bytes]:
        several = request.get("appends")
        runs = _runs([request] if several is None else several, body)
        stamp = stamp_from_json(request["producer"]) if request.get("producer") else None
        future = self._log.desk.append(runs, request.get("acks", "all"), stamp)
        return _then(future, lambda done: _appended(done, several is not None))

    def op_stage_sends(self, request: dict[str, Any], body: _Streams) -> Future[bytes]:
        runs = _runs(request["appends"], body)
        stamp = stamp_from_json(request["producer"])
        future = self._log.desk.stage(stamp, request["task"], runs, request["timeout_s"])
        return _then(future, lambda done: _appended(done, True))

    def op_commit_sends(self, request: dict[str, Any], body: _Streams) -> Future[bytes]:
        stamp = stamp_from_json(request["producer"])
        sent = [sent_from_json(one) for one in request["offsets"]]
        return _then(self._log.desk.commit(stamp, request["tasks"], sent), lambda done: _appended(done, True))

    def op_stage(self, request: dict[str, Any], body: _Streams) -> dict[str, Any]:
        routes = [Route(route["topic"], route["columns"], route.get("order")) for route in request["routes"]]
        batches = body.next()
        rows = self._log.stage(request["transaction"], request["task"], request["attempt"], routes, batches)
        return {"rows": rows}

    def op_commit(self, request: dict[str, Any], body: _Streams) -> dict[str, Any]:
        identity = BatchIdentity(**request["identity"]) if request.get("identity") else None
        tasks = [(task, attempt) for task, attempt in request["tasks"]]
        return asdict(self._log.commit(request["transaction"], tasks, identity))

    def op_abort(self, request: dict[str, Any], body: _Streams) -> None:
        self._log.abort(request["transaction"])

    def op_identity(self, request: dict[str, Any], body: _Streams) -> dict[str, Any]:
        identity = self._log.last_identity(request["query"], request["version"])
        return {"identity": asdict(identity) if identity else None}

    def op_quarantine(self, request: dict[str, Any], body: _Streams) -> dict[str, Any]:
        first, after = self._log.quarantine(request["topic"], request["partition"], request["offset"])
        return {"from": first, "to": after}

    def op_rebuild_index(self, request: dict[str, Any], body: _Streams) -> None:
        self._log.rebuild_index(request["topic"], request["partition"], request["base"])

    def op_split(self, request: dict[str, Any], body: _Streams) -> dict[str, Any]:
        at = int(request["at"], 16) if "at" in request else None
        return {"partitions": self._log.split_partition(request["topic"], request["partition"], at)}

    def op_merge(self, request: dict[str, Any], body: _Streams) -> dict[str, Any]:
        one, other = request["partitions"]
        return {"partition": self._log.merge_partitions(request["topic"], one, other)}

    def op_places(self, request: dict[str, Any], body: _Streams) -> dict[str, Any]:
        return {"places": self._log.places(request["topic"], request["ids"])}

    def op_archive(self, request: dict[str, Any], body: _Streams) -> dict[str, Any]:
        return {"segments": self._log.archive_now(bool(request.get("seal")))}

    def op_call(self, request: dict[str, Any], body: _Streams) -> dict[str, Any]:
        try:
            return {"body": self._log.call(request["name"], request.get("body"))}
        except HeadraceError:
            raise
        except Exception as error:
            logger.exception("the call `%s` failed", request["name"])
            raise HeadraceError(f"the call `{request['name']}` failed", detail=str(error)) from error


class _Streams:
    """The Arrow streams that follow a request."""

    def __init__(self, file: IO[bytes], count: int) -> None:
        self._file, self._left = file, count
        self._current: Iterator[pa.RecordBatch] | None = None

    def next(self) -> Iterator[pa.RecordBatch]:
        if not self._left:
            raise UsageError("a request without its Arrow stream", hint='say "arrow": true and send it')
        self._left -= 1
        self._current = wire.read_batches(self._file)
        return self._current

    def drain(self) -> None:
        """Read over what the operation left, so that the next request begins where it should."""
        for _ in self._current or ():
            pass
        while self._left:
            for _ in self.next():
                pass


def _runs(entries: list[dict[str, Any]], body: _Streams) -> list[Run]:
    """The batches of a request, one for each entry."""
    runs = []
    for entry in entries:
        batches = list(body.next())
        batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches) if batches else _no_rows()
        cuts = tuple(int(rows) for rows in entry.get("cuts") or (batch.num_rows,))
        if sum(cuts) != batch.num_rows or min(cuts) < 0:
            raise UsageError(f"`cuts` do not add up to the {batch.num_rows} rows of the batch")
        runs.append(Run(entry["topic"], _chosen(entry.get("partition"), cuts), batch, cuts))
    return runs


def _chosen(partition: Any, cuts: tuple[int, ...]) -> Chosen:
    if not isinstance(partition, list):
        return None if partition is None else int(partition)
    if len(partition) != len(cuts):
        raise UsageError(f"{len(partition)} partitions for {len(cuts)} sends")
    return tuple(int(one) for one in partition)


def _no_rows() -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({})


def _appended(results: list[Appended], several: bool) -> bytes:
    bodies = [{"positions": one.positions, "duplicates": one.duplicates} for one in results]
    return wire.answer({"results": bodies} if several else bodies[0])


def _then(future: Future[list[Appended]], encode: Callable[[list[Appended]], bytes]) -> Future[bytes]:
    """The answer once the future is done; errors become answers too."""
    promised: Future[bytes] = Future()

    def done(finished: Future[list[Appended]]) -> None:
        error = finished.exception()
        if error is None:
            promised.set_result(encode(finished.result()))
        else:
            named = error if isinstance(error, HeadraceError) else HeadraceError("the owner failed", detail=str(error))
            promised.set_result(wire.failure(named))

    future.add_done_callback(done)
    return promised
