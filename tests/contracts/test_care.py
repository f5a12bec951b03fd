"""Caring for a log: damage, deletion of records."""

from __future__ import annotations

import pytest

from headrace.errors import UsageError
from headrace.log.base import Log
from tests.log.support import PLAIN, put


@pytest.mark.needs("quarantine")
def test_nothing_is_set_aside_that_is_not_damaged(log: Log) -> None:
    log.create_topic(PLAIN)
    put(log, "plain", N=[1])
    with pytest.raises(UsageError):
        log.quarantine("plain", 0, 0)
