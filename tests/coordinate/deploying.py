"""What the tests of deployments share: a chain of three, and changing it as if all had been built and approved."""

from __future__ import annotations

from headrace.coordinate.deployments import Deployments, Options
from headrace.coordinate.statements import StatementExecutor
from headrace.views.versions import Deployment, Strategy

CLICKS = "CREATE STREAM clicks (userid VARCHAR KEY, page VARCHAR) WITH (KAFKA_TOPIC='clicks');"
BY_USER = "CREATE TABLE by_user AS SELECT userid, COUNT(*) AS n FROM clicks GROUP BY userid;"
TOP = "CREATE TABLE top AS SELECT userid, n FROM by_user WHERE n > 1;"
CHAIN = CLICKS + BY_USER + TOP
HOME = "CREATE STREAM home AS SELECT userid, page FROM clicks WHERE page = '/home';"
COUNTED = "CREATE TABLE counted AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page;"


def deploy(deployments: Deployments, sql: str, strategy: Strategy = "kappa") -> Deployment:
    started = deployments.start({"pipelines/all.sql": sql}, Options(approve=True, strategy=strategy))
    assert started is not None
    return started


def deployed(deployments: Deployments, sql: str) -> Deployment:
    """As if all had been built and approved."""
    started = deploy(deployments, sql)
    return started if started.over else deployments.switch(started)


def reads(executor: StatementExecutor, name: str) -> list[str]:
    """The topics that what serves under a name is made of."""
    source = executor.catalog.source(name)
    assert source is not None
    query = executor.catalog.query(source.query or "")
    assert query is not None
    return list(query.reads.values())
