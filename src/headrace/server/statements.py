"""`POST /v1/statements` and what editors ask."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

from headrace.access.rights import Resource, Role
from headrace.coordinate.definitions import substitute
from headrace.coordinate.result import StatementResult
from headrace.errors import HeadraceError, SqlError
from headrace.server.audit import DETAIL
from headrace.server.endpoint import Endpoint
from headrace.server.errors import error_body, json_response
from headrace.server.models.base import ColumnModel
from headrace.server.models.sql import (
    Completions,
    KnownFunction,
    PlanModel,
    ResultModel,
    SourceColumns,
    StatementsAnswer,
    StatementSpan,
    StatementsRequest,
    ValidateAnswer,
    ValidateRequest,
)
from headrace.server.parameters import body_of
from headrace.server.services import Services
from headrace.server.touched import by_handler, written_resource
from headrace.sql.api import FUNCTIONS, PlanTree, parse
from headrace.sql.api import validate as check_script
from headrace.sql.parser.statements import KEYWORDS
from headrace.sql.statements import Describe, DescribeFunction, Explain, InsertValues, Print, SelectStatement, Show
from headrace.sql.tokens import NOT_AN_ALIAS
from headrace.types import Column, display_name

# Words of the language that are no function, source or column; the parser treats many of them as plain names.
OTHER_WORDS = """
STREAM TABLE IF EXISTS REPLACE KEY PRIMARY TUMBLING HOPPING SIZE ADVANCE PERIOD RETENTION CHANGES FINAL EVERY
OVER ROWS PRECEDING FOLLOWING UNBOUNDED CURRENT ROW OFFSET OFFSETS
STREAMS TABLES TOPICS QUERIES FUNCTIONS PROPERTIES EXTENDED FUNCTION TOPIC DELETE BEGINNING
MILLISECONDS SECONDS MINUTES HOURS DAYS ROWTIME ROWPARTITION ROWOFFSET WINDOWSTART WINDOWEND
BOOLEAN INTEGER BIGINT DOUBLE DECIMAL VARCHAR BYTES DATE TIME TIMESTAMP ARRAY MAP STRUCT
KAFKA_TOPIC VALUE_FORMAT KEY_FORMAT PARTITIONS TIMESTAMP_FORMAT
"""
ONLY_READS = (Show, Describe, DescribeFunction, Explain, SelectStatement, Print)
WORDS = sorted({*NOT_AN_ALIAS, *KEYWORDS, *OTHER_WORDS.split()})


async def run_statements(request: Request, services: Services) -> Response:
    wanted = await body_of(request, services, StatementsRequest)
    request.scope[DETAIL] = wanted.sql
    await check_statements(request, services, wanted.sql, wanted.variables)

    def run() -> tuple[list[ResultModel], Exception | None]:
        results: list[ResultModel] = []
        try:
            results.extend(map(result_model, services.statements.run(wanted.sql, wanted.variables, wanted.settings)))
        except Exception as error:
            return results, error
        return results, None

    results, error = await services.run(run)
    if error is None:
        return json_response(StatementsAnswer(results=results))
    # Those before it have happened, so the answer has both.
    body = StatementsAnswer(results=results, error=error_body(error) | {"statement": len(results)})
    return json_response(body, error.status if isinstance(error, HeadraceError) else 500)


async def check_statements(request: Request, services: Services, sql: str, variables: Mapping[str, str] | None) -> None:
    """`Refused` unless who asks may run all of these. With scopes, that is INSERT into their own topics."""
    needed = await services.run(role_needed, sql, variables)
    limited = services.auth.is_limited(request)
    written = await services.run(_written, services, sql, variables) if limited else []
    services.auth.check(request, needed, lambda _: written)


def _written(services: Services, sql: str, variables: Mapping[str, str] | None) -> list[Resource | None]:
    try:
        statements = parse(substitute(sql, variables or {}), variables)
    except SqlError:
        return []
    targets = [services.catalog.source(one.name) if isinstance(one, InsertValues) else None for one in statements]
    return [None if target is None else written_resource(target) for target in targets]


def role_needed(sql: str, variables: Mapping[str, str] | None = None) -> Role:
    """What these statements do decides who may run them. Text that cannot be read runs nothing: its error is for all.

    >>> role_needed("SHOW TABLES; DESCRIBE users;"), role_needed("DROP TABLE users;")
    ('read', 'admin')
    """
    try:
        statements = parse(substitute(sql, variables or {}), variables)
    except SqlError:
        return "read"
    if all(isinstance(statement, ONLY_READS) for statement in statements):
        return "read"
    return "write" if all(isinstance(each, (*ONLY_READS, InsertValues)) for each in statements) else "admin"


def result_model(result: StatementResult) -> ResultModel:
    return ResultModel(
        statement=result.statement,
        kind=result.kind,
        message=result.message,
        columns=None if result.columns is None else column_models(result.columns),
        rows=None if result.rows is None else [list(row) for row in result.rows],
        text=result.text,
        query_id=result.query_id,
        plan=None if result.plan is None else plan_model(result.plan),
        token=result.token,
    )


def plan_model(tree: PlanTree) -> PlanModel:
    return PlanModel(tree.title, list(tree.details), [plan_model(below) for below in tree.inputs])


def column_models(columns: tuple[Column, ...]) -> list[ColumnModel]:
    return [ColumnModel(display_name(column.name), str(column.type)) for column in columns]


async def validate(request: Request, services: Services) -> Response:
    wanted = await body_of(request, services, ValidateRequest)

    def run() -> ValidateAnswer:
        try:
            found = [statement for statement, _ in check_script(wanted.sql, services.catalog)]
        except SqlError as error:
            return ValidateAnswer(ok=False, error=error.to_json())
        spans = [StatementSpan(type(each).__name__, each.start, each.end) for each in found]
        return ValidateAnswer(ok=True, statements=spans)

    return json_response(await services.run(run))


async def completions(request: Request, services: Services) -> Response:
    return json_response(
        Completions(
            keywords=WORDS,
            functions=[
                KnownFunction(
                    function.name,
                    function.kind,
                    " or ".join(signature.text for signature in function.signatures),
                    function.summary,
                )
                for function in {**FUNCTIONS, **services.catalog.functions()}.values()
            ],
            sources=[
                SourceColumns(display_name(source.name), source.kind, column_models(source.columns))
                for source in services.catalog.sources()
            ],
        )
    )


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/v1/statements",
        handler=run_statements,
        touches=by_handler,
        summary="Run statements one after the other, up to the first error. INSERT needs `write`, what defines `admin`",
        body=StatementsRequest,
        changes=True,
        answers={200: StatementsAnswer},
    ),
    Endpoint(
        method="POST",
        path="/v1/validate",
        handler=validate,
        summary="Is this SQL right? Changes nothing",
        body=ValidateRequest,
        answers={200: ValidateAnswer},
    ),
    Endpoint(
        method="GET",
        path="/v1/completions",
        handler=completions,
        summary="What an editor can offer",
        answers={200: Completions},
    ),
)
