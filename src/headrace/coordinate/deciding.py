"""Whether a deployment that was compared goes on by itself, or waits for somebody."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.coordinate.catalog import Catalog
from headrace.types import display_name
from headrace.views.difference import Comparison
from headrace.views.versions import Deployment, Stage


def removed_columns(catalog: Catalog, deployment: Deployment) -> list[str]:
    """Columns of what serves that its new version does not have: whoever reads them would miss them."""
    found = []
    for item in deployment.items:
        versions = catalog.state.versions.get(item.name, {})
        old, new = versions.get(item.before), versions.get(item.number)
        if old is not None and new is not None:
            kept = {column.name for column in new.source.columns}
            gone = [display_name(column.name) for column in old.source.columns if column.name not in kept]
            found += [f"`{display_name(item.name)}` has no `{name}` any more" for name in gone]
    return found


def decide(deployment: Deployment, comparisons: list[Comparison], removed: Sequence[str] = ()) -> tuple[Stage, str]:
    """The stage after a comparison, and why."""
    if deployment.approved:
        return "switching", ""
    worst = max(comparisons, key=lambda comparison: comparison.share, default=None)
    reasons = list(removed)
    if worst is not None and worst.different:
        rows = f"{worst.different:,} of {worst.same + worst.different:,} rows of `{worst.view}` differ"
        reasons.insert(0, f"{rows} ({worst.share:.2%})")
    found = "; ".join(reasons)
    if deployment.max_changed is not None:
        # Who gives a gate has said what may be different without being asked.
        if worst is None or worst.share <= deployment.max_changed:
            return "switching", "; ".join(removed)
        return "waiting", f"{found}, and {deployment.max_changed:.2%} may"
    return ("waiting", f"{found}: somebody has to approve") if reasons else ("switching", "")
