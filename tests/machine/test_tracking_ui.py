"""MLflow's own pages over our runs, in a real browser: DISk and DIAYN side by side."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from browser import browser
from test_tracking import HEADER, curve, write_run

from disk.storage.files import save_text
from disk.tracking.mirror import mirror

PATIENCE = 240.0


@contextmanager
def server(root: Path) -> Iterator[str]:
    """What `make ui` starts, on a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{root}/mlflow.db", "--artifacts-destination", f"{root}/mlartifacts"]
    with (root / "server.log").open("w") as log:
        environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        address, end = f"http://127.0.0.1:{port}", time.monotonic() + PATIENCE
        while True:
            try:
                urllib.request.urlopen(f"{address}/health", timeout=10).close()  # noqa: S310
                break
            except OSError:
                assert process.poll() is None, (root / "server.log").read_text()
                assert time.monotonic() < end, "the server does not answer"
                time.sleep(0.5)
        yield address
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def compare_button(driver: Any, *names: str) -> Any:
    """Tick runs in the table and return the button that compares them; None if the table was redrawn meanwhile.

    A row consists of several elements with one id. The table forgets ticks whenever data arrive: call this again then.
    """
    from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException

    try:
        for name in names:
            row = driver.find_element("xpath", f"//*[@role='row' and contains(., '{name}')]").get_attribute("row-id")
            box = driver.find_element("css selector", f"[row-id='{row}'] input[type=checkbox]")
            if not box.is_selected():
                driver.execute_script("arguments[0].click()", box)
        button = driver.find_element("css selector", "[data-testid=runs-compare-button]")
        return button if button.is_enabled() else None
    except (NoSuchElementException, StaleElementReferenceException):
        return None


@pytest.mark.slow
@pytest.mark.needs("chromium")
def test_disk_and_diayn_compare(tmp_path: Path) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    root = tmp_path / "results"
    chain, joint = write_run(root / "point" / "disk" / "seed0", 2), write_run(root / "point" / "diayn" / "seed0", 0)
    rows = [f"{skill},{step},1,100,{skill + step / 1e4},2" for skill in range(2) for step in (500, 1000)]
    save_text(chain / "progress.csv", "\n".join([f"skill,{HEADER}", *rows]) + "\n")
    save_text(joint / "progress.csv", curve([500, 1000, 1500, 2000]))
    mirror(root, f"sqlite:///{root}/mlflow.db")

    with server(root) as address, browser(tmp_path / "profile") as driver:
        wait = WebDriverWait(driver, PATIENCE)
        driver.get(address)
        # The assistant's panel opens by itself on a first visit, and takes the room.
        driver.execute_script("localStorage.setItem('mlflow.assistant.fab.autoOpenedOnFirstLoad_v1', 'true')")
        driver.get(f"{address}/#/experiments/1/runs")
        button = wait.until(lambda _: compare_button(driver, "disk/seed0", "diayn/seed0"))
        driver.execute_script("arguments[0].click()", button)

        wait.until(lambda _: "Comparing 2 Runs" in driver.page_source and "sac.batch_size" in driver.page_source)
        text = driver.find_element("tag name", "body").text
        first, second = ("disk", "diayn") if text.index("disk/seed0") < text.index("diayn/seed0") else ("diayn", "disk")
        assert f"method {first} {second}" in text
        for name in ("eval/distance", "by_skill/hausdorff", "reward/mean"):
            assert name in text
        link = driver.find_element("xpath", "//a[contains(@href, 'reward%2Fmean') and contains(., 'reward/mean')]")
        driver.get(link.get_attribute("href"))
        legend = ("disk/seed0 (reward/mean)", "diayn/seed0 (reward/mean)")
        wait.until(lambda _: all(name in driver.find_element("tag name", "body").text for name in legend))
        lines = ".js-plotly-plot .scatterlayer path.js-line"
        wait.until(lambda _: len(driver.find_elements("css selector", lines)) >= 2)
