"""What is read into types of ours is read by several threads at once."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace

PLAIN = {"str", "int", "float", "bool", "bytes", "list", "dict", "tuple", "set", "Any", "msgspec", "object"}
READING = {"decode": 1, "convert": 1, "Decoder": 0}
"""msgspec's functions that take a type, and where if it is not named."""


def types_read(tree: ast.AST) -> Iterator[ast.expr]:
    """What msgspec is told to read into."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr in READING and ast.unparse(node.func).startswith("msgspec."):
            yield from (keyword.value for keyword in node.keywords if keyword.arg == "type")
            yield from node.args[READING[node.func.attr] : READING[node.func.attr] + 1]


def is_safe(read: ast.expr) -> bool:
    """Made ready, or of nothing that msgspec has to look into."""
    if isinstance(read, ast.Call) and isinstance(read.func, ast.Name) and read.func.id == "ready":
        return True
    return all(node.id in PLAIN for node in ast.walk(read) if isinstance(node, ast.Name))


def test_every_type_that_is_read_into_is_made_ready_first() -> None:
    package = Path(headrace.__file__).parent
    unsafe = [
        f"{file.relative_to(package)}:{read.lineno}: {ast.unparse(read)}"
        for file in sorted(package.rglob("*.py"))
        if file.name != "structs.py"
        for read in types_read(ast.parse(file.read_text(encoding="utf-8")))
        if not is_safe(read)
    ]
    assert unsafe == []


MANY = """
import sys, threading, types, msgspec
from headrace.structs import ready
sys.setswitchinterval(1e-6)
FIELDS = "".join(f"    a{n}: dict[str, list[int]] | None = None\\n" for n in range(30))
SOURCE = f"from __future__ import annotations\\nimport msgspec\\nclass Inner(msgspec.Struct):\\n{FIELDS}\\n"
SOURCE += "class Outer(msgspec.Struct):\\n    inner: Inner\\n"
for number in range(300):
    module = sys.modules[f"m{number}"] = types.ModuleType(f"m{number}")
    exec(SOURCE, module.__dict__)
    together = threading.Barrier(4)
    def read(outer=module.Outer, inner=module.Inner):
        together.wait()
        msgspec.convert({"inner": {"a29": {"x": [1]}}}, ready(outer))
        msgspec.convert({"a29": {"x": [1]}}, ready(inner))
    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
print("read")
"""


@pytest.mark.slow
def test_threads_that_read_one_for_the_first_time_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", MANY], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "read\n"), done.stderr
