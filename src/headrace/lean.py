"""What keeps a process of ours lean. Only those that run nothing but our own code call it: server, collectors, command.
Never the library: where a user's code runs, all of it is the user's to decide."""

from __future__ import annotations

import gc
import sys
from importlib.machinery import ModuleSpec

import pyarrow as pa


def without_pandas() -> None:
    """pyarrow looks for pandas when it makes its first array out of Python values, to know a series if it sees one: the
    better part of a second and 60 MB. Let it look now and not find it; for who asks for a frame it looks again."""
    if "pandas" in sys.modules:
        return
    hidden = _Hidden()
    sys.meta_path.insert(0, hidden)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(hidden)


def collect_seldom() -> None:
    """Python looks for cycles after every 700 new objects, every millisecond of a busy server, and now and then through
    all that was ever imported. That took a third of the processor's time for single records, and their p99."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


def switch_often() -> None:
    """A thread may keep the others waiting for half a millisecond. Python's 5 ms is as long as committing a group
    takes, and a record may have to wait for several threads' turns."""
    sys.setswitchinterval(0.0005)


class _Hidden:
    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not looked for yet", name=name)
        return None
