"""The documentation's site in a browser, opened from disk: at the width of a phone, offline, and its search."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser import browser, console_errors, requests
from test_site import site  # noqa: F401

pytestmark = pytest.mark.needs("chromium")
FOUND = """
const roots = [...document.querySelectorAll("*")].map((each) => each.shadowRoot).filter(Boolean);
return roots.flatMap((root) => [...root.querySelectorAll("a[role=option]")].map((link) => link.href));
"""
PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}


def test_no_page_is_wider_than_a_phone_or_asks_for_anything_from_elsewhere(site: Path, tmp_path: Path) -> None:  # noqa: F811
    pages = [page for page in sorted(site.glob("*.html")) if page.name != "404.html"]  # which a server shows
    assert len(pages) > 20
    with browser(tmp_path) as driver:
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
        requests(driver)  # of the browser's own first page
        for page in pages:
            driver.get(page.as_uri())
            assert driver.execute_script("return document.documentElement.scrollWidth") <= PHONE["width"], page.name
        assert not console_errors(driver)
        assert not [address for address in requests(driver) if not address.startswith(("file:", "data:", "blob:"))]


def test_the_search_finds_a_measure_in_a_page_that_was_opened_from_disk(site: Path, tmp_path: Path) -> None:  # noqa: F811
    from selenium.webdriver.support.ui import WebDriverWait

    with browser(tmp_path) as driver:
        driver.get((site / "index.html").as_uri())
        driver.find_element("css selector", ".md-search__button").click()
        WebDriverWait(driver, 60).until(lambda it: it.switch_to.active_element.tag_name == "div")
        driver.switch_to.active_element.send_keys("isolation")
        found = WebDriverWait(driver, 60).until(lambda it: it.execute_script(FOUND))
        assert any("metrics.html" in address for address in found)
