"""pyarrow looks for pandas when it makes its first array out of Python values, to know a series if it sees one. The
import takes the better part of a second and 60 MB, in processes that never see any: server, collectors, commands. Only
they call this, never the library: where a user's code runs, a series must be known."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec

import pyarrow as pa


def without_pandas() -> None:
    """Let pyarrow look now and not find it. It looks again for who asks for a frame (`to_pandas`)."""
    if "pandas" in sys.modules:
        return
    hidden = _Hidden()
    sys.meta_path.insert(0, hidden)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(hidden)


class _Hidden:
    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not looked for yet", name=name)
        return None
