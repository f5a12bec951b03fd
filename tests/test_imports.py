"""The folders are the architecture: imports point down, and never in a circle."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import headrace

PACKAGE = Path(headrace.__file__).parent

# Highest first. Tiers of one storey may not import each other.
STOREYS = (
    {"frames"},
    {"cli", "server"},
    {"testing"},
    {"coordinate"},
    {"views", "deliver"},
    {"process", "collect", "spark"},
    {"store"},
    {"functions", "fluent"},
    {"log"},
    {"sql", "client", "access"},
    {
        "types",
        "errors",
        "config",
        "clock",
        "lean",
        "logs",
        "nearest",
        "patterns",
        "secrecy",
        "structs",
        "toml_files",
        "watchdog",
    },
)
HEIGHT = {tier: len(STOREYS) - number for number, storey in enumerate(STOREYS) for tier in storey}
VOCABULARY = STOREYS[-1]


def tier_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def walk_running(node: ast.AST) -> Iterator[ast.AST]:
    """Every node but those under `if TYPE_CHECKING:`, which nobody runs."""
    todo = [node]
    while todo:
        node = todo.pop()
        if not (isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            yield node
            todo.extend(ast.iter_child_nodes(node))


@functools.cache
def imports() -> dict[str, set[str]]:
    """Module → modules of ours it imports, anywhere in the file, except for type checking only."""
    found: dict[str, set[str]] = {}
    for file in PACKAGE.rglob("*.py"):
        parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[module] = set()
        for node in walk_running(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("headrace"):
                found[module].update({node.module, *(f"{node.module}.{alias.name}" for alias in node.names)})
            elif isinstance(node, ast.Import):
                found[module].update(alias.name for alias in node.names if alias.name.startswith("headrace."))
    return {module: {name for name in names if name in found} for module, names in found.items()}


def test_every_tier_has_its_place() -> None:
    tiers = {tier_of(module) for module in imports()} - {""}
    assert tiers <= set(HEIGHT), f"add to STOREYS: {tiers - set(HEIGHT)}"


def test_imports_point_down() -> None:
    upward = sorted(
        f"{module} → {name}"
        for module, names in imports().items()
        for name in names
        if tier_of(module) and tier_of(name) and tier_of(module) != tier_of(name)
        if HEIGHT[tier_of(name)] >= HEIGHT[tier_of(module)]
        if not (tier_of(module) in VOCABULARY and tier_of(name) in VOCABULARY)
    )
    assert upward == []


def test_no_circles() -> None:
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " → ".join((*path[path.index(module) :], module))
        if module in done:
            return
        for name in imports()[module]:
            # A package's __init__ is imported by every module in it; that is no dependency.
            if name != module and not module.startswith(f"{name}."):
                visit(name, (*path, module))
        done.add(module)

    for module in imports():
        visit(module, ())


def test_the_vocabulary_knows_nothing_of_us() -> None:
    for module in VOCABULARY:
        outside = {name for name in imports()[f"headrace.{module}"] if tier_of(name) not in VOCABULARY}
        assert outside <= {"headrace"}


def test_the_sql_tier_is_pure() -> None:
    forbidden = ("pyspark", "pyarrow", "sqlite3", "socket", "asyncio", "threading")
    for file in (PACKAGE / "sql").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not [name for name in names if name.split(".")[0] in forbidden], file
