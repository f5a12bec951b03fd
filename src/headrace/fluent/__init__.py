"""Streams and tables in Python instead of text: `stream("pageviews").filter(…).group_by(…).count().to(…)`.

Every chain is a statement of the SQL, made of the same nodes, and prints as it. docs/tutorial/python.md begins here.
"""

from headrace.fluent.columns import Column, col, expr, fn, lit
from headrace.fluent.pipeline import Pipeline, pipeline_text
from headrace.fluent.streams import Grouped, Stream, Table, stream, table

__all__ = [
    "Column",
    "Grouped",
    "Pipeline",
    "Stream",
    "Table",
    "col",
    "expr",
    "fn",
    "lit",
    "pipeline_text",
    "stream",
    "table",
]
