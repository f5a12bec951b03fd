"""What other tiers call: text in, statements, sources, plans and functions out."""

from __future__ import annotations

from headrace.sql.bind import function_versions, python_functions
from headrace.sql.declare import altered_source, check_assert, source_from, type_from
from headrace.sql.evaluate import compile_expression
from headrace.sql.explain import Plan, PlanTree, explain, plan_tree
from headrace.sql.functions import FUNCTIONS
from headrace.sql.functions.function import Function
from headrace.sql.insert import plan_insert
from headrace.sql.parser import Piece, parse, parse_columns, parse_expression, split
from headrace.sql.planner import plan_insert_select, plan_query, plan_select, transient_query
from headrace.sql.print_statements import print_statement
from headrace.sql.printer import print_expression
from headrace.sql.replace import (
    has_state,
    replaced_query_problem,
    replaced_source_problem,
    same_definition,
    same_results,
)
from headrace.sql.sink import insert_query_name
from headrace.sql.statements import Statement
from headrace.sql.validate import Draft, check_drop, check_drop_type, check_function, check_replace, validate

__all__ = [
    "FUNCTIONS",
    "Draft",
    "Function",
    "Piece",
    "Plan",
    "PlanTree",
    "Statement",
    "altered_source",
    "check_assert",
    "check_drop",
    "check_drop_type",
    "check_function",
    "check_replace",
    "compile_expression",
    "explain",
    "function_versions",
    "has_state",
    "insert_query_name",
    "parse",
    "parse_columns",
    "parse_expression",
    "plan_insert",
    "plan_insert_select",
    "plan_query",
    "plan_select",
    "plan_tree",
    "print_expression",
    "print_statement",
    "python_functions",
    "replaced_query_problem",
    "replaced_source_problem",
    "same_definition",
    "same_results",
    "source_from",
    "split",
    "transient_query",
    "type_from",
    "validate",
]
