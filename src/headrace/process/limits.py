"""What one query may take, so that it does not take it from the others."""

from __future__ import annotations

from headrace.config import SparkSettings
from headrace.errors import UsageError
from headrace.process.base import QuerySpec
from headrace.process.progress import Progress


class OverLimit(UsageError):
    """A query that keeps more than it may. Starting it again would end the same way."""

    code = "over_limit"


def check_limits(spec: QuerySpec, settings: SparkSettings, progress: Progress) -> None:
    """`OverLimit` if the query has more state than it may, by its own WITH or else by the project's settings."""
    _check("MAX_STATE_ROWS", "rows", progress.state_rows, spec.plan.limits.state_rows, settings.max_state_rows)
    _check("MAX_STATE_BYTES", "bytes", progress.state_bytes, spec.plan.limits.state_bytes, settings.max_state_bytes)


def _check(name: str, unit: str, kept: int, own: int | None, of_project: int) -> None:
    most = own if own is not None else of_project
    if most > 0 and kept > most:
        where = f"WITH ({name}={most})" if own is not None else f"`[spark] {name.lower()}`"
        raise OverLimit(
            f"its state has {kept:,} {unit}, more than the {most:,} it may have",
            detail=f"the limit is {where}; nothing is lost, and it goes on from where it is once it may",
            hint="CREATE OR REPLACE it with a higher limit, or let it keep less: fewer keys, a shorter grace",
        )
