"""The documentation's site: it builds without a broken link, holds every page, and asks for nothing from elsewhere."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import yaml
from conftest import PROJECT, once

GATHER = runpy.run_path(str(PROJECT / "docs/gather.py"))


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it. Read only."""

    def make(folder: Path) -> None:
        GATHER["stage"](folder / "build/docs")
        shutil.copy(PROJECT / "mkdocs.yml", folder)
        command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
        environment = {**os.environ, "PYTHONPATH": str(PROJECT), "NO_COLOR": "1"}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"

    return once(tmp_path_factory, "site", make) / "build/site"


class Links(HTMLParser):
    """Collects what a page links to, what it loads, and its anchors."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given["id"]} if "id" in given else set()
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") not in ("canonical", "next", "prev"):
            self.loaded.append(given.get("href", ""))
        elif "src" in given:
            self.loaded.append(given["src"])


@pytest.fixture(scope="module")
def links(site: Path) -> dict[Path, Links]:
    found = {}
    for page in site.rglob("*.html"):
        if "live" not in page.parts and page.name != "404.html":
            found[page] = Links()
            found[page].feed(page.read_text())
    return found


def test_links_and_pictures_of_the_site_lead_somewhere(links: dict[Path, Links]) -> None:
    checked = 0
    for page, own in links.items():
        for target in (*own.links, *own.loaded):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = unquote(target).partition("#")
            there = (page.parent / path).resolve() if path else page
            there = there / "index.html" if there.is_dir() else there
            assert there.exists(), f"{page.name}: {target}"
            assert not anchor or there not in links or anchor in links[there].anchors, f"{page.name}: {target}"
            checked += 1
    assert checked > 1000


def test_pages_load_nothing_from_elsewhere(links: dict[Path, Links]) -> None:
    for page, own in links.items():
        assert not [source for source in own.loaded if "//" in source], page


def test_every_page_of_the_documentation_is_in_the_navigation() -> None:
    def pages(entry: Any) -> list[str]:
        if isinstance(entry, str):
            return [entry]
        return [page for each in (entry.values() if isinstance(entry, dict) else entry) for page in pages(each)]

    settings = re.sub(r"!!python\S+", "", (PROJECT / "mkdocs.yml").read_text())
    named = pages(yaml.safe_load(settings)["nav"])
    written = {page for page in GATHER["pages"]().values() if not page.startswith("pretrained/") or "index" in page}
    assert set(named) == written | {"commands.md"}
    assert len(named) == len(set(named))


def test_the_reference_describes_the_public_names(site: Path) -> None:
    import disk
    from disk.learning import objectives

    text = (site / "api.html").read_text()
    for name in disk.__all__:
        assert re.search(rf"<h3[^>]*>\s*disk\.{name}\s", text), name
    for function in ("observe", "start", "update", "reward", "state", "load_state"):
        assert hasattr(objectives.Objective, function)
        assert f'id="disk.learning.objectives.Objective.{function}"' in text or function == "load_state", function


def test_formulas_are_drawn_by_the_browser(site: Path) -> None:
    text = (site / "algorithm.html").read_text()
    assert text.count("<math") == text.count("</math>") > 40
    prose = re.sub(r"<(script|style|code|pre).*?</\1>", "", text, flags=re.DOTALL)
    assert not re.findall(r"\$[^$<>]{1,200}\$", prose)
    assert "\\" not in re.sub(r"<annotation.*?</annotation>", "", prose)
