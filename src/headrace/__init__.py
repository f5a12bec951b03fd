"""Headrace: events in, a unified log, streaming SQL on Spark, live tables out."""

__version__ = "0.1.0"
