"""Headrace: events in, a unified log, streaming SQL on Spark, live tables out."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.client import AsyncClient, Client
    from headrace.fluent.streams import stream, table
    from headrace.functions.attach import Record, on_topic, transform
    from headrace.functions.decorator import function

__version__ = "0.1.0"
__all__ = ["AsyncClient", "Client", "Record", "__version__", "function", "on_topic", "stream", "table", "transform"]


def __getattr__(name: str) -> Any:
    """Loaded when somebody asks: a command that needs none should not wait for them."""
    if name in ("AsyncClient", "Client"):
        from headrace import client

        return getattr(client, name)
    if name == "sql":
        # The package of that name, which can be called: see there.
        return import_module("headrace.sql")
    if name in ("stream", "table"):
        from headrace import fluent

        return getattr(fluent, name)
    if name == "function":
        from headrace.functions.decorator import function

        return function
    if name in ("Record", "on_topic", "transform"):
        from headrace.functions import attach

        return getattr(attach, name)
    raise AttributeError(f"module `headrace` has no attribute `{name}`")
