"""The Collect room: collectors with their states, a page for each, a test event."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from headrace import Client
from tests.browser.conftest import Alone
from tests.browser.test_console import FAINT, NAMELESS, OUTSIDE
from tests.server.test_kinesis import aws

# `alone` comes before `page`: the page is closed first, or it would complain that its server went away.
pytestmark = [pytest.mark.browser, pytest.mark.slow]

FUNCTIONS = """
from headrace import on_topic

@on_topic("orders", to="large", start="earliest", batch=1, retries=0)
def large(records):
    if records[0].key == "o3":
        raise ValueError("o3 is not wanted")
    return [{"id": one.key, "total": one.value["total"]} for one in records if (one.value["total"] or 0) >= 10]
"""


def test_collectors_are_seen_tried_and_put_right(alone: Alone, page: Page) -> None:
    folder = alone.project / "collectors"
    folder.mkdir()
    (folder / "shop.toml").write_text(
        'type = "http"\ntopic = "orders"\n[validate.fields.total]\nmin = 0\n[privacy]\nhash = ["email"]\nkey = "hush"\n'
    )
    (folder / "clicks.toml").write_text('type = "segment"\ntopics = "orders"\n')
    (alone.project / "functions").mkdir()
    (alone.project / "functions" / "orders.py").write_text(FUNCTIONS)
    alone.start()
    with Client(alone.url) as client:
        client.create_topic("large", "id VARCHAR KEY, total DOUBLE", partitions=1)
        client.create_topic("orders", "id VARCHAR KEY, total DOUBLE, email VARCHAR", partitions=1)
        client.produce("orders", [{"id": f"o{number}", "total": number} for number in range(20)])
    page.goto(f"{alone.url}/#/collect")
    expect(page.get_by_test_id("answer")).to_have_text("collectors/clicks.toml is wrong.")
    listed = page.get_by_test_id("collectors").get_by_role("listitem")
    expect(listed).to_have_count(2)
    expect(listed.first).to_contain_text("collectors/clicks.toml:2: there is no setting `topics`")
    page.get_by_text("Types of collectors").click()
    expect(page.get_by_text("Segment's tracking API", exact=False)).to_be_visible()

    (folder / "clicks.toml").write_text('type = "segment"\ntopic = "orders"\nenabled = false\n')
    expect(listed.first).to_contain_text("disabled")
    expect(page.get_by_test_id("answer")).not_to_contain_text("wrong")

    page.get_by_role("link", name="shop").click()
    expect(page.get_by_label("What to send", exact=True)).to_contain_text("/v1/topics/orders/events")
    expect(page.get_by_label("What to send", exact=True)).to_contain_text("privacy.hash")
    expect(page.locator("main")).not_to_contain_text("hush")
    form = page.get_by_role("form", name="Send a test event")
    form.get_by_role("button", name="Send it").click()
    expect(page.get_by_test_id("tried")).to_contain_text("Taken, at 0:20.")
    form.get_by_label("The event, as JSON").fill('{"id": "o1", "total": -1}')
    form.get_by_role("button", name="Send it").click()
    expect(page.get_by_test_id("tried")).to_have_text("Rejected: `total` must be at least 0, got -1")
    expect(page.get_by_test_id("answer")).to_contain_text("1 rejected")

    page.goto(f"{alone.url}/#/collect")
    functions_and_delivery_streams(alone, page)
    for width, scheme in ((1360, "light"), (390, "dark")):
        page.set_viewport_size({"width": width, "height": 780})
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        for address in ("#/collect", "#/collect/shop"):
            page.goto(f"{alone.url}/{address}")
            expect(page.get_by_test_id("answer")).not_to_have_text("Asking…")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (address, width)
            assert page.evaluate(OUTSIDE) == [], (address, width)
            assert page.evaluate(NAMELESS) == [], address
            assert page.evaluate(FAINT) == [], (address, scheme)


def functions_and_delivery_streams(alone: Alone, page: Page) -> None:
    firehose = aws(alone.port, "firehose")
    to = {"RoleARN": "arn:aws:iam::0:role/any", "BucketARN": "arn:aws:s3:::lake", "Prefix": "orders/"}
    firehose.create_delivery_stream(DeliveryStreamName="archive", ExtendedS3DestinationConfiguration=to)
    firehose.put_record(DeliveryStreamName="archive", Record={"Data": b"one"})
    function = page.get_by_test_id("functions").get_by_role("listitem")
    expect(function).to_contain_text("orders → large")
    expect(function).to_contain_text("written 10")
    expect(function).to_contain_text("o3 is not wanted")
    stream = page.get_by_test_id("deliveries").get_by_role("listitem")
    expect(stream).to_contain_text("put records → lake/orders/ (as they are)")
    expect(stream).to_contain_text("waiting 1, 3 B")
    expect(stream).to_contain_text("No file yet; the next at 5 MiB")
    function.get_by_role("link", name="1", exact=True).click()
    expect(page.get_by_text("function `large` failed", exact=False).first).to_be_visible()
