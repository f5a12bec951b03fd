"""FROM … JOIN … → the plan of what is read, the names it gives, and the key it has."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace.sql.clauses import Identifier, JoinClause, Relation, WithinClause
from headrace.sql.coerce import contains_map
from headrace.sql.expressions import ColumnRef, Comparison, Expression
from headrace.sql.plan import Join, JoinForm, PlanNode, Rename, Scan, Within
from headrace.sql.printer import print_expression
from headrace.sql.resolve import resolve
from headrace.sql.scope import Scope, Side, columns_by_name, find_source, typed
from headrace.sql.script import Script
from headrace.sql.source import Source, Sources, Window
from headrace.sql.walk import walk
from headrace.types import display_name


@dataclass(frozen=True, slots=True)
class Key:
    """The key of what is read. A source's is all of `parts`, and so is that of a foreign-key join. A join has one key
    under several names: any one of `parts`, of which `column` has the value."""

    parts: tuple[ColumnRef, ...] = ()
    column: ColumnRef | None = None


@dataclass(frozen=True, slots=True)
class Input:
    """What FROM gives: a node, the names to look columns up in, the key, whether it is a stream or a table."""

    node: PlanNode
    scope: Scope
    key: Key
    table: bool
    window: Window | None = None

    @property
    def sources(self) -> tuple[Source, ...]:
        return tuple(side.source for side in self.scope.sides)


def read_relation(script: Script, relation: Relation, sources: Sources) -> Input:
    first = find_source(script, sources, relation.source)
    types = sources.types()
    if not relation.joins:
        side = _with_rowkey(_plain_side(first, relation.alias))
        scope = Scope(script, columns_by_name(first.all_columns), (side,), types=types)
        return Input(Scan(first), scope, Key(_references(first, side)), first.kind == "table", first.window)
    taken: set[str] = set()
    read = _read_side(script, first, relation.source, relation.alias, taken)
    read = replace(read, scope=replace(read.scope, types=types))
    for clause in relation.joins:
        source = find_source(script, sources, clause.source)
        right = _read_side(script, source, clause.source, clause.alias, taken)
        read = _join(read, right, clause)
    return read


def _plain_side(source: Source, alias: Identifier | None) -> Side:
    names = {column.name: column.name for column in source.all_columns}
    return Side(alias.name if alias else source.name, source, names)


def _with_rowkey(side: Side) -> Side:
    """In classic KSQL every row has its key as ROWKEY, too."""
    source = side.source
    if not source.classic or len(source.key) != 1 or "ROWKEY" in side.names:
        return side
    return replace(side, names={**side.names, "ROWKEY": source.key[0].name})


def _read_side(script: Script, source: Source, written: Identifier, alias: Identifier | None, taken: set[str]) -> Input:
    """One side of a join: its columns are called `ALIAS_COLUMN`."""
    side = _plain_side(source, alias)
    names: dict[str, str] = {}
    for column in source.all_columns:
        name = f"{side.alias}_{column.name}"
        while name in taken:
            name += "_"
        taken.add(name)
        names[column.name] = name
    node = Rename(Scan(source), tuple(names.values()))
    side = replace(side, names=names)
    scope = Scope(script, columns_by_name(node.columns), (side,))
    return Input(node, scope, Key(_references(source, side)), source.kind == "table", source.window)


def _references(source: Source, side: Side) -> tuple[ColumnRef, ...]:
    return tuple(ColumnRef(side.names[column.name], type=column.type) for column in source.key)


def _join(left: Input, right: Input, clause: JoinClause) -> Input:
    script, (side,) = left.scope.script, right.scope.sides
    for other in left.scope.sides:
        if other.alias == side.alias or other.source.name == side.source.name:
            message = f"`{display_name(side.source.name)}` cannot be joined with itself"
            hint = "declare a second stream or table over the same topic, and join that"
            raise script.error(message, clause.source.span, hint)
    both = _both(left.scope, right.scope)
    left_key, right_key = _condition(left.scope, right.scope, both, clause)
    form = _form(left, right, left_key, right_key, clause)
    within = _within(script, clause, form)
    _check_windows(left, right, left_key, right_key, clause)
    key = _key(left, left_key, right_key, form, clause, both)
    node = Join(
        kind=clause.kind,
        form=form,
        left=left.node,
        right=right.node,
        left_key=left_key,
        right_key=right_key,
        key=key.column.name if key.column else None,
        within=within,
        windowed=left.window is not None,
    )
    # The synthetic key is the only column no source has.
    extra = {_rowkey(both): key.column.name} if key.column and not key.parts else {}
    scope = replace(both, columns=columns_by_name(node.columns), extra=extra)
    return Input(node, scope, key, form in ("table-table", "foreign-key"), left.window)


def _both(left: Scope, right: Scope) -> Scope:
    return replace(left, columns={**left.columns, **right.columns}, sides=left.sides + right.sides, extra={})


def _condition(left: Scope, right: Scope, both: Scope, clause: JoinClause) -> tuple[Expression, Expression]:
    """`left = right`, however it was written."""
    on = clause.on
    if not isinstance(on, Comparison) or on.operator != "=":
        raise both.error("a join needs an equality", on.span, "ON a.x = b.y; filter the rest with WHERE")
    one, other = _resolve_side(on.left, both), _resolve_side(on.right, both)
    aliases = _alias_of(one, both, on.left), _alias_of(other, both, on.right)
    new = right.sides[0].alias
    if aliases[0] == new:
        one, other, aliases = other, one, (aliases[1], aliases[0])
    if aliases[1] != new or aliases[0] == new:
        message = f"one side of ON must be about `{display_name(new)}`, the other about what stands before it"
        raise both.error(message, on.span)
    if one.type != other.type:
        message = f"the types do not match: {_shown(on.left)} is {_type(on.left, both)}, "
        message += f"{_shown(on.right)} is {_type(on.right, both)}"
        raise both.error(message, on.span, "convert one side with CAST(… AS …)")
    assert one.type is not None
    if contains_map(one.type):
        raise both.error(f"the join key cannot hold a MAP, and this is {one.type}", on.span)
    return one, other


def _resolve_side(written: Expression, both: Scope) -> Expression:
    return typed(resolve(written, both, "ON"), both)


def _type(written: Expression, both: Scope) -> object:
    return _resolve_side(written, both).type


def _shown(written: Expression) -> str:
    return f"`{print_expression(written)}`"


def _alias_of(resolved: Expression, both: Scope, written: Expression) -> str:
    used = {node.name for node in walk(resolved) if isinstance(node, ColumnRef)}
    aliases = [side.alias for side in both.sides if used & set(side.names.values())]
    if len(aliases) != 1:
        what = "none" if not aliases else " and ".join(display_name(alias) for alias in aliases)
        message = f"each side of ON must have columns of one stream or table; {_shown(written)} has {what}"
        raise both.error(message, written.span)
    return aliases[0]


def _form(left: Input, right: Input, left_key: Expression, right_key: Expression, clause: JoinClause) -> JoinForm:
    """What kind of join it is, refused where there is no such kind."""
    error, span = left.scope.script.error, clause.span
    name = display_name(clause.alias.name if clause.alias else clause.source.name)
    if left.table and not right.table:
        hint = f"begin with the stream: FROM {name} JOIN …"
        raise error("a table cannot be joined with a stream; a stream with a table can", span, hint)
    if not right.table:
        return "stream-stream"
    if right.key.parts != (right_key,):
        keys = ", ".join(display_name(column.name) for column in right.sources[0].key)
        message = f"the table `{name}` is joined by its primary key, which is {keys}"
        raise error(message, clause.on.span)
    if not left.table:
        if clause.kind not in ("inner", "left"):
            hint = "LEFT JOIN keeps every row of the stream"
            raise error(f"{clause.kind.upper()} JOIN of a stream with a table does not exist", span, hint)
        return "stream-table"
    by_key = left_key in left.key.parts and (left.key.column is not None or len(left.key.parts) == 1)
    if by_key or left_key == left.key.column:
        return "table-table"
    if left.scope.joined:
        message = "a foreign-key join must come first, or stand alone"
        raise error(message, clause.on.span, "CREATE TABLE … AS SELECT it first, then join that")
    if clause.kind not in ("inner", "left"):
        raise error(f"a foreign-key join is an inner or a LEFT JOIN, not {clause.kind.upper()}", span)
    return "foreign-key"


def _within(script: Script, clause: JoinClause, form: JoinForm) -> Within | None:
    within = clause.within
    if form != "stream-stream":
        if within is not None:
            raise script.error("WITHIN is for joining two streams", clause.span, "leave it out")
        return None
    if within is None:
        hint = "such as WITHIN 1 HOUR: how far apart rows that match may be"
        raise script.error("joining two streams needs WITHIN", clause.span, hint)
    return _durations(within)


def _durations(within: WithinClause) -> Within:
    before = within.before.milliseconds
    after = within.after.milliseconds if within.after is not None else before
    return Within(before, after, within.grace.milliseconds if within.grace is not None else None)


def _check_windows(left: Input, right: Input, left_key: Expression, right_key: Expression, clause: JoinClause) -> None:
    """Windowed sources have their window in the key, so they are joined with each other and by that key only."""
    error = left.scope.script.error
    if left.window is None and right.window is None:
        return
    if left.window is None or right.window is None:
        with_window = left if left.window else right
        name = display_name(with_window.sources[0].name)
        raise error(f"`{name}` is windowed, and can only be joined with another windowed source", clause.span)
    if (left.window.kind == "session") != (right.window.kind == "session"):
        message = f"{left.window.kind} windows and {right.window.kind} windows never have the same bounds"
        raise error(message, clause.span)
    if (left.key.parts != (left_key,) and left.key.column != left_key) or right.key.parts != (right_key,):
        raise error("windowed sources are joined by their keys", clause.on.span)


def _key(
    left: Input, left_key: Expression, right_key: Expression, form: JoinForm, clause: JoinClause, both: Scope
) -> Key:
    """The result's key: the columns that are equal to it, or if there is none (or it may be null) ROWKEY."""
    if form == "foreign-key":
        return left.key
    if clause.kind == "full":
        names: list[Expression] = []
    elif left_key in left.key.parts and (left.key.column or len(left.key.parts) == 1):
        names = [*left.key.parts, right_key]
    else:
        names = [left_key, right_key]
    parts = tuple(replace(name, span=None) for name in names if isinstance(name, ColumnRef))
    number = sum(name.startswith("KSQL_JOIN_KEY") for name in both.columns)
    return Key(parts, ColumnRef(f"KSQL_JOIN_KEY_{number}", type=left_key.type))


def _rowkey(both: Scope) -> str:
    """The key's name where it has no other: one that no source has."""
    taken = {name for side in both.sides for name in side.names}
    numbered = ["ROWKEY", *(f"ROWKEY_{n}" for n in range(1, len(taken) + 2))]
    return next(name for name in numbered if name not in taken)
