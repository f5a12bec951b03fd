"""What other tiers call: text in, statements, sources, plans and functions out."""

from __future__ import annotations

from headrace.sql.parser import Piece, parse, parse_columns, parse_expression, split
from headrace.sql.statements import Statement

__all__ = ["Piece", "Statement", "parse", "parse_columns", "parse_expression", "split"]
