"""Printing: tables for people, JSON for scripts, errors on stderr. Colour and width only on a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError, NotRunning, SqlError

if TYPE_CHECKING:
    from rich.console import Console

MOMENT_COLUMNS = {"windowstart", "windowend", "rowtime"}
# Points in time among the API's `_ms` fields (the others are durations).
MOMENTS = {
    "time_ms",
    "stream_time_ms",
    "window_start_ms",
    "window_end_ms",
    "started_ms",
    "updated_ms",
    "created_ms",
}


def console(stderr: bool = False) -> Console:
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    # In a pipe there is no width to fit: lines stay whole so that `grep` and `cut` work.
    width = None if stream.isatty() else 10_000
    return Console(file=stream, width=width, highlight=False, soft_wrap=not stream.isatty())


def print_json(body: Any) -> None:
    print(json_text(with_iso_times(body)), flush=True)


def json_text(value: Any) -> str:
    """One line; a decimal is a number with all its digits.

    >>> json_text({"a": Decimal("1.50"), "b": [1, "é"]})
    '{"a": 1.50, "b": [1, "é"]}'
    """
    import msgspec

    encoder = msgspec.json.Encoder(enc_hook=str, decimal_format="number")
    return msgspec.json.format(encoder.encode(value), indent=0).decode()


def with_iso_times(body: Any) -> Any:
    """
    >>> with_iso_times({"time_ms": 1500, "batch_ms": 7})
    {'time_ms': 1500, 'batch_ms': 7, 'time': '1970-01-01T00:00:01.500Z'}
    """
    if isinstance(body, list):
        return [with_iso_times(item) for item in body]
    if not isinstance(body, dict):
        return body
    result = {name: with_iso_times(value) for name, value in body.items()}
    for name, value in body.items():
        if name in MOMENTS and isinstance(value, int):
            result.setdefault(name.removesuffix("_ms"), iso_time(value))
    return result


def iso_time(milliseconds: int) -> str:
    return _moment(milliseconds).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def local_time(milliseconds: int | None) -> str:
    """In the user's zone, to the millisecond."""
    if milliseconds is None or milliseconds < 0:
        return "-"
    return _moment(milliseconds).astimezone().strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def _moment(milliseconds: int) -> datetime:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.max.replace(tzinfo=UTC)


def print_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[Any]],
    empty: str = "nothing",
    show: Callable[[Any], str] | None = None,
) -> None:
    """A plain table; numbers to the right. `empty` is what to say, and what to do, when there are no rows. `show` makes
    text of a value, as figures are for people (`cell`) unless it says otherwise."""
    show = show or cell
    from rich.table import Table
    from rich.text import Text

    rows = [list(row) for row in rows]
    if not rows:
        print(empty)
        return
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for index, heading in enumerate(headings):
        numeric = all(is_number(row[index]) or row[index] is None for row in rows)
        table.add_column(heading, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        # A tab is as wide as the terminal makes it, and rich would break the cell there.
        table.add_row(*(Text(show(value).expandtabs(4)) for value in row))
    for line in _rendered(table):
        print(line)


def print_rows(columns: Sequence[dict[str, str]], rows: Sequence[Sequence[Any]]) -> None:
    """A query's answer. Windows and row times are moments, though SQL has them as numbers."""
    moments = {place for place, column in enumerate(columns) if column["name"].lower() in MOMENT_COLUMNS}
    shown = [
        [local_time(v) if place in moments and isinstance(v, int) else v for place, v in enumerate(row)] for row in rows
    ]
    print_table([column["name"] for column in columns], shown, empty="no rows", show=data_text)


def _rendered(table: Any) -> list[str]:
    target = console()
    if target.is_terminal:
        target.print(table)
        return []
    with target.capture() as capture:
        # Only as wide as it needs to be: no padding up to the width of a pipe.
        target.print(table, crop=False)
    return [line.rstrip() for line in capture.get().splitlines()]


def is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def cell(value: Any) -> str:
    """
    >>> cell(1234567), cell(None), cell({"a": 1}), cell(0.5)
    ('1,234,567', '', '{"a": 1}', '0.5')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".") if abs(value) < 1e15 else repr(value)
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def data_text(value: Any) -> str:
    """A value of somebody's data, as it is: what is shown can be asked for.

    >>> data_text(1234567), data_text(0.00012), data_text(Decimal("1.50")), data_text([True, None]), data_text(None)
    ('1234567', '0.00012', '1.50', '[true, null]', '')
    """
    if value is None or isinstance(value, str):
        return value or ""
    return json_text(value)


def print_pairs(pairs: Iterable[tuple[str, Any]]) -> None:
    """Name and value, one a line."""
    shown = [(name, cell(value)) for name, value in pairs]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        print(f"{name:<{width}}  {value}".rstrip())


def bytes_text(count: int) -> str:
    """
    >>> bytes_text(512), bytes_text(3_400_000)
    ('512 B', '3.2 MiB')
    """
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def print_error(error: HeadraceError, as_json: bool = False) -> None:
    if as_json:
        print(json.dumps({"error": error.to_json()}, ensure_ascii=False, default=str), file=sys.stderr)
        return
    from rich.text import Text

    target = console(stderr=True)
    if isinstance(error, SqlError) and error.line:
        target.print(Text(error.source_line))
        target.print(Text(" " * (error.column - 1) + "^" * max(1, error.length), style="bold red"))
        target.print(Text(f"line {error.line}, column {error.column}: {error.message}", style="red"))
    else:
        target.print(Text(error.message, style="red"))
    for more in (error.detail, error.hint):
        for line in (more or "").splitlines():
            target.print(Text(f"  {line}"))


def exit_code(error: HeadraceError) -> int:
    return 3 if isinstance(error, NotRunning) else 1


class Progress:
    """One line on stderr that is overwritten, on a terminal only."""

    def __init__(self) -> None:
        self._on = sys.stderr.isatty()
        self._shown = False

    def show(self, read: int) -> None:
        """Say how many rows the server has read, as long as it sends none."""
        if self._on and read:
            self.say(f"{read:,} rows read")

    def say(self, text: str) -> None:
        if self._on:
            print(f"\r\x1b[2K… {text}", end="", file=sys.stderr, flush=True)
            self._shown = True

    def clear(self) -> None:
        if self._shown:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)
            self._shown = False


def place_text(arrival: int | None, inputs: Mapping[str, Mapping[str, int]]) -> str:
    """What a row includes: up to an arrival number, or where there is none, offsets by topic and partition.

    >>> place_text(1200, {}), place_text(None, {"a": {"0": 5, "1": 1200}})
    ('arrival 1,200', 'a 0:5 1:1,200')
    """
    if arrival is not None:
        return f"arrival {arrival:,}"
    return ", ".join(
        " ".join([topic, *(f"{number}:{offset:,}" for number, offset in places.items())])
        for topic, places in inputs.items()
    )


def duration(seconds: float) -> str:
    """
    >>> duration(1.4), duration(1.6), duration(75), duration(7000)
    ('a second', '2 seconds', '1 minute', '1.9 hours')
    """
    if seconds < 59.5:
        return "a second" if seconds < 1.5 else f"{seconds:.0f} seconds"
    if seconds < 3600:
        minutes = round(seconds / 60)
        return f"{minutes} minute{'s' * (minutes != 1)}"
    return f"{seconds / 3600:.1f} hours"
