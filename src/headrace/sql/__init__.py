"""Text → tokens → AST → analysed → plan. Pure: no Spark, no I/O, no clock.

`headrace.sql("SELECT …")` asks a project (see `headrace.frames`): what everybody calls it is also this package's name,
so the module itself can be called.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    def __call__(self, text: str, **options: Any) -> Any:
        # By name, because nothing here may depend on what is above; only who calls it needs that.
        return import_module("headrace.frames").sql(text, **options)


sys.modules[__name__].__class__ = _Callable
