"""What keeps its state keeps its rows: whoever asks in between sees no difference."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from headrace.clock import SystemClock
from headrace.config import load_project
from headrace.coordinate.deployments import Options
from headrace.log.base import Append
from headrace.server.assemble import open_services
from tests.support import wait_for

CLICKS = "CREATE STREAM clicks (userid VARCHAR KEY, page VARCHAR) WITH (KAFKA_TOPIC='clicks');"
BY_PAGE = "CREATE TABLE by_page AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page;"


@pytest.mark.parametrize("how", ["deploy", "replace"])
def test_the_same_in_other_words_keeps_the_rows(tmp_path: Path, how: str) -> None:
    (tmp_path / "headrace.toml").write_text("")
    with open_services(load_project(tmp_path), SystemClock()) as services:
        services.deployments.start({"all.sql": CLICKS + BY_PAGE}, Options())
        pages = pa.array([f"/{number}" for number in range(1_000)])
        services.log.append([Append("BY_PAGE", pa.record_batch({"PAGE": pages, "N": pa.array(range(1_000))}))]).result()
        wait_for(lambda: services.followers.view("BY_PAGE").count() == 1_000, 20, "the rows")
        view = services.followers.view("BY_PAGE")
        if how == "deploy":
            other = BY_PAGE.replace("FROM clicks", "FROM clicks c")
            started = services.deployments.start({"all.sql": CLICKS + other}, Options())
            assert started is not None
            assert [item.verdict for item in started.items] == ["keeps its state"]
        else:
            services.statements.execute(BY_PAGE.replace("CREATE", "CREATE OR REPLACE").replace("COUNT(*)", "COUNT(1)"))
        assert services.followers.view("BY_PAGE") is view
        assert view.count() == 1_000
        assert view.source == services.catalog.source("BY_PAGE")
