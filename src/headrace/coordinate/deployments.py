"""Starting deployments, and what a person may do to one: pause, throttle, approve, cancel, roll back.

Everything is in the catalog. A deployment begins, switches and ends in one append of events each, so whoever is killed
when finds it before or after, and `deployer` goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from headrace.clock import Clock
from headrace.coordinate.base import QueryDefinition
from headrace.coordinate.building import version_events
from headrace.coordinate.catalog import Catalog, CatalogDraft
from headrace.coordinate.chains import first_of
from headrace.coordinate.changes import plan_files, wanted_functions
from headrace.coordinate.dropping import dropped_version, dropped_with_readers
from headrace.coordinate.events import DeploymentSaved, Event, FilesApplied, QueryPaced, QueryWanted
from headrace.coordinate.from_scratch import check_from_scratch
from headrace.coordinate.functions import DescribeFile, FunctionChanges
from headrace.coordinate.layers import check_lambda, is_layered, speed_events
from headrace.coordinate.public_topics import fork_public
from headrace.coordinate.rebuilding import definition_text, listed, losses_of, stopped_queries
from headrace.coordinate.refreshing import is_refresh, may_go_beside, refresh_change, refresh_item
from headrace.coordinate.replace import apply_in_place
from headrace.coordinate.restoring import changed_files, restored
from headrace.coordinate.result import StatementResult
from headrace.coordinate.retired_versions import find_unneeded, refuse_if_needed
from headrace.coordinate.statements import StatementExecutor
from headrace.coordinate.switching import check_kept, made_by, switch_events, switch_problem
from headrace.errors import Conflict, NotFound, Refused
from headrace.log.base import Log
from headrace.sql.statements import CreateAsSelect
from headrace.store.cuts import Cut
from headrace.types import display_name
from headrace.views.change import Change, Plan
from headrace.views.versions import NONE, Deployment, Item, Stage, Strategy, Version, query_ids


@dataclass(frozen=True, slots=True)
class Options:
    who: str = ""
    strategy: Strategy = "kappa"
    max_changed: float | None = None
    approve: bool = False
    in_place: bool = False
    start: str = "beginning"
    rows_per_second: int = 0
    drop: bool = True
    """What the files no longer define, streams, tables and functions, is to go: they are the whole project."""
    functions: bool | None = None
    """Whether they are all of its functions; None: if they are all of the project."""
    strategies: Mapping[str, Strategy] = field(default_factory=dict)
    """By name, where not all are to be computed the same way."""
    again: frozenset[str] = frozenset()
    """Names that are computed again from the log though nothing has changed."""
    from_scratch: bool = False
    """Whether a plan creates what the files define on an empty log, too."""
    describe: DescribeFile | None = None
    """Who looks into files of functions that are new, if not the executor."""


class Deployments:
    """Safe to use from several threads: changes happen under the executor's lock, one at a time."""

    def __init__(self, executor: StatementExecutor, log: Log, catalog: Catalog, clock: Clock) -> None:
        self._executor, self._log, self._catalog, self._clock = executor, log, catalog, clock
        self.before_rollback: Callable[[Deployment], object] = lambda deployment: None
        """Whoever takes along what was repaired since the switch."""
        self._bounded: set[str] = set()

    def plan(self, files: Mapping[str, str], options: Options | None = None) -> Plan:
        options = options or Options()
        if options.strategy == "lambda":
            check_lambda(options.start)
        functions = self._functions(files, options)
        plan = self._plan(files, options, functions)
        if functions is None or plan.refused or not options.from_scratch:
            return plan
        known = functions.after(self._catalog.state.function_files).values()
        problems = check_from_scratch(files, known, self._clock)
        return replace(plan, from_scratch=tuple(f"{one.place}: {one.message}" for one in problems))

    def _plan(self, files: Mapping[str, str], options: Options, functions: FunctionChanges | None) -> Plan:
        return plan_files(
            files,
            self._log,
            self._catalog,
            options.in_place,
            options.drop,
            functions,
            options.strategy,
            options.strategies,
            options.start,
            self._executor.has_failed,
            options.again,
        )

    def _functions(self, files: Mapping[str, str], options: Options) -> FunctionChanges | None:
        """Files that are not all of the project say nothing about its functions."""
        if not (options.drop if options.functions is None else options.functions):
            return None
        return wanted_functions(files, self._catalog, options.describe or self._executor.describe)

    def start(self, files: Mapping[str, str], options: Options) -> Deployment | None:
        """Begin what the files ask for; None if that is nothing. What needs no replay has happened on return."""
        with self._executor.lock:
            functions = self._functions(files, options)
            plan = self._plan(files, options, functions)
            _check(plan, options.approve)
            if plan.pending:
                self._refuse_second()
            # All that it does at once is in the append that says so: who is killed before has done nothing.
            draft = CatalogDraft(self._catalog)
            if functions is not None:
                # What runs keeps the functions it was made with.
                draft.append(functions.events())
            if not plan.pending:
                if draft.events:
                    self._catalog.append(draft.events)
                return None
            number = max(self._catalog.state.deployments, default=0) + 1
            at_once, later = _split(plan)
            for change in at_once:
                self._do(change, draft)
            now = self._clock.now_ms()
            deployment = Deployment(
                id=number,
                items=[self._item(change, draft if change in at_once else None) for change in plan.pending],
                started_ms=now,
                changed_ms=now,
                who=options.who,
                strategy=options.strategy,
                max_changed=options.max_changed,
                approved=options.approve,
                rows_per_second=options.rows_per_second,
                detail=_detail(at_once, later),
                warnings=[
                    f"{display_name(change.name)}: {note}" for change in plan.pending for note in change.warnings
                ],
                start=options.start,
                functions=changed_files(functions, self._catalog.state.function_files),
                again=bool(options.again),
            )
            filed = draft.state.filed | {change.name for change in plan.changes if _from_file(change)}
            draft.append([FilesApplied(tuple(sorted(filed)))])
            if any(change.verdict != "drops" for change in later):
                built = version_events(self._log, draft, later, deployment, options.start)
                draft.append([DeploymentSaved(deployment), *built])
            else:
                draft.append(switch_events(draft, deployment, deployment.switches(), "switched", now))
            self._catalog.append(draft.events)
            return self.get(number)

    def refresh(self, name: str, who: str = "") -> Deployment:
        """Compute the batch layer of a view again, up to now, and let both layers take over in one step."""
        with self._executor.lock:
            change = refresh_change(self._log, self._catalog, name)
            self._refuse_second(name)
            number, now = max(self._catalog.state.deployments, default=0) + 1, self._clock.now_ms()
            item = refresh_item(self._catalog, change)
            deployment = Deployment(number, [item], now, who, "lambda", approved=True, changed_ms=now)
            events = version_events(self._log, self._catalog, [change], deployment)
            self._catalog.append([DeploymentSaved(deployment), *events])
            return self.get(number)

    def rebuild(self, names: Sequence[str], accept_loss: bool = False, who: str = "") -> Deployment:
        """Compute names again from the log, as they are defined, with all that reads them. `Refused` if the log no
        longer holds all that they were computed from, unless that is accepted."""
        with self._executor.lock:
            files = {"rebuild": "\n".join(definition_text(self._catalog, name) for name in names)}
            options = Options(who, approve=True, drop=False, again=frozenset(names))
            plan = self.plan(files, options)
            _check(plan, approve=True)
            if (losses := list(losses_of(plan))) and not accept_loss:
                raise Refused(
                    f"the log no longer holds all that {listed(names)} {'is' if len(names) == 1 else 'are'} made of",
                    detail="; ".join(losses),
                    hint="compute it from what is left:  headrace view rebuild … --accept-loss",
                )
            started = self.start(files, options)
            assert started is not None
            return started

    def replace(self, statement: CreateAsSelect) -> StatementResult:
        """CREATE OR REPLACE of what cannot go on in place. To say so was to approve it."""
        started = self.start({"statement": statement.text + ";"}, Options(approve=True, in_place=True, drop=False))
        assert started is not None
        item = next(item for item in started.items if item.name == statement.name)
        name = display_name(statement.name)
        how = "is computed anew as" if item.verdict == "rebuilds" else "is again"
        message = (
            f"{statement.kind} `{name}` {how} version {item.number} by deployment {started.id}; "
            f"version {item.before} serves until then"
        )
        return StatementResult(statement.text, "replaced", message)

    def restore(self, number: int, before: bool, options: Options) -> Deployment | None:
        """Build again what a deployment defined, or what there was before it, and as it was then."""
        with self._executor.lock:
            deployment = self.get(number)
            files, known = restored(deployment, before, self._catalog.state)
            return self.start(files, replace(options, drop=False, **known))

    def _refuse_second(self, refreshed: str | None = None) -> None:
        for running in self._catalog.deployments():
            beside = refreshed is not None and may_go_beside(self._catalog, running, refreshed)
            if not running.over and not beside:
                cancel = f"headrace deploy cancel {running.id}"
                wait = f"wait for it, or end it:  {cancel}"
                if running.stage == "waiting":
                    wait = f"switch:  headrace deploy approve {running.id}      or not:  {cancel}"
                raise Conflict(f"deployment {running.id} is {running.stage}", hint=wait)

    def _do(self, change: Change, draft: CatalogDraft) -> None:
        """What happens at once: further columns, what goes on in place, what is new and reads nothing that is new."""
        assert change.wanted is not None
        if change.verdict == "creates":
            self._executor.over(draft).run_statement(change.wanted.statement)
        else:
            apply_in_place(change.wanted.statement, self._log, draft)

    def _item(self, change: Change, done: CatalogDraft | None) -> Item:
        number, before = change.number, change.before
        if done is not None:
            # It is there already, and a rollback leaves it.
            number = before = done.state.serving.get(change.name, NONE)
        source = self._catalog.source(change.name)
        old: Strategy = "lambda" if source is not None and is_layered(self._catalog, source) else "kappa"
        texts = change.statement, change.old_statement
        return Item(change.name, change.verdict, number, before, *texts, old_strategy=old)

    # What a person may do

    def get(self, number: int) -> Deployment:
        found = self._catalog.deployment(number)
        if found is None:
            raise NotFound(f"deployment {number} does not exist", hint="headrace history lists all")
        return found

    def queries(self, deployment: Deployment) -> list[QueryDefinition]:
        """Those that write the versions it lets serve, inputs first."""
        ids = [id_ for version in self._versions(deployment) for id_ in query_ids(version)]
        return [query for id_ in ids if (query := self._catalog.query(id_)) is not None]

    def building(self, deployment: Deployment) -> list[QueryDefinition]:
        """Of those the ones that it has made: others were kept, and are none of its business."""
        made = {id_ for one in self._versions(deployment) if one.deployment == deployment.id for id_ in query_ids(one)}
        return [query for query in self.queries(deployment) if query.id in made]

    def _versions(self, deployment: Deployment) -> list[Version]:
        known = self._catalog.state.versions
        moved = [item for item in deployment.items if item.number != item.before]
        return [version for item in moved if (version := known.get(item.name, {}).get(item.number)) is not None]

    def begin_speed(self, deployment: Deployment) -> None:
        """Let the stream go on from the cut where a batch layer is computed."""
        with self._executor.lock:
            for item in deployment.items:
                version = self._catalog.state.versions.get(item.name, {}).get(item.number)
                if version is None or version.layers is None or version.layers.ends is not None:
                    continue
                rate = self.get(deployment.id).rows_per_second
                events = speed_events(self._log, self._catalog, version, self._clock.now_ms(), rate)
                if events is not None:
                    self._catalog.append(events)

    def update(self, number: int, *before: Event, **changes: Any) -> Deployment:
        """The deployment as it is now, with these changes, after these events."""
        with self._executor.lock:
            saved = msgspec.structs.replace(self.get(number), **changes, changed_ms=self._clock.now_ms())
            self._catalog.append([*before, DeploymentSaved(saved)])
            return saved

    def advance(self, seen: Deployment, *before: Event, **changes: Any) -> None:
        """The same, unless it was cancelled or moved on since it was seen: what nobody builds any more looks caught
        up."""
        with self._executor.lock:
            if self.get(seen.id).stage == seen.stage:
                self.update(seen.id, *before, **changes)

    def conclude(self, seen: Deployment, conclusion: Callable[[Deployment], Mapping[str, Any]]) -> None:
        """The same with changes that depend on how it is by then: somebody may just have approved it."""
        with self._executor.lock:
            if (now := self.get(seen.id)).stage == seen.stage:
                self.update(seen.id, **conclusion(now))

    def fail(self, seen: Deployment, why: str) -> None:
        """It goes no further, so neither does what it builds: that would hold what retention may remove."""
        with self._executor.lock:
            if is_refresh(seen):
                # Nobody is to look at what a refresh could not do; the next one begins anew.
                self.advance(seen, *self.dropped(seen.id), stage="failed", detail=why)
                return
            stopped = [QueryWanted(query.id, "stopped") for query in self.building(seen)]
            detail = f"{why}; throw away what it built:  headrace deploy cancel {seen.id}"
            self.advance(seen, *stopped, stage="failed", detail=detail)

    def pause(self, number: int, paused: bool) -> Deployment:
        with self._executor.lock:
            deployment = self._running(number)
            wanted = [QueryWanted(q.id, "stopped" if paused else "running") for q in self.building(deployment)]
            return self.update(number, *wanted, paused=paused)

    def throttle(self, number: int, rows_per_second: int) -> Deployment:
        with self._executor.lock:
            deployment = self._running(number)
            paced = [QueryPaced(q.id, rows_per_second, q.until) for q in self.first_queries(deployment)]
            return self.update(number, *paced, rows_per_second=rows_per_second)

    def bound(self, until: Mapping[str, Cut | None]) -> None:
        """Up to where queries, by their ids, may read; None for no bound. How fast stays as somebody may just have said
        it. What serves has no bound."""
        with self._executor.lock:
            wanted = {id_: None if self._serves(id_) else cut for id_, cut in until.items()}
            self._bounded = {id_ for id_, cut in wanted.items() if cut is not None} | (self._bounded - wanted.keys())
            paced = [
                QueryPaced(id_, query.rows_per_second, cut)
                for id_, cut in wanted.items()
                if (query := self._catalog.query(id_)) is not None and query.until != cut
            ]
            if paced:
                self._catalog.append(paced)

    def is_bound(self, id_: str) -> bool:
        """Return whether something in this server holds a query at a position."""
        return id_ in self._bounded

    def _serves(self, id_: str) -> bool:
        query = self._catalog.query(id_)
        version = self._catalog.version_of(query) if query is not None else None
        return version is not None and version.state == "serving"

    def unbound(self) -> None:
        """Let go of queries that nobody in this process holds: whoever did was killed, or could not say so."""
        left = [query.id for query in self._catalog.queries() if query.until is not None]
        self.bound({id_: None for id_ in left if id_ not in self._bounded})

    def first_queries(self, deployment: Deployment) -> list[QueryDefinition]:
        """Those that read nothing which is itself being built."""
        return first_of(self.building(deployment))

    def approve(self, number: int) -> Deployment:
        with self._executor.lock:
            deployment = self._running(number)
            stage = "switching" if deployment.stage == "waiting" else deployment.stage
            if deployment.paused and stage == "switching":
                # What is stopped cannot take over, and nobody would look at it.
                self.pause(number, False)
            return self.update(number, approved=True, stage=stage, detail="")

    def cancel(self, number: int) -> Deployment:
        """What it built is thrown away; what served, serves."""
        with self._executor.lock:
            deployment = self.get(number)
            if deployment.over and deployment.stage != "failed":
                back = "roll back:  headrace view rollback VIEW" if deployment.stage == "switched" else None
                raise Conflict(f"deployment {number} is {deployment.stage}", hint=back)
            saved = self.update(number, *self.dropped(number), stage="cancelled", detail="")
            self._executor.sweep()
            return saved

    def dropped(self, number: int) -> list[Event]:
        """Without the versions that a deployment made and that do not serve."""
        made = [version for version in self._catalog.beside() if version.deployment == number]
        return [event for version in made for event in dropped_version(version)]

    def _running(self, number: int) -> Deployment:
        deployment = self.get(number)
        if deployment.over:
            raise Conflict(f"deployment {number} is {deployment.stage}")
        return deployment

    # Switching

    def switch(self, deployment: Deployment) -> Deployment:
        """All its names at once; it has failed if what it was built from or for is not what serves. One that was paused
        meanwhile stays as it is: its queries are stopped, and would be for good."""
        with self._executor.lock:
            deployment = self._running(deployment.id)
            if deployment.paused:
                return deployment
            if problem := switch_problem(self._catalog, deployment):
                self.fail(deployment, problem)
            else:
                stopped: list[Event] = []
                if deployment.again:
                    stopped += stopped_queries(self._catalog, deployment, self._executor.has_failed)
                self._catalog.append([*stopped, *self._switched(deployment, deployment.switches(), "switched")])
            return self.get(deployment.id)

    def rollback(self, name: str) -> Deployment:
        """The versions that served before the deployment which made this one's, of all it changed."""
        with self._executor.lock:
            check_kept(self._catalog, made_by(self._catalog, name))
        # Not under the lock: it may take its time, and nothing else needs to wait for it.
        self.before_rollback(made_by(self._catalog, name))
        with self._executor.lock:
            deployment = made_by(self._catalog, name)
            check_kept(self._catalog, deployment)
            self._catalog.append(self._switched(deployment, deployment.switches_back(), "rolled back"))
            return self.get(deployment.id)

    def _switched(self, deployment: Deployment, versions: Mapping[str, int], stage: Stage) -> list[Event]:
        """A version that writes the public topic of its name leaves that to the publisher, with the append that lets
        another one serve."""
        serving = self._catalog.state.serving
        replaced = [name for name, number in versions.items() if number and serving.get(name, number) != number]
        forked = fork_public(self._log, self._catalog, replaced)
        return [*forked, *switch_events(self._catalog, deployment, versions, stage, self._clock.now_ms())]

    def forget(self, name: str, number: int | None = None) -> list[Version]:
        """Give up versions that are kept for a rollback."""
        with self._executor.lock:
            found = [v for v in self._catalog.versions(name) if v.state == "retired" and number in (None, v.number)]
            refuse_if_needed(self._catalog, found)
            self.drop_versions(found)
            return found

    def drop_versions(self, versions: Sequence[Version]) -> None:
        """Drop those of the versions that nobody needs any more."""
        with self._executor.lock:
            if free := find_unneeded(self._catalog, versions):
                self._catalog.append([event for one in free for event in dropped_with_readers(one, self._catalog)])
                self._executor.sweep()


def _check(plan: Plan, approve: bool) -> None:
    if plan.refused:
        first, *more = plan.wrong
        others = f" (and {len(more)} more)" if more else ""
        message = f"`{display_name(first.name)}` cannot be deployed: {first.reason}{others}"
        raise Conflict(message, hint=first.hint or "headrace plan shows all")
    dropped = [display_name(change.name) for change in plan.pending if change.verdict == "drops"]
    if dropped and not approve:
        raise Refused(
            f"no file defines `{'`, `'.join(dropped)}` any more: to drop it needs your word",
            hint="headrace deploy --approve",
        )


def _detail(at_once: Sequence[Change], later: Sequence[Change]) -> str:
    if later:
        return ""
    filled = [f"`{display_name(change.name)}`" for change in at_once if change.verdict == "creates" and change.replays]
    if filled:
        return f"{', '.join(filled)} can be read at once, and fill{'s' * (len(filled) == 1)} from the beginning"
    return "nothing had to be computed again"


def _split(plan: Plan) -> tuple[list[Change], list[Change]]:
    """What is done at once, and what is built or dropped with the switch."""
    at_once: list[Change] = []
    later: list[Change] = []
    new: set[str] = set()
    for change in plan.pending:
        inputs = {source.name for source in change.query.inputs} if change.query else {change.over}
        built = change.verdict == "creates" and (inputs & new or change.strategy == "lambda")
        waits = change.verdict in ("rebuilds", "serves again", "drops") or built
        (later if waits else at_once).append(change)
        if waits:
            new.add(change.name)
    return at_once, later


def _from_file(change: Change) -> bool:
    return change.wanted is not None and bool(change.wanted.file)
