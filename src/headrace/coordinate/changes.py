"""The project's files against the catalog: what `views.plan` needs to know, gathered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from headrace.config import Project
from headrace.coordinate.catalog import BUILT_IN, Catalog
from headrace.coordinate.creating import place_sink
from headrace.coordinate.functions import (
    DescribeFile,
    FunctionChanges,
    all_names,
    function_changes,
    function_texts,
    of_folder,
)
from headrace.coordinate.how_far import lag_of
from headrace.coordinate.layers import is_layered, partitions_apart
from headrace.coordinate.planning import plan_definition
from headrace.errors import HeadraceError, SqlError, UsageError
from headrace.fluent.pipeline import pipeline_text
from headrace.functions.files import FunctionFile
from headrace.functions.signatures import all_functions
from headrace.log.base import Log
from headrace.process.progress import parse_offsets
from headrace.sql.api import parse
from headrace.sql.functions.function import Function
from headrace.sql.source import Source
from headrace.sql.statements import CreateAsSelect, CreateSource
from headrace.types import DataType, display_name
from headrace.views.change import Change, Figures, FunctionChange, Plan, Runs, Wanted
from headrace.views.kept import Kept
from headrace.views.plan import plan_changes
from headrace.views.versions import Deployment, Strategy, Version

BUILDS_REMEMBERED = 5


def project_files(project: Project) -> dict[str, str]:
    """The pipelines, as SQL, and the functions, by their paths in the project."""
    found = function_texts(project.folder)
    for path in project.pipelines:
        name = str(path.relative_to(project.folder))
        try:
            found[name] = pipeline_text(path)
        except SqlError as error:
            raise UsageError(f"{name}:{error.line}:{error.column}: {error.message}", hint=error.hint) from None
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"`{path.name}` cannot be read: {error}") from None
    return found


@dataclass(frozen=True, slots=True)
class OtherFunctions:
    """The catalog as it would be with other Python functions."""

    catalog: Catalog
    files: Mapping[str, FunctionFile]

    def source(self, name: str) -> Source | None:
        return self.catalog.source(name)

    def sources(self) -> Iterable[Source]:
        return self.catalog.sources()

    def types(self) -> Mapping[str, DataType]:
        return self.catalog.types()

    def functions(self) -> Mapping[str, Function]:
        return all_functions(self.files.values(), self.catalog.runtime)


def wanted_functions(files: Mapping[str, str], catalog: Catalog, describe: DescribeFile) -> FunctionChanges:
    """What the files of functions among these would change. `UsageError`, with the place, for one that is wrong."""
    texts = {name: text for name, text in files.items() if of_folder(name)}
    changes = function_changes(texts, catalog.state.function_files, describe)
    for file in changes.found:
        for problem in file.problems:
            raise UsageError(f"{file.file}:{problem.line or 1}: {problem.message}", hint=problem.hint or None)
    return changes


def read_wanted(files: Mapping[str, str]) -> list[Wanted]:
    """Their statements. `UsageError`, with the place, for what cannot be read at all."""
    wanted: dict[str, Wanted] = {}
    for file, text in sorted(files.items()):
        if of_folder(file):
            continue
        try:
            statements = parse(text)
        except SqlError as error:
            raise UsageError(f"{file}:{error.line}:{error.column}: {error.message}", hint=error.hint) from None
        for statement in statements:
            span = statement.script.span(statement.start, statement.end)
            place = f"{file}:{span.line}:{span.column}"
            if not isinstance(statement, CreateSource | CreateAsSelect):
                hint = "run other statements once:  headrace sql -f FILE"
                raise UsageError(f"{place}: a pipeline only says what there is: CREATE STREAM and TABLE", hint=hint)
            if (first := wanted.get(statement.name)) is not None:
                name = display_name(statement.name)
                raise UsageError(f"{place}: `{name}` is defined at {first.file}:{first.line} already")
            wanted[statement.name] = Wanted(statement, file, span.line, span.column)
    return list(wanted.values())


def plan_files(
    files: Mapping[str, str],
    log: Log,
    catalog: Catalog,
    in_place: bool = False,
    drop: bool = True,
    functions: FunctionChanges | None = None,
    strategy: Strategy = "kappa",
    strategies: Mapping[str, Strategy] | None = None,
    start: str = "beginning",
    has_failed: Callable[[str], bool] = lambda query: False,
    again: frozenset[str] = frozenset(),
) -> Plan:
    """`drop`: what these files no longer define is to go; otherwise they are only some of the definitions. `again`:
    what is to be computed again though nothing has changed."""
    before = catalog.state.function_files
    plan = plan_changes(
        running_definitions(log, catalog),
        catalog if functions is None else OtherFunctions(catalog, functions.after(before)),
        read_wanted(files),
        figures(log, catalog),
        lambda name: catalog.state.view_versions.get(name, 0) + 1,
        catalog.state.filed if drop else frozenset(),
        in_place,
        strategy,
        strategies,
        lambda sink: place_sink(sink, log, catalog),
        lambda name: kept_versions(name, log, catalog, has_failed),
        start,
        again,
    )
    return plan if functions is None else replace(plan, functions=tuple(_functions(plan, functions, before)))


def _functions(plan: Plan, changes: FunctionChanges, before: Mapping[str, FunctionFile]) -> Iterator[FunctionChange]:
    """Each function that is new, another one, or gone, and what uses it."""
    old = {name: file for file in before.values() for name in all_names(file)}
    new = {name: file for file in changes.after(before).values() for name in all_names(file)}
    for name in sorted(old | new):
        verdict: Literal["new", "changed", "gone"]
        if name not in old:
            verdict = "new"
        elif name not in new:
            verdict = "gone"
        elif old[name].version != new[name].version:
            verdict = "changed"
        else:
            continue
        users = tuple(change.name for change in plan.changes if name in change.functions)
        file = (old | new)[name]
        topic = next((one.topic for one in file.attached if one.name == name), "")
        yield FunctionChange(name, file.file, verdict, users, topic)


def running_definitions(log: Log, catalog: Catalog) -> dict[str, Runs]:
    return {source.name: _runs(log, catalog, source) for source in catalog.sources() if source not in BUILT_IN}


def _runs(log: Log, catalog: Catalog, source: Source) -> Runs:
    query = catalog.query(source.query) if source.query else None
    identity = log.last_identity(query.id, query.version) if query else None
    reading = [q for q in catalog.readers(source.name) if q.reads.get(source.name) == source.topic]
    return Runs(
        source,
        catalog.state.serving.get(source.name, 0),
        plan_definition(query, catalog) if query else None,
        inserted_by=tuple(q.id for q in catalog.writers(source) if q.id != source.query),
        inserts=tuple(q.id for q in reading if q.inserts),
        kept={one.source.topic: (one.number, one.source) for one in catalog.versions(source.name) if _is_kept(one)},
        offsets=parse_offsets(identity.offsets) if identity else {},
        strategy="lambda" if is_layered(catalog, source) else "kappa",
    )


def _is_kept(version: Version) -> bool:
    return version.state == "retired" and version.source.query is None


def kept_versions(
    name: str, log: Log, catalog: Catalog, has_failed: Callable[[str], bool] = lambda query: False
) -> list[Kept]:
    """Versions of a name that are kept and go on running, so that they could serve again."""
    kept = (_kept(version, log, catalog, has_failed) for version in catalog.versions(name))
    return [one for one in kept if one is not None]


def _kept(version: Version, log: Log, catalog: Catalog, has_failed: Callable[[str], bool]) -> Kept | None:
    query = catalog.query(version.source.query or "")
    if version.state != "retired" or query is None or query.wanted != "running" or has_failed(query.id):
        return None
    try:
        plan = plan_definition(query, catalog)
    except HeadraceError:
        return None  # what it read has another definition now, or none
    made = catalog.state.deployments.get(version.deployment)
    start = "beginning" if made is None else made.start
    strategy: Strategy = "kappa" if version.layers is None else "lambda"
    return Kept(version.number, version.source, plan, strategy, start, lag_of(log, query))


def figures(log: Log, catalog: Catalog) -> Figures:
    ends = log.snapshot().ends
    return Figures(
        records={topic: sum(end.end - end.start for end in parts) for topic, parts in ends.items()},
        removed={topic: sum(end.start for end in parts) for topic, parts in ends.items()},
        compacted=frozenset(topic.name for topic in log.topics() if topic.spec.config.compacted),
        apart=partitions_apart(log),
        rows_per_second=build_rate(catalog.deployments()),
    )


def build_rate(deployments: Iterable[Deployment]) -> float:
    """Rows a second, as builds have shown it; 0 if none has. Those that were throttled say nothing, and one that was
    paused, or whose engine was killed, took longer than it had to: so the best of the last few."""
    built = [d for d in deployments if d.build_ms and d.rows_read and not d.rows_per_second]
    return max((d.rows_read * 1000 / d.build_ms for d in built[-BUILDS_REMEMBERED:]), default=0.0)


def change_text(statement: CreateAsSelect, log: Log, catalog: Catalog) -> str | None:
    """What CREATE OR REPLACE would do to what is there, and to what reads it; None if nothing is there."""
    if catalog.source(statement.name) is None:
        return None
    plan = plan_changes(
        running_definitions(log, catalog),
        catalog,
        [Wanted(statement)],
        figures(log, catalog),
        lambda name: catalog.state.view_versions.get(name, 0) + 1,
        in_place=True,
        kept=lambda name: kept_versions(name, log, catalog),
    )
    changes = [one for one in plan.changes if one.name == statement.name or one.verdict not in ("nothing", "refused")]
    return "\n".join(line for change in changes for line in _change_lines(change, plan))


def _change_lines(change: Change, plan: Plan) -> list[str]:
    verdict: str = change.verdict
    if verdict == "nothing":
        verdict = "none, it is defined like this"
    elif verdict == "rebuilds":
        seconds = plan.seconds(change.replays)
        about = "" if seconds is None else f", about {max(1, round(seconds)):,} s"
        verdict = f"rebuilds as version {change.number} beside the one that serves: {change.replays:,} records{about}"
    elif verdict == "serves again":
        verdict = f"version {change.number}, which is kept, serves again"
    why = f", because {change.reason}" if change.reason else ""
    lines = [f"CHANGE of {change.kind} `{display_name(change.name)}`: {verdict}{why}"]
    return lines + [f"  {line}" for line in (change.hint, *change.warnings) if line]
