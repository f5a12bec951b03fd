"""Care for views whose versions change meanwhile: computed by hand, without Spark."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.log.base import Append
from tests.coordinate.by_hand import PATIENCE, SQL, by_hand
from tests.support import wait_for

ONE_MORE = SQL.replace("COUNT(*) AS n", "COUNT(*) + 1 AS n")


def test_a_switch_is_no_drift(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the catalog's word that another version serves and its rows being the ones served a check looks at the
    rows of the version it computes again."""
    with by_hand(tmp_path) as engine:
        services = engine.services
        # Rows as the statements have them: all clicks are of one page, and the new version counts one more.
        clicks = {"USERID": ["ann"] * 3, "PAGE": ["all"] * 3, "$time": [0] * 3}
        services.log.append([Append("clicks", pa.record_batch(clicks))]).result()
        engine.more["BY_PAGE.v2"] = 1
        wait_for(lambda: engine.shown() == 3, PATIENCE, "three clicks")
        [view] = services.catalog.views()
        assert services.care.check(view, 50, 60.0) == []
        switching, go_on, sync = threading.Event(), threading.Event(), services.followers.sync

        def slow(*given: Any, **named: Any) -> None:
            if engine.serving() == 2:
                switching.set()
                go_on.wait(120)
            sync(*given, **named)

        monkeypatch.setattr(services.followers, "sync", slow)
        engine.deploy(ONE_MORE, approve=True)
        try:
            wait_for(switching.is_set, PATIENCE, "the switch")
            [view] = services.catalog.views()
            assert view.version == 2
            assert services.care.check(view, 50, 60.0) == []
            assert services.care.checked["BY_PAGE", 2].rows == 1
        finally:
            go_on.set()
        wait_for(lambda: engine.shown() == 4, PATIENCE, "the new version")
