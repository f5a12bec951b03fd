"""What a change of definitions would do, statement by statement, before anything happens.

A pure function over what runs, what is wanted, and what the log holds. `change` says what each verdict means."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headrace.errors import HeadraceError, SqlError
from headrace.sql.api import (
    Draft,
    function_versions,
    has_state,
    parse,
    plan_query,
    replaced_query_problem,
    replaced_source_problem,
    same_definition,
    same_results,
    source_from,
)
from headrace.sql.layered import NotMergeable, check_cut
from headrace.sql.order import cycle_message, names_read, order_definitions, topic_name
from headrace.sql.plan import PersistentQuery
from headrace.sql.source import Source, Sources
from headrace.sql.statements import CreateAsSelect, CreateSource
from headrace.types import display_name
from headrace.views.change import Change, Definition, Figures, Plan, Runs, Wanted
from headrace.views.kept import Kept, find_kept
from headrace.views.public import place_over, public_topic, publishing_problem
from headrace.views.reasons import instead_of_change, keeps_empty, made_anew, other_functions
from headrace.views.versions import NONE, Strategy, version_topic

CORRECT = "correct the statement, or take it out"


def plan_changes(
    running: Mapping[str, Runs],
    sources: Sources,
    wanted: Sequence[Wanted],
    figures: Figures,
    next_number: Callable[[str], int],
    ours: frozenset[str] = frozenset(),
    in_place: bool = False,
    strategy: Strategy = "kappa",
    strategies: Mapping[str, Strategy] | None = None,
    place: Callable[[Source], Source] = lambda sink: sink,
    kept: Callable[[str], Sequence[Kept]] = lambda name: (),
    start: str = "beginning",
    again: frozenset[str] = frozenset(),
) -> Plan:
    """`ours`: names that files have defined before; those that no file defines now are dropped. `strategy`: how tables
    are computed that have to be. `place`: what a new query is to write, with a topic that is free.
    `kept`: versions of a name that could serve again. `start`: where replays are to begin.
    `again`: names that are to be computed again from the log though nothing has changed."""
    how = strategy, strategies or {}, place, kept, start, again
    planner = _Planner(running, Draft(sources), figures, next_number, in_place, *how)
    named = {one.statement.name for one in wanted}
    dropped = {name for name in ours if name in running and name not in named}
    # What somebody made by a statement has no file, but may read what is rebuilt.
    unfiled = [
        Wanted(statement)
        for name, runs in running.items()
        if name not in named | dropped and (statement := _parsed(runs.source.statement)) is not None
    ]
    first = {one.statement.name: one for one in reversed([*wanted, *unfiled])}
    known = [first[name] for name in dict.fromkeys(one.statement.name for one in [*wanted, *unfiled])]
    definitions = [one.statement for one in known]
    order = order_definitions(definitions)
    planner.owners = _owners(definitions)
    for cycle in order.cycles:
        for index in cycle:
            planner.refuse(known[index], cycle_message(cycle, index, definitions))
    waiting = set(range(len(known))) - set(order.sequence) - {index for cycle in order.cycles for index in cycle}
    for index in (*order.sequence, *sorted(waiting)):
        planner.consider(known[index])
    for name in sorted(dropped):
        planner.drop(name)
    return Plan(tuple(_with_dependents(planner.changes)), figures)


@dataclass(slots=True)
class _Planner:
    _running: Mapping[str, Runs]
    _draft: Draft
    _figures: Figures
    _next_number: Callable[[str], int]
    _in_place: bool
    _strategy: Strategy
    _strategies: Mapping[str, Strategy]
    _place: Callable[[Source], Source]
    _kept_versions: Callable[[str], Sequence[Kept]]
    _start: str
    _again_names: frozenset[str]
    changes: list[Change] = field(default_factory=list)
    owners: Mapping[str, str] = field(default_factory=dict)
    """By public topic: the name of what a query writes there."""
    _by_name: dict[str, Change] = field(default_factory=dict)

    def consider(self, wanted: Wanted) -> None:
        statement = wanted.statement
        runs = self._running.get(statement.name)
        try:
            if isinstance(statement, CreateSource):
                change = self._declared(wanted, statement, runs)
            else:
                change = self._computed(wanted, statement, runs)
        except HeadraceError as error:
            hint = _without_layers(statement) if isinstance(error, NotMergeable) else CORRECT
            change = self._refused(wanted, runs, error.message, error.hint or hint)
            if isinstance(error, SqlError) and error.line and wanted.file:
                change = replace(change, wanted=replace(wanted, line=error.line, column=error.column))
        called = [plan for plan in (runs.query if runs else None, change.query) if plan is not None]
        change = replace(change, functions=frozenset(name for plan in called for name in function_versions(plan)))
        self._note(change)

    def refuse(self, wanted: Wanted, reason: str) -> None:
        self._note(self._refused(wanted, self._running.get(wanted.statement.name), reason, CORRECT))

    def drop(self, name: str) -> None:
        runs = self._running[name]
        readers = [c for c in self.changes if c.verdict not in ("refused", "drops") and name in _names_read(c)]
        base = Change(name, runs.source.kind, "drops", "no file defines it", old_statement=runs.source.statement)
        change = replace(base, before=runs.number)
        if readers or runs.inserts or runs.inserted_by:
            users = [*(f"`{display_name(c.name)}`" for c in readers), *runs.inserts, *runs.inserted_by]
            reason = f"no file defines it, but {', '.join(users)} use{'s' * (len(users) == 1)} it"
            hint = "drop or change those first, or put it back"
            change = replace(change, verdict="refused", reason=reason, hint=hint)
        self._note(change)

    def _note(self, change: Change) -> None:
        self.changes.append(change)
        self._by_name[change.name] = change
        if change.source is not None and change.verdict != "refused":
            self._draft.add(change.source)

    def _declared(self, wanted: Wanted, statement: CreateSource, runs: Runs | None) -> Change:
        over = self._owner(statement)
        if over is not None and self._by_name[over].verdict == "refused":
            read = f"`{display_name(over)}`"
            return self._refused(
                wanted, runs, f"it reads the topic of {read}, which cannot be changed", f"put {read} right"
            )
        if runs is None:
            source = source_from(statement, self._draft)
            change = Change(source.name, source.kind, "creates", wanted=wanted, source=source)
            return change if over is None else self._over(change, over)
        base = replace(self._base(wanted, runs), over=over or "")
        same_text = same_definition(runs.source.statement, statement)
        if same_text and (over is None or self._topic_of(over) == runs.source.topic):
            return base
        if runs.query is not None:
            return self._refused(wanted, runs, "a query writes it, and now it is to be declared", made_anew(runs))
        if over is not None and (same_text or public_topic(runs.source) == topic_name(statement)):
            return self._declared_over(base, statement, runs, over)
        declared, has = source_from(statement, self._draft), runs.source.partitions
        if declared.partitions != has and any(given.name == "PARTITIONS" for given in statement.properties):
            reason = f"topic `{runs.source.topic}` has {has} partitions, not {declared.partitions}"
            return self._refused(wanted, runs, reason, "leave PARTITIONS out, or name another KAFKA_TOPIC")
        new = replace(declared, partitions=has)
        if problem := replaced_source_problem(runs.source, new):
            return self._refused(wanted, runs, problem, instead_of_change(runs, new))
        return _redeclared(base, runs, new)

    def _owner(self, statement: CreateSource) -> str | None:
        """Return the name whose public topic a declaration names, if a query writes that."""
        name = self.owners.get(topic_name(statement))
        return name if name in self._by_name and name != statement.name else None

    def _topic_of(self, name: str) -> str:
        """Return the topic of the version of a name that serves once the plan is carried out."""
        change = self._by_name[name]
        return change.source.topic if change.source is not None else self._running[name].source.topic

    def _over(self, change: Change, over: str) -> Change:
        """Return the change of a declaration with the topic of the version that it is going to read. `HeadraceError` if
        that has not what is declared."""
        owner, assigned = self._draft.source(over), change.source
        assert owner is not None
        assert assigned is not None
        if self._by_name[over].strategy == "lambda":
            raise _layers_unreadable(over)
        known = {column.name: column for column in owner.key + owner.value}
        for column in assigned.key + assigned.value:
            if known.get(column.name) != column:
                has = "no longer has" if change.before else "does not have"
                raise HeadraceError(
                    f"`{display_name(over)}`, whose topic it reads, {has} a column {column}",
                    hint=f"declare the columns of `{display_name(over)}`:  "
                    + ", ".join(f"{display_name(one.name)} {one.type}" for one in known.values()),
                )
        waits = self._has_other_version(over) or self._waits(over)
        number = self._next_number(change.name) if waits and not change.number else change.number
        return replace(change, over=over, number=number, source=place_over(assigned, owner))

    def _declared_over(self, base: Change, statement: CreateSource, runs: Runs, over: str) -> Change:
        """Plan a declaration over the topic of a name that a query writes. It reads the version that serves: where that
        is another one from the switch on, it has another version too."""
        assert base.wanted is not None
        declared = replace(source_from(statement, self._draft), partitions=runs.source.partitions)
        if problem := replaced_source_problem(runs.source, replace(declared, topic=runs.source.topic)):
            return self._refused(base.wanted, runs, problem, instead_of_change(runs, declared))
        change = self._over(replace(base, source=declared, number=NONE), over)
        new = change.source
        assert new is not None
        if new.topic == runs.source.topic:
            return _redeclared(replace(change, number=NONE), runs, new)
        if refused := self._refused_inserts(base.wanted, runs):
            return refused
        which = self._by_name[over].verdict
        why = {"rebuilds": "is rebuilt", "serves again": "is another version again"}.get(which, "has a newer version")
        change = replace(change, reason=f"it reads the topic of `{display_name(over)}`, which {why}")
        kept = runs.kept.get(new.topic)
        if kept is not None and same_definition(kept[1].statement, statement):
            return replace(change, verdict="serves again", number=kept[0], source=kept[1])
        return replace(change, verdict="rebuilds", number=self._next_number(base.name))

    def _computed(self, wanted: Wanted, statement: CreateAsSelect, runs: Runs | None) -> Change:
        for name in names_read(statement):
            if (broken := self._by_name.get(name)) is not None and broken.verdict == "refused":
                # What to do is said where it has to be done.
                read = f"`{display_name(name)}`"
                refused = self._refused(wanted, runs, f"it reads {read}, which cannot be changed", f"put {read} right")
                return replace(refused, because=broken.because or broken.name)
        query = plan_query(statement, self._draft)
        self._refuse_layers(statement)
        if runs is None:
            new = Change(statement.name, statement.kind, "creates", wanted=wanted, strategy=self._strategy_of(query))
            if (again := self._again(new, statement, query)) is not None:
                return again
            query = replace(query, sink=self._place(query.sink))
            change = Change(query.sink.name, query.sink.kind, "creates", wanted=wanted, source=query.sink, query=query)
            change = replace(change, number=self._next_number(change.name), strategy=self._strategy_of(query))
            return self._costed(self._checked(change))
        base = self._base(wanted, runs)
        if runs.query is None:
            return self._refused(wanted, runs, "it is declared, and now a query is to write it", made_anew(runs))
        rebuilt = [name for name in names_read(statement) if self._has_other_version(name)]
        same_text = same_definition(runs.source.statement, statement)
        same = same_results(runs.query, query)
        strategy, wrong = self._strategy_of(query, runs), self._wrong_layers(runs, query)
        if not rebuilt and same_text and same and strategy == "lambda" and wrong is not None:
            return replace(base, warnings=(f"{wrong}; {_without_layers(statement)}",))
        anew = statement.name in self._again_names
        if not rebuilt and same_text and same and wrong is None and not anew:
            return base
        query = replace(query, sink=replace(query.sink, partitions=runs.source.partitions))
        problem = replaced_query_problem(runs.query, query)
        in_place = self._in_place and runs.strategy == "kappa"
        if not rebuilt and not anew and problem is None and (same or in_place) and strategy == runs.strategy:
            return self._kept(base, runs, query, same)
        why = self._why_rebuilt(rebuilt)
        if not same_text:
            why = problem or "what it has written would be different"
        elif not rebuilt:
            why = other_functions(runs.query, query) or "what it reads is declared differently"
        if strategy != runs.strategy and same:
            without = wrong or "it is not to have layers any more"
            why = "it is to be made of two layers" if strategy == "lambda" else without
        if anew:
            why = "it is to be computed again from the log"
        return self._rebuilds(replace(base, strategy=strategy), runs, query, why)

    def _strategy_of(self, query: PersistentQuery, runs: Runs | None = None) -> Strategy:
        """What was asked for is for tables that are computed anew; what runs stays as it is."""
        if query.sink.kind != "table":
            return "kappa"
        if query.refresh_ms is not None:
            return "lambda"
        if runs is not None and runs.query is not None and same_results(runs.query, query):
            stays = runs.query.refresh_ms is None and self._wrong_layers(runs, query) is None
            return runs.strategy if stays else "kappa"
        return self._strategies.get(query.sink.name, self._strategy)

    def _wrong_layers(self, runs: Runs, query: PersistentQuery) -> str | None:
        """What speaks against the layers that it runs with: an older version, which knew less, may have made them."""
        if runs.strategy == "kappa":
            return None
        try:
            check_cut(query, self._figures.apart)
        except NotMergeable as error:
            return f"what its layers show is wrong: {error.message}"
        return None

    def _refuse_layers(self, statement: CreateAsSelect) -> None:
        for name in names_read(statement):
            change = self._by_name.get(name)
            if change is not None and change.strategy == "lambda":
                raise _layers_unreadable(name)

    def _checked(self, change: Change) -> Change:
        """A Lambda view can be one. `NotMergeable` says why not."""
        if change.strategy == "kappa":
            return change
        assert change.query is not None
        check_cut(change.query, self._figures.apart)
        new = [source.name for source in change.query.inputs if self._waits(source.name)]
        if new:
            raise NotMergeable(f"it reads `{display_name(new[0])}`, which is being built itself")
        return change

    def _waits(self, name: str) -> bool:
        """Whether its records are there only once the deployment is over."""
        change = self._by_name.get(name)
        return change is not None and (
            change.verdict == "rebuilds" or (change.verdict == "creates" and change.query is not None)
        )

    def _kept(self, base: Change, runs: Runs, query: PersistentQuery, same: bool) -> Change:
        sink = replace(query.sink, query=runs.source.query, statement=base.statement, topic=runs.source.topic)
        change = replace(base, source=sink, query=query, offsets=runs.offsets)
        if same:
            return replace(change, verdict="keeps its state", reason="its results are the same")
        if has_state(query):
            return replace(change, verdict="keeps its state", reason="what it has kept is used on; written rows stay")
        return replace(change, verdict="continues", reason="what it has written stays as it is")

    def _rebuilds(self, base: Change, runs: Runs, query: PersistentQuery, why: str) -> Change:
        assert base.wanted is not None
        if query.sink.kind != runs.source.kind:
            return self._refused(base.wanted, runs, f"it is a {runs.source.kind}", made_anew(runs))
        if refused := self._refused_inserts(base.wanted, runs):
            return refused
        assert isinstance(base.wanted.statement, CreateAsSelect)
        same_text = same_definition(runs.source.statement, base.wanted.statement)
        why_again = why if same_text else "the files say again what it is made of"
        if (again := self._again(replace(base, reason=why_again), base.wanted.statement, query)) is not None:
            return again
        number = self._next_number(base.name)
        sink = replace(query.sink, topic=version_topic(query.sink.topic, number))
        query = replace(query, sink=sink)
        change = replace(base, verdict="rebuilds", reason=why, number=number, source=sink, query=query)
        change = self._costed(self._checked(change))
        if problem := publishing_problem(runs.source, sink, change.strategy == "lambda"):
            topic = public_topic(replace(sink, statement=base.statement))
            note = f"who reads topic `{topic}` by its name gets nothing of the new version: {problem}"
            change = replace(change, warnings=(*change.warnings, note))
        return change

    def _refused_inserts(self, wanted: Wanted, runs: Runs) -> Change | None:
        """Refuse another version of what queries of INSERT INTO read or write: they would stay with this one."""
        if runs.inserted_by:
            who = ", ".join(runs.inserted_by)
            reason = f"{who} of INSERT INTO writes to it too, and would not be in a new version"
            return self._refused(wanted, runs, reason, f"first:  TERMINATE {runs.inserted_by[0]};")
        if runs.inserts:
            reason = f"{', '.join(runs.inserts)} of INSERT INTO reads it, and would go on with the old version"
            return self._refused(wanted, runs, reason, f"first:  TERMINATE {runs.inserts[0]};")
        return None

    def _costed(self, change: Change) -> Change:
        """With what it reads again, and what it can no longer read."""
        assert change.query is not None
        inputs = {source.name: source for source in change.query.inputs}
        replays, warnings = 0, []
        for name, source in inputs.items():
            known = self._running.get(name)
            topic = known.source.topic if known else source.topic
            replays += self._figures.records.get(topic, 0)
            if removed := self._figures.removed.get(topic, 0):
                warnings.append(
                    f"{removed:,} earlier records of topic `{topic}` are gone: it replays from what is left"
                )
            if topic in self._figures.compacted and source.kind == "stream":
                warnings.append(f"topic `{topic}` is compacted: of each key only what compaction has left is in it")
            if topic in self._figures.compacted and change.verdict == "rebuilds" and keeps_empty(change.query):
                warnings.append(
                    f"topic `{topic}` is compacted: groups that have become empty may be missing in the new version"
                )
        if len(inputs) > 1 and any(self._has_other_version(name) for name in inputs):
            warnings.append("it joins what is rebuilt with it: rows of the past meet the others as they are now")
        return replace(change, replays=replays, warnings=tuple(warnings))

    def _again(self, base: Change, statement: CreateAsSelect, query: PersistentQuery) -> Change | None:
        """What is there already is not computed again, unless that was asked for."""
        if self._again_names & {base.name, *names_read(statement)}:
            return None
        kept = find_kept(self._kept_versions(base.name), statement, query, base.strategy, self._start)
        if kept is None:
            return None
        query, sink = replace(query, sink=kept.source), kept.source
        change = replace(base, verdict="serves again", number=kept.number, source=sink, query=query)
        return replace(change, replays=kept.behind)

    def _has_other_version(self, name: str) -> bool:
        change = self._by_name.get(name)
        return change is not None and change.verdict in ("rebuilds", "serves again")

    def _why_rebuilt(self, inputs: Sequence[str]) -> str:
        """Of what reads other versions than before."""
        rebuilt = any(self._by_name[name].verdict == "rebuilds" for name in inputs)
        which = "is rebuilt" if rebuilt else "is another version again"
        return f"it reads {', '.join(f'`{display_name(name)}`' for name in inputs)}, which {which}" if inputs else ""

    def _base(self, wanted: Wanted, runs: Runs) -> Change:
        source = runs.source
        return Change(
            source.name,
            source.kind,
            "nothing",
            wanted=wanted,
            old_statement=source.statement,
            before=runs.number,
            strategy=runs.strategy,
        )

    def _refused(self, wanted: Wanted, runs: Runs | None, reason: str, hint: str) -> Change:
        statement = wanted.statement
        old = runs.source.statement if runs else ""
        number = runs.number if runs else NONE
        return Change(statement.name, statement.kind, "refused", reason, hint, wanted, old_statement=old, before=number)


def _redeclared(base: Change, runs: Runs, new: Source) -> Change:
    further = "" if new.value == runs.source.value else ", with further columns"
    reason = f"it is declared over the same records{further}"
    return replace(base, verdict="keeps its state", reason=reason, source=new)


def _layers_unreadable(name: str) -> HeadraceError:
    return HeadraceError(
        f"it reads `{display_name(name)}`, whose layers are merged when it is read: no query can follow it",
        hint=f"read what `{display_name(name)}` reads, or deploy that with --strategy kappa",
    )


def _without_layers(statement: Definition) -> str:
    """What to do about a view that can have none."""
    asked = isinstance(statement, CreateAsSelect) and statement.query.refresh is not None
    return "take REFRESH EVERY out of its statement: then it is replayed" if asked else "--strategy kappa replays it"


def _with_dependents(changes: Sequence[Change]) -> Iterator[Change]:
    readers: dict[str, list[str]] = {}
    for change in changes:
        for name in _names_read(change):
            readers.setdefault(name, []).append(change.name)
    for change in changes:
        found: dict[str, None] = {}
        waiting = list(readers.get(change.name, ()))
        while waiting:
            name = waiting.pop(0)
            if name not in found:
                found[name] = None
                waiting += readers.get(name, ())
        yield replace(change, dependents=tuple(found))


def _names_read(change: Change) -> list[str]:
    statement = change.wanted.statement if change.wanted else _parsed(change.old_statement)
    if isinstance(statement, CreateAsSelect):
        return list(names_read(statement))
    return [change.over] if change.over else []


def _owners(definitions: Iterable[Definition]) -> dict[str, str]:
    """By public topic: the name of what a query writes there."""
    found: dict[str, str] = {}
    for definition in definitions:
        if isinstance(definition, CreateAsSelect):
            found.setdefault(topic_name(definition), definition.name)
    return found


def _parsed(text: str) -> Definition | None:
    try:
        [statement] = parse(text)
    except (HeadraceError, ValueError):
        return None
    return statement if isinstance(statement, CreateSource | CreateAsSelect) else None
