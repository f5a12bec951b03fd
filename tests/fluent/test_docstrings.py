"""An example in a docstring is a test."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize("name", ["columns", "pipeline", "streams"])
def test_examples(name: str) -> None:
    found = doctest.testmod(importlib.import_module(f"headrace.fluent.{name}"))
    assert (found.failed, found.attempted > 0) == (0, True)
