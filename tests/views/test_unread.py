"""A view that is behind says so, whoever asks about a row: computed by hand, without Spark."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import msgspec
import pytest

from headrace.cli.trust import print_why
from headrace.coordinate.subjects import source_subject, view_subject
from headrace.errors import NotFound
from headrace.server.trust_models import why_model
from headrace.views.why import Why, why
from tests.coordinate.by_hand import PATIENCE, ByHand, by_hand
from tests.support import wait_for

SQL = """
CREATE STREAM clicks (userid VARCHAR KEY, page VARCHAR) WITH (KAFKA_TOPIC='clicks', PARTITIONS=1);
CREATE STREAM home AS SELECT userid, page FROM clicks;
CREATE TABLE by_page AS SELECT page, COUNT(*) AS n FROM home GROUP BY page;
CREATE TABLE per_minute AS SELECT page, COUNT(*) AS n FROM clicks WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY page;
"""


def explained(engine: ByHand, name: str) -> Why:
    services = engine.services
    view = services.catalog.view(name)
    assert view is not None
    below, store = partial(source_subject, services.catalog), services.followers.view(name)
    return why(services.log, view_subject(services.catalog, view), store, {"PAGE": "nobody"}, subject_of=below)


def test_what_has_yet_to_be_read_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with by_hand(tmp_path, SQL) as engine:
        engine.click(3)
        wait_for(lambda: engine.shown() == 3, PATIENCE, "three clicks")
        assert explained(engine, "BY_PAGE").unread == {}
        engine.held |= {"HOME"}
        engine.click(2)
        found = explained(engine, "BY_PAGE")
        assert found.unread == {"clicks": 2}, "not by its own query, but by one that writes what it reads"
        print_why(msgspec.to_builtins(why_model(found, engine.services)))
        said = capsys.readouterr().out
        assert "  behind      2 records of clicks yet to be read: this is how it was before them\n" in said
        assert "  made of     no records that were read so far\n" in said
        with pytest.raises(NotFound, match="has no window of this key") as refused:
            explained(engine, "PER_MINUTE")
        assert refused.value.detail == "it is behind: 5 records of `clicks` have yet to be read"
