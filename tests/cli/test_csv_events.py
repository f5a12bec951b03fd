"""CSV as people have it: blank lines, marks in front, any encoding, numbers that are no times, lines that break."""

from __future__ import annotations

import io
import json
import os
from typing import Any

import pytest

from headrace.cli.csv_events import read_csv, read_moment
from headrace.cli.event_texts import read_stream
from headrace.cli.file_rows import Rows
from headrace.cli.sending import batches
from headrace.errors import UsageError

COLUMNS = [{"name": "shop", "type": "VARCHAR"}, {"name": "sold", "type": "TIMESTAMP"}]


def read(data: bytes, **options: Any) -> list[tuple[int, dict[str, Any]]]:
    """Each event with its line."""
    found = []
    for rows in read_csv(io.BytesIO(data), COLUMNS, **options):
        found += [(line, json.loads(text)) for line, text in zip(rows.lines, rows.texts, strict=True)]
    return found


def test_blank_lines_before_the_heading_are_none_of_the_file() -> None:
    assert read(b"\xef\xbb\xbf\n  \r\n\nshop;till\na;1\n\nb;2\n") == [
        (5, {"shop": "a", "till": "1"}),
        (7, {"shop": "b", "till": "2"}),
    ]
    assert read(b"\n\n") == read(b"") == []


@pytest.mark.parametrize(
    ("encoding", "written"),
    [
        (None, "utf-8"),
        (None, "utf-8-sig"),
        ("utf-8", "utf-8-sig"),
        ("utf-8-sig", "utf-8"),
        ("utf-16", "utf-16"),
        ("utf-16-le", "utf-16-le"),
        ("utf-32", "utf-32"),
        ("latin-1", "latin-1"),
    ],
)
def test_a_mark_in_front_is_no_part_of_the_first_name(encoding: str | None, written: str) -> None:
    assert read("shop,till\nMünchen,1\n".encode(written), encoding=encoding) == [(2, {"shop": "München", "till": "1"})]
    assert read("\ufeffshop\nx\n".encode("utf-16-le"), encoding="utf-16-le") == [(2, {"shop": "x"})]


def test_what_is_in_another_encoding_is_said_with_the_one_it_may_be() -> None:
    with pytest.raises(UsageError, match="is not UTF-8") as latin:
        read("shop\nMünchen\n".encode("latin-1"))
    with pytest.raises(UsageError, match="is not UTF-8") as wide:
        read("shop\nMünchen\n".encode("utf-16"))
    with pytest.raises(UsageError, match="is not utf-16"):
        read(b"shop\nx\n", encoding="utf-16")
    assert (latin.value.hint, wide.value.hint) == ("--encoding latin-1", "--encoding utf-16")


def test_columns_without_a_name_behind_the_last_are_a_spreadsheets() -> None:
    assert read(b"shop,till,,\na,1,,\nb,2,,x\n") == [
        (2, {"shop": "a", "till": "1"}),
        (3, {"shop": "b", "till": "2", "$more": ["", "x"]}),
    ]
    with pytest.raises(UsageError, match="the heading names no field"):
        read(b",,\n1,2,3\n")


def test_only_what_can_be_milliseconds_is_taken_for_a_time() -> None:
    """The rest is left as it is, for the topic to reject with a reason."""
    times = ["1794744000000", " 1794744000000 ", "-2208988800000", "2026-11-15", "20261115", "20261115120000", "0"]
    assert [read_moment(text) for text in times] == [1794744000000, 1794744000000, -2208988800000, *times[3:]]
    assert read(b"shop,sold\na,20261115\nb,1794744000000\n") == [
        (2, {"shop": "a", "sold": "20261115"}),
        (3, {"shop": "b", "sold": 1794744000000}),
    ]


def test_what_comes_before_a_broken_line_is_there() -> None:
    found: list[Rows] = []
    with pytest.raises(UsageError, match="line 4 is not CSV"):
        found.extend(read_csv(io.BytesIO(b'shop\na\nb\n"c" d\ne\n'), COLUMNS))
    assert [json.loads(text)["shop"] for rows in found for text in rows.texts] == ["a", "b"]


def test_a_pipe_is_sent_as_it_comes() -> None:
    """Nobody writes on: what is there is sent all the same."""
    out, into = os.pipe()
    with os.fdopen(into, "wb", buffering=0) as writing, os.fdopen(out, "rb") as reading:
        sent = batches(read_stream(reading, "line", "csv", COLUMNS), 1)
        writing.write(b"shop\na\n")
        assert [json.loads(text) for text in next(sent).texts] == [{"shop": "a"}]
        writing.write(b"b\n")
        assert next(sent).place(0) == "line 3"
