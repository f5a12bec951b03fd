"""What the console says when something is missing: events, a key, the server itself."""

from __future__ import annotations

import re

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Alone, Watched

# `alone` comes before `page` in every test: the page is closed first, or it would complain that its server went away.
pytestmark = [pytest.mark.browser, pytest.mark.slow]

STREAM = "CREATE STREAM clicks (a VARCHAR KEY) WITH (KAFKA_TOPIC='clicks', VALUE_FORMAT='JSON', PARTITIONS=1);"


def test_empty_rooms_teach(alone: Alone, page: Page) -> None:
    alone.start()
    for room, title in (
        ("#/", "No pipeline yet"),
        ("#/collect", "Nothing to collect into"),
        ("#/log", "No topic yet"),
        ("#/queries", "No query yet"),
        ("#/views", "No view yet"),
        ("#/deliver", "Nothing to subscribe to"),
    ):
        page.goto(f"{alone.url}/{room}")
        expect(page.get_by_role("heading", name=title)).to_be_visible()
        expect(page.locator("main pre")).to_contain_text("headrace sql -e")
    page.goto(f"{alone.url}/#/jobs")
    expect(page.get_by_role("heading", name="No job yet")).to_be_visible()
    expect(page.locator("main pre")).to_contain_text("jobs/late.toml")
    page.goto(f"{alone.url}/#/nowhere")
    expect(page.get_by_role("heading", name="There is nothing at this address")).to_be_visible()


def test_what_is_not_there_is_said(alone: Alone, page: Page, watched: Watched) -> None:
    watched.expect("status of 404")
    alone.start()
    page.goto(f"{alone.url}/#/log/nothing")
    expect(page.get_by_role("alert")).to_contain_text("`nothing` does not exist")


def test_a_key_is_asked_for_once(alone: Alone, page: Page, watched: Watched) -> None:
    watched.expect("status of 401")
    config = alone.project / "headrace.toml"
    config.write_text('name = "alone"\n[auth]\nkeys = [{ key = "right-key-0123456789", role = "admin" }]\n')
    alone.start()
    page.goto(f"{alone.url}/#/log")
    dialog = page.get_by_role("dialog", name="This server wants a key")
    dialog.get_by_label("Key").fill("wrong-key")
    dialog.get_by_role("button", name="Continue").click()
    expect(dialog).to_contain_text("That key was not accepted")
    dialog.get_by_label("Key").fill("right-key-0123456789")
    page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()
    expect(page.get_by_test_id("answer")).to_have_text("There is no topic yet.")
    page.reload()
    expect(page.get_by_test_id("answer")).to_have_text("There is no topic yet.")
    assert page.evaluate("sessionStorage.length") == 1
    assert page.evaluate("localStorage.getItem('headrace.key')") is None


def test_a_lost_server_is_said_and_found_again(alone: Alone, page: Page, watched: Watched) -> None:
    watched.expect("net::ERR_", "status of 503")
    alone.start()
    httpx.post(f"{alone.url}/v1/statements", json={"sql": STREAM}, timeout=90).raise_for_status()
    page.goto(f"{alone.url}/#/log/clicks")
    expect(page.get_by_text("live, newest first")).to_be_visible()
    alone.stop()
    banner = page.get_by_test_id("banner")
    expect(banner).to_contain_text("The server does not answer.")
    expect(banner).to_contain_text(re.compile(r"What you see is from \d\d:\d\d:\d\d"))
    alone.start()
    httpx.post(f"{alone.url}/v1/topics/clicks/events", json={"a": "after-the-restart"}, timeout=90).raise_for_status()
    expect(banner).to_be_hidden()
    expect(page.get_by_test_id("tail")).to_contain_text("after-the-restart")
