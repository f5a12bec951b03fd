"""Can records written with one Avro schema be read with another? The specification's rules of resolution."""

from __future__ import annotations

from dataclasses import replace

from headrace.log.registry.avro_schema import Array, Enum, Fixed, Map, Named, Node, Primitive, Record, Union
from headrace.log.registry.base import Problem

PROMOTIONS: dict[str, frozenset[str]] = {
    "long": frozenset({"int"}),
    "float": frozenset({"int", "long"}),
    "double": frozenset({"int", "long", "float"}),
    "bytes": frozenset({"string"}),
    "string": frozenset({"bytes"}),
}
"""What a reader's type can take of a writer's, besides itself."""


_MOST = 20
"""Problems told of one place: a schema may use the same broken type a thousand times."""


def avro_problems(reader: Node, writer: Node) -> list[Problem]:
    """Why `reader` cannot read everything that `writer` may have written; empty if it can."""
    return _Check().check(reader, writer)


class _Check:
    """Paths are relative to the pair that is compared, so that what is known of a pair can be told at every place."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], list[Problem]] = {}

    def check(self, reader: Node, writer: Node, step: str = "") -> list[Problem]:
        pair = (id(reader), id(writer))
        if pair not in self._known:
            # A recursive type meets itself further down: there it holds whatever is found here.
            self._known[pair] = []
            self._known[pair] = self._compare(reader, writer)[:_MOST]
        return [replace(problem, path=step + problem.path) for problem in self._known[pair]]

    def _compare(self, reader: Node, writer: Node) -> list[Problem]:
        if isinstance(writer, Union):
            return [
                problem
                for place, branch in enumerate(writer.branches)
                for problem in self.check(reader, branch, f"/{place}" if isinstance(reader, Union) else "")
            ]
        if isinstance(reader, Union):
            return self._into_union(reader, writer)
        match reader, writer:
            case Record(), Record():
                return _name_problems(reader, writer) or self._fields(reader, writer)
            case Enum(), Enum():
                return _name_problems(reader, writer) or _symbols(reader, writer)
            case Fixed(), Fixed():
                return _name_problems(reader, writer) or _size(reader, writer)
            case Array(), Array():
                return self.check(reader.items, writer.items, "/items")
            case Map(), Map():
                return self.check(reader.values, writer.values, "/values")
            case Primitive(), Primitive() if _promotes(reader.kind, writer.kind):
                return []
            case _:
                return [Problem("TYPE_MISMATCH", "", f"`{_shown(writer)}` cannot be read as `{_shown(reader)}`")]

    def _into_union(self, reader: Union, writer: Node) -> list[Problem]:
        tries = [self.check(branch, writer) for branch in reader.branches]
        if any(not problems for problems in tries):
            return []
        # A record of the same name is what was meant: its own problems say more than that nothing fits.
        for branch, problems in zip(reader.branches, tries, strict=True):
            if isinstance(branch, Record) and isinstance(writer, Record) and branch.name == writer.name:
                return problems
        return [Problem("MISSING_UNION_BRANCH", "", f"the reader's union has no branch for `{_shown(writer)}`")]

    def _fields(self, reader: Record, writer: Record) -> list[Problem]:
        written = {field.name: field for field in writer.fields}
        problems: list[Problem] = []
        for place, field in enumerate(reader.fields):
            found = next((written[name] for name in (field.name, *field.aliases) if name in written), None)
            if found is not None:
                problems += self.check(field.type, found.type, f"/fields/{place}/type")
            elif not field.has_default and not (isinstance(field.type, Enum) and field.type.default is not None):
                message = f"the field `{field.name}` is not in what was written and has no default"
                problems.append(Problem("READER_FIELD_MISSING_DEFAULT_VALUE", f"/fields/{place}", message))
        return problems


def _promotes(reader: str, writer: str) -> bool:
    return reader == writer or writer in PROMOTIONS.get(reader, ())


def _name_problems(reader: Named, writer: Named) -> list[Problem]:
    if reader.name == writer.name or writer.full_name in reader.aliases:
        return []
    message = f"`{writer.full_name}` was written, `{reader.full_name}` is expected"
    return [Problem("NAME_MISMATCH", "/name", message)]


def _symbols(reader: Enum, writer: Enum) -> list[Problem]:
    missing = [symbol for symbol in writer.symbols if symbol not in reader.symbols]
    if not missing or reader.default is not None:
        return []
    message = f"the enum `{reader.full_name}` has no {', '.join(f'`{symbol}`' for symbol in missing)}"
    return [Problem("MISSING_ENUM_SYMBOLS", "/symbols", message)]


def _size(reader: Fixed, writer: Fixed) -> list[Problem]:
    if reader.size == writer.size:
        return []
    message = f"`{reader.full_name}` is {reader.size} bytes, {writer.size} were written"
    return [Problem("FIXED_SIZE_MISMATCH", "/size", message)]


def _shown(node: Node) -> str:
    return node.full_name if isinstance(node, Named) else node.kind
