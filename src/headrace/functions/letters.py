"""A function's failure as a dead letter."""

from __future__ import annotations

import json
import logging

from headrace.errors import HeadraceError
from headrace.functions.compiled import Failure
from headrace.log.base import Log
from headrace.log.dead_letters import DeadLetter, bury

logger = logging.getLogger("headrace.functions")

ASKED = "a query that was asked"


def letter_of(failure: Failure, topic: str, query: str, written_once: str | None = None) -> DeadLetter:
    """The arguments that the function got, and where it failed. Its source says `function …`, by which such letters
    are told from events that were rejected."""
    source = f"function {failure.function.lower()} in {query}"
    return DeadLetter(topic, failure.reason, source, None, payload_of(failure, query), written_once)


def payload_of(failure: Failure, query: str) -> bytes:
    body = {
        "function": failure.function,
        "version": failure.version,
        "query": query,
        "arguments": json.loads(failure.arguments),
        "error": failure.error,
        "traceback": failure.trace,
    }
    return json.dumps(body, ensure_ascii=False).encode()


def tell_failure(log: Log, failure: Failure) -> None:
    """From the server, for whoever asked. An answer does not wait for it, and is not lost with it."""
    try:
        log.append([bury([letter_of(failure, "", ASKED)])])
    except HeadraceError as error:
        logger.warning("%s (no dead letter: %s)", failure.reason, error)
