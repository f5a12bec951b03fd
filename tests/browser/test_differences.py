"""Two versions of a view compared in the console: every row that differs, chosen from, page by page, and as a file."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Watched
from tests.server.running import Running, running_server
from tests.server.test_differences import SQL, put_minutes, switched

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PATIENCE_MS = 240_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("differences")
    with running_server(folder, "[views]\ncheck_every_seconds = 0\n", SQL) as running:
        switched(running)
        rows = [("de", f"/{n:03}", n % 3, n, "ann") for n in range(120)]
        put_minutes(running, "PER_MINUTE", [*rows, ("fr", "/gone", 1, 7, "bob")])
        put_minutes(running, "PER_MINUTE.v2", [(c, page, at, 2 * n, last) for c, page, at, n, last in rows])
        yield running


def test_rows_that_differ_are_chosen_paged_through_and_saved(server: Running, page: Page, tmp_path: Path) -> None:
    page.goto(f"http://127.0.0.1:{server.port}/#/views/per_minute?tab=versions")
    compare = page.get_by_test_id("compare")
    expect(compare.get_by_label("From")).to_have_value("1", timeout=PATIENCE_MS)
    expect(compare.get_by_label("To")).to_have_value("2")
    compare.get_by_role("button", name="Compare").click()
    expect(compare).to_contain_text("1 the same, 119 changed, 1 only in v1, 0 only in v2", timeout=PATIENCE_MS)
    expect(compare).to_contain_text("1 to 50 of 120 rows")
    table = compare.get_by_role("region", name="Rows that differ")
    expect(table.get_by_role("row").nth(1)).to_contain_text("2 → 4 (+2)")
    compare.get_by_role("button", name="Next").click()
    expect(compare).to_contain_text("51 to 100 of 120 rows")
    compare.get_by_role("button", name="Next").click()
    expect(compare).to_contain_text("101 to 120 of 120 rows")
    expect(compare.get_by_role("button", name="Next")).to_be_disabled()
    compare.get_by_role("button", name="Previous").click()
    expect(compare).to_contain_text("51 to 100 of 120 rows")

    compare.get_by_role("button", name="Only in v1").click()
    expect(compare).to_contain_text("1 to 1 of 1 row, chosen from 120")
    expect(table.get_by_role("row").nth(1)).to_contain_text("/gone")
    compare.get_by_role("button", name="Show all").click()
    compare.get_by_label("page begins with").fill("/01")
    page.keyboard.press("Enter")
    expect(compare).to_contain_text("of 10 rows, chosen from 120")
    compare.get_by_label("Window").select_option(index=1)
    compare.get_by_label("By at least").fill("13")
    page.keyboard.press("Enter")
    expect(compare).to_contain_text("1 to 2 of 2 rows, chosen from 120")
    expect(table.get_by_role("row", name="/014")).to_contain_text("14 → 28 (+14)")
    with page.expect_download() as saved:
        compare.get_by_role("button", name="Download").click()
        page.get_by_role("menuitem", name="CSV, 2 rows").click()
    saved.value.save_as(tmp_path / "rows.csv")
    assert saved.value.suggested_filename == "per_minute-v1-v2.csv"
    with (tmp_path / "rows.csv").open(newline="") as file:
        assert [(row["key.page"], row["delta.n"]) for row in csv.DictReader(file)] == [
            ("/014", "14.0"),
            ("/017", "17.0"),
        ]
    compare.get_by_label("By at least").fill("1000")
    page.keyboard.press("Enter")
    expect(compare).to_contain_text("No row that differs is like that.")


def test_it_fits_on_a_phone_and_says_what_is_not_possible(server: Running, page: Page, watched: Watched) -> None:
    watched.expect("status of 404")
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"http://127.0.0.1:{server.port}/#/views/per_minute?tab=versions")
    compare = page.get_by_test_id("compare")
    compare.get_by_role("button", name="Compare").click()
    expect(compare).to_contain_text("1 to 50 of 120 rows", timeout=PATIENCE_MS)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    compare.get_by_role("button", name="Download").click()
    menu = compare.get_by_role("menu").bounding_box()
    assert menu is not None
    assert menu["x"] >= 0
    assert menu["x"] + menu["width"] <= 390
    compare.get_by_label("To").select_option("1")
    expect(compare).to_contain_text("Choose two different ones.")
    expect(compare.get_by_role("button", name="Compare again")).to_be_disabled()
    compare.get_by_label("To").select_option("2")
    page.route("**/diff", lambda route: route.continue_(post_data='{"old": 1, "new": 9}'))
    compare.get_by_role("button", name="Compare again").click()
    expect(compare.get_by_role("alert")).to_contain_text("version 9 of `per_minute` is not kept")


def test_a_name_with_a_slash_is_no_other_address(server: Running, page: Page) -> None:
    page.goto(f"http://127.0.0.1:{server.port}/#/views/per_minute%2Fversions")
    expect(page.get_by_role("alert")).to_contain_text("`per_minute/versions` does not exist", timeout=PATIENCE_MS)


def test_an_open_tab_is_in_the_address_of_its_page_and_of_no_other(server: Running, page: Page) -> None:
    home = f"http://127.0.0.1:{server.port}/"
    page.goto(f"{home}#/views?tab=checks")
    expect(page.get_by_role("tab", name="Checks")).to_have_attribute("aria-selected", "true")
    page.get_by_role("tab", name="Deployments").click()
    expect(page).to_have_url(f"{home}#/views?tab=deployments")
    page.reload()
    expect(page.get_by_role("tab", name="Deployments")).to_have_attribute("aria-selected", "true")
    page.locator("nav a[href='#/log']").first.click()
    expect(page).to_have_url(f"{home}#/log")
    page.go_back()
    expect(page.get_by_role("tab", name="Deployments")).to_have_attribute("aria-selected", "true")
    page.get_by_role("tab", name="Views").click()
    expect(page).to_have_url(f"{home}#/views")
    page.goto(f"{home}#/views/per_minute?tab=versions")
    expect(page.get_by_role("tab", name="Versions")).to_have_attribute("aria-selected", "true")
    page.locator("nav a[href='#/views']").first.click()
    expect(page).to_have_url(f"{home}#/views")
    expect(page.get_by_role("tab", name="Views")).to_have_attribute("aria-selected", "true")
