"""Two versions' rows, without a log: what counts as a difference."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace.sql.source import Source
from headrace.types import BIGINT, DOUBLE, VARCHAR, Array, Column
from headrace.views.difference import _Tally

COLUMNS = (Column("TOTAL", DOUBLE), Column("N", BIGINT), Column("MANY", Array(DOUBLE)))


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ([0.1 + 0.2 + 0.3, 1, []], [0.3 + 0.2 + 0.1, 1, []], "same"),
        ([0.0, 1, [0.1 + 0.2]], [0.0, 1, [0.3]], "same"),
        ([0.1, 1, []], [0.1001, 1, []], "changed"),
        ([0.0, 2**60, []], [0.0, 2**60 + 1, []], "changed"),
        ([0.0, 1, []], [None, 1, []], "changed"),
    ],
)
def test_the_last_digits_of_a_double_depend_on_cuts_and_do_not_count(old: list[Any], new: list[Any], kind: str) -> None:
    source = Source("T", "table", "T", (Column("K", VARCHAR),), COLUMNS)
    tally = _Tally(source, source)
    tally.add(msgspec.json.encode(["a"]), old, new)
    assert {name for name, count in tally.counts.items() if count} == {kind}
