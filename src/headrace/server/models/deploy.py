"""What the API says about plans, deployments and versions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from headrace.server.models.base import Count, Model


class PlanRequest(Model, frozen=True):
    """`files`: the pipelines' texts by their paths; the server's own if it does not say. `from_scratch`: whether to
    create them on an empty log too, which takes longer; only for admins, since it makes topics."""

    files: dict[str, str] | None = None
    in_place: bool = False
    strategy: Literal["kappa", "lambda"] = "kappa"
    from_scratch: bool = False


class ChangeModel(Model, frozen=True):
    name: str
    kind: Literal["stream", "table"]
    verdict: str
    reason: str
    hint: str
    file: str
    line: Count
    column: Count
    dependents: list[str]
    alerts: list[str]
    """Those that watch it by its name: they go on with the new version."""
    replays: Count
    seconds: float | None
    """About how long; null if no build has been measured yet."""
    offsets: dict[str, int]
    warnings: list[str]
    version: Count
    """That it would make; 0 if none."""
    serving: Count
    """The version that serves; 0 if none does."""
    statement: str
    old_statement: str
    strategy: Literal["kappa", "lambda"]
    """How it is computed: by a replay, or as a batch layer and a stream from its cut."""
    because: str = ""
    """If it is only refused because of another name: that name."""


class FunctionChangeModel(Model, frozen=True):
    """A Python function that is not what it was, and what calls it."""

    name: str
    file: str
    verdict: Literal["new", "changed", "gone"]
    used_by: list[str]
    topic: str = ""
    """Whose records it is called with; empty for one that is called in SQL."""


class PlanAnswer(Model, frozen=True):
    changes: list[ChangeModel]
    pending: Count
    refused: Count
    replays: Count
    seconds: float | None
    rows_per_second: float
    functions: list[FunctionChangeModel]
    from_scratch: list[str] = []
    """What would fail in a fresh clone, with file and line: the files do not say all that runs."""


class DeployRequest(Model, frozen=True, rename={"start": "from"}):
    """`gate`: such as `max_changed=0.1%`. `from`: `beginning`, `now`, an offset or a time."""

    files: dict[str, str] | None = None
    strategy: Literal["kappa", "lambda"] = "kappa"
    gate: str | None = None
    approve: bool = False
    in_place: bool = False
    start: str = "beginning"
    rows_per_second: Annotated[int, msgspec.Meta(ge=0)] = 0
    who: str = ""


class RestoreRequest(Model, frozen=True):
    """`before`: what there was before the deployment, instead of what it defined."""

    before: bool = False
    gate: str | None = None
    approve: bool = False
    rows_per_second: Annotated[int, msgspec.Meta(ge=0)] = 0
    who: str = ""


class RefreshRequest(Model, frozen=True):
    who: str = ""


class RebuildRequest(Model, frozen=True):
    names: list[str] = []
    """Streams and tables; none: those whose queries have failed."""
    accept_loss: bool = False
    """Compute them from what is left, where the log no longer holds everything."""
    who: str = ""


class ThrottleRequest(Model, frozen=True):
    """0 is as much as it can."""

    rows_per_second: Annotated[int, msgspec.Meta(ge=0)] = 0


class BuildModel(Model, frozen=True):
    """One query of a deployment, and how far it is."""

    name: str
    query_id: str
    state: str
    read: Count
    left: Count
    rows_per_second: float
    seconds_left: float | None
    done: float = 0.0
    """From 0 to 1. What it reads may be built itself: then it is no further than that."""


class ItemModel(Model, frozen=True):
    name: str
    verdict: str
    version: Count
    before: Count
    statement: str
    old_statement: str


class DeploymentModel(Model, frozen=True):
    id: Count
    stage: str
    detail: str
    who: str
    strategy: str
    started_ms: Count
    changed_ms: Count
    paused: bool
    approved: bool
    max_changed: float | None
    rows_per_second: Count
    items: list[ItemModel]
    builds: list[BuildModel]
    warnings: list[str]
    comparisons: list[dict[str, Any]]
    """By view: rows same, changed, only in one of both; deltas by column, windows, samples."""


class DeployAnswer(Model, frozen=True):
    """No deployment if there is nothing to do."""

    deployment: DeploymentModel | None


class DeploymentsAnswer(Model, frozen=True):
    """The newest first."""

    deployments: list[DeploymentModel]


class LayersModel(Model, frozen=True):
    """What a Lambda version is made of."""

    cut: Count | None
    """The arrival number that the batch layer ends at, and the stream begins at; null on Kafka."""
    inputs: dict[str, dict[str, int]]
    """There it is offsets by topic and partition."""
    batch_query: str
    speed_query: str
    batch_rows: Count | None
    """Null while the batch layer is computed; so is `made_ms`."""
    made_ms: Count | None
    refresh_ms: Count | None
    """How often it is computed again; null for when somebody says so."""


class VersionModel(Model, frozen=True):
    version: Count
    state: str
    topic: str
    query_id: str | None
    deployment: Count
    since_ms: Count
    """When it came into its state; 0 if nobody wrote that down."""
    served: list[tuple[Count, Count]]
    """From when to when it served; 0 if nobody wrote that down, or it has not ended yet."""
    kept_until_ms: Count | None
    rows: Count | None
    lag: Count | None
    statement: str
    strategy: Literal["kappa", "lambda"]
    layers: LayersModel | None


class VersionsAnswer(Model, frozen=True):
    """The oldest first."""

    name: str
    versions: list[VersionModel]


class DiffAnswer(Model, frozen=True):
    """What the newest comparison of a view found; null if it was never compared."""

    deployment: Count | None
    comparison: dict[str, Any] | None
