"""An example in a docstring is a test."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import headrace

PACKAGE = Path(headrace.__file__).parent
FILES = [file for file in sorted(PACKAGE.rglob("*.py")) if ">>> " in file.read_text(encoding="utf-8")]
MODULES = [".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts) for file in FILES]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    found = doctest.testmod(importlib.import_module(name))
    assert (found.failed, found.attempted > 0) == (0, True)
