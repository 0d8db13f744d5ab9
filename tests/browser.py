"""A headless Chromium that reports every message and every request of the pages it shows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def browser(profile: Path, width: int = 1360, height: int = 900, flags: Sequence[str] = ()) -> Iterator[Any]:
    """Selenium's driver of Debian's Chromium; the profile's folder may not exist yet."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or "chromium"
    for flag in (
        "headless=new",
        "no-sandbox",  # which root, as in a container, may not use
        "disable-dev-shm-usage",
        "disable-gpu",
        "hide-scrollbars",
        "force-device-scale-factor=1",
        f"user-data-dir={profile}",
        f"window-size={width},{height}",
        *flags,
    ):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()


def console_errors(driver: Any) -> list[str]:
    return [entry["message"] for entry in driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def requests(driver: Any) -> list[str]:
    """Addresses that pages have asked for since the last call."""
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
