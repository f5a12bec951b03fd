"""Snowplow's own tracker in a page of another site, in Chromium, over a server that is killed: each event once."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page

from tests.browser.conftest import Alone, Watched
from tests.support import wait_for

pytestmark = pytest.mark.browser

TRACKER = Path(__file__).parents[1] / "clients/node/node_modules/@snowplow/browser-tracker/dist/index.umd.min.js"
EVENTS = 60
PAGE = """<!doctype html><title>A shop</title><script src="tracker.js"></script><script>
const { newTracker, trackPageView, trackStructEvent, flushBuffer } = window.snowplowBrowserTracking;
newTracker("t", "%s", { appId: "shop", bufferSize: 5, keepalive: false, contexts: { webPage: true } });
function track(n) { trackStructEvent({ category: "count", action: "up", value: n }); }
trackPageView();
</script>"""
SQL = """CREATE STREAM visits (network_userid VARCHAR KEY, event VARCHAR, se_value DOUBLE, page_title VARCHAR)
  WITH (KAFKA_TOPIC='visits', VALUE_FORMAT='JSON', PARTITIONS=1);"""


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: Any) -> None:
        """Nobody reads it."""


@contextmanager
def site(folder: Path) -> Iterator[str]:
    """A web site of somebody else's."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def visits(url: str) -> list[dict[str, Any]]:
    page = httpx.get(f"{url}/v1/topics/visits/records", params={"partition": 0, "offset": 0, "limit": 1000}, timeout=90)
    records: list[dict[str, Any]] = page.raise_for_status().json()["records"]
    return records


def test_a_page_of_another_site_is_tracked_over_a_kill(
    alone: Alone, page: Page, watched: Watched, tmp_path: Path
) -> None:
    for name, text in (
        ("pipelines/all.sql", SQL),
        ("collectors/web.toml", 'type = "snowplow"\ntopic = "visits"\npublic = true\n'),
    ):
        (alone.project / name).parent.mkdir()
        (alone.project / name).write_text(text)
    alone.start()
    wait_for(lambda: httpx.get(f"{alone.url}/v1/topics/visits", timeout=10).status_code == 200, 30, "the topic")
    shop = tmp_path / "shop"
    shop.mkdir()
    (shop / "index.html").write_text(PAGE % alone.url)
    (shop / "tracker.js").write_bytes(TRACKER.read_bytes())
    (shop / "favicon.ico").write_bytes(b"")
    watched.expect("Failed to load resource", "ERR_CONNECTION")
    with site(shop) as url:
        page.goto(url)
        page.evaluate("count => { for (let n = 0; n < count; n++) track(n) }", EVENTS // 2)
        wait_for(lambda: len(visits(alone.url)) > 5, 30, "the first events")
        assert alone.process is not None
        alone.process.kill()
        alone.process.wait()
        page.evaluate("([from, to]) => { for (let n = from; n < to; n++) track(n) }", [EVENTS // 2, EVENTS])
        alone.start()

        def all_there() -> bool:
            page.evaluate("flushBuffer({})")  # the tracker itself waits for the next event
            return len(visits(alone.url)) >= EVENTS + 1

        wait_for(all_there, 60, "all events")
    found = [record["value"] | record["key"] for record in visits(alone.url)]
    assert sorted(each["se_value"] for each in found if each["event"] == "struct") == [float(n) for n in range(EVENTS)]
    assert [each["page_title"] for each in found if each["event"] == "page_view"] == ["A shop"]
    # The browser is known again by a cookie, which a page of another site sent along.
    assert len({each["network_userid"] for each in found}) <= 2
    assert found[-1]["network_userid"] is not None
