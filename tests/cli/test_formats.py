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
