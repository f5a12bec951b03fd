"""Whether a deployment that was compared goes on by itself, or waits for somebody."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.coordinate.catalog import Catalog
from headrace.coordinate.comparing import NotCompared
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


def decide(
    deployment: Deployment, found: Sequence[Comparison | NotCompared], removed: Sequence[str] = ()
) -> tuple[Stage, str]:
    """The stage after a comparison, and why."""
    unknown = [str(one) for one in found if isinstance(one, NotCompared)]
    if deployment.approved:
        return "switching", "; ".join(unknown)
    compared = [one for one in found if isinstance(one, Comparison)]
    worst = max(compared, key=lambda comparison: comparison.share, default=None)
    differing, gate = [], deployment.max_changed
    beyond = worst is not None and worst.different > 0 and (gate is None or worst.share > gate)
    if worst is not None and beyond:
        rows = f"{worst.different:,} of {worst.same + worst.different:,} rows of `{worst.view}` differ"
        may = "" if gate is None else f", and {gate:.2%} may"
        differing.append(f"{rows} ({worst.share:.2%}){may}")
    reasons = "; ".join([*unknown, *differing, *removed])
    if unknown or (gate is not None and beyond):
        return "waiting", reasons
    if gate is not None:
        # Who gives a gate has said what may be different without being asked.
        return "switching", reasons
    return ("waiting", f"{reasons}: somebody has to approve") if reasons else ("switching", "")
