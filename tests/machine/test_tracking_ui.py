"""What `make ui` opens, in a real browser: DISk, DIAYN and METRA side by side, before anybody clicks."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from browser import browser
from conftest import PROJECT
from test_tracking import write_run

from disk.storage.files import save_text
from disk.tracking.mirror import mirror

PATIENCE = 240.0


@contextmanager
def make_ui(folder: Path) -> Iterator[str]:
    """What `make ui` runs, on a free port; the address that it prints."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(PROJECT / "workflow/scripts/ui.py"), str(port)]
    environment = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout
        yield next(found[0] for line in process.stdout if (found := re.search(r"http://127\S+#\S+", line)))
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


@pytest.mark.slow
@pytest.mark.needs("chromium")
def test_make_ui_opens_on_three_methods_and_how_far_apart_their_skills_end(tmp_path: Path) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    root = tmp_path / "results"
    for method, skills in {"disk": 2, "diayn_sigma": 0, "diayn_disjoint": 0, "metra": 0, "random": 0}.items():
        run = write_run(root / "quick" / "point" / method / "seed0", skills)
        lines = [f"nominal,{skill},hausdorff,{skill + len(method)}" for skill in range(3)]
        save_text(run / "metrics.csv", "\n".join(["condition,skill,metric,value", *lines]) + "\n")
    write_run(root / "point" / "disk" / "seed0", 1)  # another experiment, with one method
    mirror(root, f"sqlite:///{root}/mlflow.db")

    with make_ui(tmp_path) as address, browser(tmp_path / "profile", width=1600, height=1200) as driver:
        wait = WebDriverWait(driver, PATIENCE)
        driver.get(address)
        lines = ".js-plotly-plot .scatterlayer path.js-line"
        wait.until(lambda _: len(driver.find_elements("css selector", lines)) >= 3)
        text = driver.find_element("tag name", "body").text
        assert all(name in text for name in ("disk/seed0", "diayn_disjoint/seed0", "metra/seed0", "by_skill/hausdorff"))
        assert "3 matching runs" in text
        assert "skill00" not in text, "runs of skills are not in the way"
        assert "Skills learned without rewards in point" in text
        driver.find_element("xpath", "//a[contains(@href, '/models')]").click()
        named = "//*[contains(text(), 'skill 3 (index 2) metra seed0')]"
        wait.until(lambda _: driver.find_elements("xpath", named))
