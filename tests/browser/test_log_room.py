"""The log's room: topics browsed and produced to, groups, queues, schemas."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from headrace import Client
from tests.browser.conftest import Alone, Watched, notice

# `alone` comes before `page`: the page is closed first, or it would complain that its server went away.
pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_a_topic_is_browsed_and_produced_to(alone: Alone, page: Page, watched: Watched) -> None:
    alone.start()
    with Client(alone.url) as client:
        client.create_topic("orders", "id VARCHAR KEY, total DOUBLE", partitions=2)
        client.produce("orders", [{"id": f"o{number}", "total": number} for number in range(120)])
        client.create_queue("packing", "orders")
        with client.consumer("billing", "orders") as consumer:
            consumer.poll()
            consumer.commit()
        client.produce("orders", [{"id": "late", "total": 1}])
    page.goto(f"{alone.url}/#/log/orders")
    rows = page.get_by_test_id("records").get_by_role("row")

    page.get_by_role("tab", name="Browse").click()
    expect(rows).to_have_count(50)
    expect(rows.first).to_contain_text("late")
    page.get_by_role("button", name="Older records").click()
    expect(rows.first).not_to_contain_text("late")
    page.get_by_label("From").select_option("earliest")
    expect(page.get_by_role("button", name="Older records")).to_be_disabled()
    page.get_by_role("textbox", name="Where").fill("total > 117")
    page.get_by_role("button", name="Show").click()
    expect(rows).to_have_count(2)

    watched.expect("422")
    page.get_by_role("tab", name="Produce").click()
    page.get_by_label("Value (a JSON object)").fill('{"total": "much"}')
    page.get_by_role("button", name="Produce").click()
    expect(page.get_by_role("alert")).to_contain_text("`total` must be a number")
    page.get_by_label("Value (a JSON object)").fill('{"total": 7}')
    page.get_by_role("button", name="Produce").click()
    expect(page.get_by_test_id("produced")).to_contain_text("Stored at")

    page.get_by_role("tab", name="Dead letters").click()
    redrive = page.get_by_role("form", name="Redrive")
    redrive.get_by_label("Which").fill("total = 'much'")
    redrive.get_by_role("button", name="Set a column").click()
    redrive.get_by_label("Column 1").select_option("total")
    redrive.get_by_role("textbox", name="Value 1").fill("LEN(total)")
    redrive.get_by_role("button", name="Preview").click()
    expect(redrive.get_by_role("status")).to_contain_text("1 of 1 would now be accepted")
    expect(redrive.get_by_role("cell", name='"total":4')).to_be_visible()
    changes = redrive.get_by_label("What changes in letter")
    expect(changes).to_contain_text('-   "total": "much"')
    expect(changes).to_contain_text('+   "total": 4')
    redrive.get_by_role("button", name="Send it again").click()
    with notice(page, "1 event sent again"):
        page.get_by_role("dialog").get_by_role("button", name="Send it").click()
    expect(page.get_by_role("cell", name="✓")).to_be_visible()

    page.get_by_role("tab", name="Groups").click()
    expect(page.get_by_role("region", name="Groups")).to_contain_text("billing")
    page.get_by_role("tab", name="Schemas").click()
    expect(page.get_by_text("No schema is registered")).to_be_visible()
    page.goto(f"{alone.url}/#/log?show=queues")
    expect(page.get_by_role("region", name="Queues")).to_contain_text("packing")
    page.get_by_role("tab", name="Groups").click()
    page.get_by_role("link", name="billing").click()
    expect(page.get_by_role("region", name="Group billing")).to_contain_text("orders")
