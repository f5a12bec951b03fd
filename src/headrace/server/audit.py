"""Who changed what, and who was refused: a line in the server's log and a record of the topic `_audit` each."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Literal

import pyarrow as pa
from starlette.requests import HTTPConnection

from headrace.access.limits import AddressLimit
from headrace.access.rights import Identity
from headrace.clock import Clock
from headrace.errors import HeadraceError
from headrace.log.base import Append, Log, TopicSpec
from headrace.types import VARCHAR, Column

TOPIC = "_audit"
COLUMNS = ("WHO", "ADDRESS", "OUTCOME", "ACTION", "DETAIL")
SPEC = TopicSpec(TOPIC, value=tuple(Column(name, VARCHAR) for name in COLUMNS), partitions=1)
LONGEST = 2000
IDENTITY, ROLE, DETAIL, REFUSAL = "headrace.identity", "headrace.role", "headrace.detail", "headrace.refusal"
"""What is noted of a request in its scope: who asked, the strongest role that was asked for, what it is about, and
that it was refused in an answer of another status."""

Outcome = Literal["done", "failed", "refused"]
logger = logging.getLogger("headrace.audit")


class Audit:
    """Without a log, as in collector processes, only lines are written. Safe to use from several threads."""

    def __init__(self, log: Log | None, run: Callable[..., object], clock: Clock) -> None:
        self._log, self._run, self._lock = log, run, threading.Lock()
        self._refusals = AddressLimit(clock)

    def note(self, connection: HTTPConnection, status: int) -> None:
        """Note a request that was answered, if it was refused, or if it was for `admin` and not only looked."""
        scope = connection.scope
        outcome: Outcome
        if status in (401, 403) or REFUSAL in scope:
            outcome = "refused"
        elif scope.get(ROLE) == "admin" and scope.get("method", "GET") != "GET":
            outcome = "done" if status < 400 else "failed"
        else:
            return
        if outcome == "refused" and self._refusals.add(_address(connection)):
            # Whoever is refused all the time does not fill the disk.
            return
        action = f"{scope.get('method', 'WebSocket')} {scope['path']}"
        self.write(scope.get(IDENTITY), _address(connection), outcome, action, scope.get(DETAIL, ""))

    def write(self, who: Identity | None, address: str, outcome: Outcome, action: str, detail: str) -> None:
        title = "nobody known" if who is None else who.title
        texts = [_one_line(text) for text in (title, address, outcome, action, detail)]
        logger.info("%s from %s: %s %s%s", texts[0], texts[1], outcome, texts[3], f" ({texts[4]})" if detail else "")
        if self._log is not None:
            self._run(self._append, texts)

    def _append(self, texts: list[str]) -> None:
        assert self._log is not None
        try:
            with self._lock:
                self._log.create_topic(SPEC)
            row = {name: pa.array([text], pa.string()) for name, text in zip(COLUMNS, texts, strict=True)}
            self._log.append([Append(TOPIC, pa.record_batch(row))])
        except (HeadraceError, OSError) as error:
            logger.warning("a line of the audit is in this file only: %s", error)


def _address(connection: HTTPConnection) -> str:
    return connection.client.host if connection.client else ""


def _one_line(text: str) -> str:
    return " ".join(text.encode("utf-8", "backslashreplace").decode().split())[:LONGEST]
