"""Where statements made in Python go: to whoever collects them, such as the file in pipelines/ they stand in."""

from __future__ import annotations

import runpy
import traceback
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType

from headrace.errors import HeadraceError, SqlError


@dataclass(frozen=True, slots=True)
class Made:
    """A statement, and the line that made it."""

    text: str
    file: str
    line: int


@dataclass(slots=True)
class Pipeline:
    """Collects what is made while it is open.

    >>> from headrace.fluent import stream
    >>> with Pipeline() as pipeline:
    ...     _ = stream("pageviews").filter("pageid = '/'").to("home")
    >>> pipeline.sql
    "CREATE STREAM HOME AS SELECT * FROM PAGEVIEWS WHERE PAGEID = '/';"
    """

    made: list[Made] = field(default_factory=list)
    _token: Token[Pipeline | None] | None = None

    def __enter__(self) -> Pipeline:
        self._token = _open.set(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._token is not None
        _open.reset(self._token)

    @property
    def sql(self) -> str:
        """All statements, in the order they were made."""
        return "\n".join(one.text for one in self.made)


_open: ContextVar[Pipeline | None] = ContextVar("pipeline", default=None)


def register(text: str, caller: FrameType) -> None:
    """Outside of any pipeline a statement is only made: `print` shows it."""
    pipeline = _open.get()
    if pipeline is not None:
        pipeline.made.append(Made(text, caller.f_code.co_filename, caller.f_lineno))


def pipeline_text(file: Path) -> str:
    """The SQL of a file in pipelines/. A Python file is run, and each statement stands in the line that made it, so
    that whatever is said about a line is said about that one. `SqlError` if the file cannot be run."""
    if file.suffix != ".py":
        return file.read_text(encoding="utf-8")
    with Pipeline() as pipeline:
        try:
            runpy.run_path(str(file), run_name="headrace.pipeline")
        except SystemExit as error:
            raise _failed(error, file) from None
        except Exception as error:
            raise _failed(error, file) from error
    lines: list[str] = []
    for one in sorted((one for one in pipeline.made), key=lambda one: one.line if one.file == str(file) else 0):
        while one.file == str(file) and len(lines) < one.line - 1:
            lines.append("")
        # Where two were made in one line, or a loop made several, they stand one after the other in it.
        at_line = one.file == str(file) and len(lines) == one.line
        if at_line and lines:
            lines[-1] += f" {one.text}"
        else:
            lines.append(one.text)
    return "\n".join(lines)


def _failed(error: BaseException, file: Path) -> SqlError:
    """Where in the file it happened, and what."""
    line = next(
        (
            place.lineno or 1
            for place in reversed(traceback.extract_tb(error.__traceback__))
            if place.filename == str(file)
        ),
        getattr(error, "lineno", None) or 1,
    )
    ours = isinstance(error, HeadraceError)
    message = error.message if isinstance(error, HeadraceError) else f"{type(error).__name__}: {error}"
    hint = error.hint if isinstance(error, HeadraceError) else None
    return SqlError(message if ours else f"the file cannot be run: {message}", line=line, column=1, hint=hint)
