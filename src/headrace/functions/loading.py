"""Texts → modules. A file and its neighbours are a package of their own, named by its version: two versions of one
file can be loaded side by side, and a traceback shows the file's own lines."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import threading
from collections.abc import Sequence
from pathlib import PurePosixPath
from types import ModuleType
from typing import Any

from headrace.functions.files import FOLDER, FunctionFile

PREFIX = "headrace_functions_"
_lock = threading.Lock()


class _Source(importlib.abc.ExecutionLoader):
    """One text, under the name of the file it is from."""

    def __init__(self, text: str, file: str) -> None:
        self._text, self._file = text, file

    def get_source(self, fullname: str) -> str:
        return self._text

    def get_filename(self, fullname: str) -> str:
        return self._file


class _Finder(importlib.abc.MetaPathFinder):
    """Finds what was put there, and nothing else."""

    def __init__(self) -> None:
        self.sources: dict[str, _Source] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        source = self.sources.get(fullname)
        if source is None:
            return None
        spec = importlib.machinery.ModuleSpec(fullname, source, origin=source.get_filename(fullname))
        spec.submodule_search_locations = [] if "." not in fullname else None
        return spec


_finder = _Finder()


def load(file: FunctionFile) -> ModuleType:
    """The file's module, run once in this process. Whatever it raises is the caller's to tell."""
    package = PREFIX + file.version
    own = PurePosixPath(file.file).stem if file.file.startswith(f"{FOLDER}/") else "sql"
    name = f"{package}.{own}"
    with _lock:
        if _finder not in sys.meta_path:
            sys.meta_path.insert(0, _finder)
        # The name says the version, so what is there already is the same.
        _finder.sources.setdefault(package, _Source("", FOLDER))
        for helper, text in file.helpers:
            _finder.sources.setdefault(f"{package}.{helper}", _Source(text, f"{FOLDER}/{helper}.py"))
        _finder.sources.setdefault(name, _Source(file.text, file.file))
    return importlib.import_module(name)


def load_attribute(file: FunctionFile, attribute: str) -> Any:
    return getattr(load(file), attribute)
