"""A Lambda view's batch layer, computed again after something else was done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace.cli.deploy import who
from headrace.cli.deployment import follow
from headrace.cli.options import view_path
from headrace.errors import HeadraceError, UsageError

if TYPE_CHECKING:
    from headrace.cli.api import Api


def check_refreshable(api: Api, views: Sequence[str]) -> None:
    """`UsageError` for one that has no batch layer, and will not have one by itself."""
    for view in views:
        versions = api.get(f"{view_path(view)}/versions")["versions"]
        serving = [version for version in versions if version["state"] == "serving"]
        if not any(one["layers"] or "REFRESH EVERY" in " ".join(one["statement"].upper().split()) for one in serving):
            raise UsageError(f"`{view}` has no batch layer", hint="headrace deploy --strategy lambda gives it one")


def refresh_now(api: Api, view: str, quiet: bool) -> dict[str, Any]:
    """What serves then. Fails if it does not come to that."""
    deployment = follow(api, api.post(f"{view_path(view)}/refresh", {"who": who()}), quiet)
    if deployment["stage"] != "switched":
        raise HeadraceError(
            f"deployment {deployment['id']} is {deployment['stage']}: `{view}` is not refreshed",
            detail=deployment["detail"] or None,
            hint=f"headrace view refresh {view}",
        )
    version = deployment["items"][0]["version"]
    if not quiet:
        print(f"version {version} of {view} serves, with a new batch layer")
    return {"view": view, "version": version}
