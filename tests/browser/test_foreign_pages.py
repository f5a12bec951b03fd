"""Pages of another site, and of another port of this machine, in Chromium: a server without keys does nothing for
them, and everything for its own page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, Route

from tests.browser.conftest import PATIENCE_MS, Alone
from tests.support import free_port, wait_for

pytestmark = pytest.mark.browser

SQL = """CREATE STREAM visits (network_userid VARCHAR KEY, event VARCHAR) WITH (KAFKA_TOPIC='visits', PARTITIONS=1);"""
CREATE = "CREATE STREAM smuggled (a INT) WITH (KAFKA_TOPIC='smuggled', VALUE_FORMAT='JSON', PARTITIONS=1);"
# Everything that a page can send without being asked for permission first, and some that it is.
ATTACK = """async ([url, sql]) => {
  const said = {}, body = JSON.stringify({ sql });
  const to = `${url}/v1/statements`, visits = `${url}/v1/topics/visits/events`;
  const post = (body, more) => ({ method: "POST", mode: "no-cors", body, ...more });
  const json = { mode: "cors", headers: { "Content-Type": "application/json" } };
  const tried = (name, asked) =>
    asked.then((answer) => (said[name] = `${answer.type} ${answer.status}`), () => (said[name] = "failed"));
  await tried("plain", fetch(to, post(body)));
  await tried("untyped", fetch(to, post(new TextEncoder().encode(body))));
  await tried("json", fetch(to, post(body, json)));
  await tried("event", fetch(visits, post('{"event": "fetched"}')));
  await tried("read", fetch(`${url}/v1/topics`));
  navigator.sendBeacon(visits, '{"event": "beacon"}');
  said.image = await new Promise((done) => {
    const image = new Image();
    image.onload = () => done("loaded");
    image.onerror = () => done("failed");
    image.src = `${url}/i?e=pv&p=web&url=https%3A%2F%2Fevil.test%2F`;
  });
  said.socket = await new Promise((done) => {
    const socket = new WebSocket(`${url.replace("http", "ws")}/v1/socket`);
    socket.onopen = () => done("open");
    socket.onerror = () => done("failed");
  });
  return said;
}"""


@pytest.fixture
def visited(chromium: Browser) -> Iterator[Page]:
    """A page that may ask whom it likes. Sites that do not exist are served here."""
    context = chromium.new_context()
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    yield page
    context.close()


def serve(page: Page, origin: str) -> None:
    def answer(route: Route) -> None:
        route.fulfill(status=200, content_type="text/html", body="<!doctype html><title>Somebody's</title>")

    page.route(f"{origin}/**", answer)
    page.goto(f"{origin}/")


def stored(url: str) -> tuple[list[str], int]:
    """The topics there are, and how many visits."""
    topics = httpx.get(f"{url}/v1/topics", timeout=90).raise_for_status().json()["topics"]
    visits = httpx.get(f"{url}/v1/topics/visits/records", params={"from": "earliest"}, timeout=90).raise_for_status()
    return sorted(one["name"] for one in topics), len(visits.json()["records"])


def test_pages_of_others_get_nothing_and_its_own_everything(alone: Alone, visited: Page) -> None:
    for name, text in (("pipelines/all.sql", SQL), ("collectors/web.toml", 'type = "snowplow"\ntopic = "visits"\n')):
        (alone.project / name).parent.mkdir()
        (alone.project / name).write_text(text)
    alone.start()
    wait_for(lambda: httpx.get(f"{alone.url}/v1/topics/visits", timeout=10).status_code == 200, 30, "the topic")
    before = stored(alone.url)
    for origin in ("http://evil.test", f"http://localhost:{free_port()}", f"http://127.0.0.1:{free_port()}"):
        for url in (alone.url, alone.url.replace("127.0.0.1", "localhost")):
            serve(visited, origin)
            said: dict[str, Any] = visited.evaluate(ATTACK, [url, CREATE])
            assert (said["json"], said["read"], said["image"], said["socket"]) == ("failed",) * 4, (origin, said)
            assert stored(alone.url) == before, (origin, said)
    # A page of the server's own, under each of its names.
    for number, url in enumerate((alone.url, alone.url.replace("127.0.0.1", "localhost"))):
        visited.unroute_all()
        visited.goto(f"{url}/")
        said = visited.evaluate(ATTACK, [url, CREATE.replace("smuggled", f"own_{number}")])
        assert (said["json"], said["read"], said["image"], said["socket"]) == (
            "basic 200",
            "basic 200",
            "loaded",
            "open",
        ), said
        assert said["plain"] == "basic 415", "a page of its own says what it sends, too"
    topics, visits = stored(alone.url)
    assert topics == sorted([*before[0], "own_0", "own_1"])
    assert visits >= before[1] + 4
