"""What has to be held up together to compare the views of a deployment."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from headrace.coordinate.chains import Chain, independent
from tests.coordinate.by_hand import SQL, by_hand

VIEWS = (
    SQL
    + """
CREATE TABLE by_page_busy AS SELECT page, n FROM by_page WHERE n > 5;
CREATE TABLE by_page_alone AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page;
"""
)
REWRITTEN = VIEWS.replace("FROM clicks GROUP", "FROM clicks WHERE page IS NOT NULL GROUP")
NO_MORE_BUSY = REWRITTEN.replace("n FROM by_page WHERE n > 5", "COUNT(*) AS n FROM clicks GROUP BY page")


def groups(folder: Path, sql: str) -> list[tuple[list[str], list[str]]]:
    """The names of each chain, and what their new versions are written to."""
    with by_hand(folder, VIEWS) as engine:
        engine.held |= {"BY_PAGE.v2", "BY_PAGE_BUSY.v2", "BY_PAGE_ALONE.v2"}
        deployments = engine.services.deployments
        deployment = engine.deploy(sql)
        chain = Chain(tuple(deployment.items), partial(deployments.queries, deployment))
        return [
            ([item.name for item in part.items], [query.sink_topic for query in part.queries()])
            for part in independent(engine.services.catalog, chain)
        ]


def test_views_that_read_nothing_of_each_other_are_compared_by_themselves(tmp_path: Path) -> None:
    assert groups(tmp_path, REWRITTEN) == [
        (["BY_PAGE", "BY_PAGE_BUSY"], ["BY_PAGE.v2", "BY_PAGE_BUSY.v2"]),
        (["BY_PAGE_ALONE"], ["BY_PAGE_ALONE.v2"]),
    ]


def test_what_one_of_the_versions_reads_is_enough(tmp_path: Path) -> None:
    found = groups(tmp_path, NO_MORE_BUSY)
    assert [sorted(names) for names, _ in found] == [["BY_PAGE", "BY_PAGE_BUSY"], ["BY_PAGE_ALONE"]]
