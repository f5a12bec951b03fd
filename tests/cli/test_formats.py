"""Rows for other programs."""

from __future__ import annotations

import io
import sys
from decimal import Decimal

import pyarrow as pa
import pytest

from headrace.cli.formats import Format, LiveTable, open_writer


def test_rows_as_arrow_have_their_types(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(stream))
    columns = [{"name": "n", "type": "DECIMAL(4, 2)"}, {"name": "tags", "type": "ARRAY<VARCHAR>"}]
    writer = open_writer(Format.arrow, columns, live=True)
    writer.write([["1.50", ["a"]]])
    writer.write([[None, None]])
    writer.close()
    table = pa.ipc.open_stream(stream.getvalue()).read_all()
    assert table.to_pylist() == [{"n": Decimal("1.50"), "tags": ["a"]}, {"n": None, "tags": None}]


def test_rows_that_come_are_in_columns(capsys: pytest.CaptureFixture[str]) -> None:
    columns = [{"name": "page", "type": "VARCHAR"}, {"name": "n", "type": "BIGINT"}]
    table = LiveTable(columns, width=40)
    table.write([["/a", 7], ["/a/very/long/address/indeed", 123], ["two\nlines", None]])
    table.close()
    heading, *lines = capsys.readouterr().out.splitlines()
    assert "page        n" in heading
    assert lines == ["/a                   7", "/a/very/long/addr…         123", "two⏎lines"]


VALUES = [1234567, Decimal("0.00012"), Decimal("12345678901234567890.50"), [Decimal("1.50"), None], True, None]


@pytest.mark.parametrize(
    ("format_", "live", "expected"),
    [
        (Format.table, False, "1234567  0.00012  12345678901234567890.50  [1.50, null]  true"),
        (Format.table, True, "1234567\t0.00012\t12345678901234567890.50\t[1.50, null]\ttrue\t"),
        (Format.csv, True, '1234567,0.00012,12345678901234567890.50,"[1.50, null]",true,'),
        (
            Format.json,
            True,
            '{"a": 1234567, "b": 0.00012, "c": 12345678901234567890.50, "d": [1.50, null], "e": true, "f": null}',
        ),
    ],
)
def test_values_are_shown_as_they_are(
    format_: Format, live: bool, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """To the last digit, and so that they can be asked for."""
    columns = [{"name": name, "type": "VARCHAR"} for name in "abcdef"]
    writer = open_writer(format_, columns, live)
    writer.write([VALUES])
    writer.close()
    assert capsys.readouterr().out.splitlines()[-1] == expected
