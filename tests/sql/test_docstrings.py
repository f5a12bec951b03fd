"""An example in a docstring is a test."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import headrace.sql

MODULES = [module.name for module in pkgutil.walk_packages(headrace.sql.__path__, "headrace.sql.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples() -> None:
    assert sum(doctest.testmod(importlib.import_module(name)).attempted for name in MODULES) > 10
