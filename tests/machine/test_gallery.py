"""The gallery shows every skill that was measured, in a real browser, and nothing that is in a name can run in it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from browser import browser, console_errors, requests
from conftest import tiny_config

from disk.cli import main
from disk.config import EvaluationJob, MeasureJob
from disk.errors import ArtefactError
from disk.evaluation.run import measure
from disk.evaluation.tables import save_rollouts
from disk.figures.style import method_colour
from disk.show.gallery import MOST_POINTS, build, build_from_results
from disk.show.video import write

EVIL = "<img src=x onerror=window.harmed=1>&'\"<script>window.harmed=1<"
STEPS, EPISODES = 40, 4


def write_run(run: Path, lengths: Mapping[int, float], broken: Mapping[int, int] = {}, **slower: float) -> Path:
    """Skills that go straight, each so far and in a direction of its own; `broken` episodes have a NaN.

    In other conditions than nominal they go as many times as far as `slower` says.
    """
    frames = []
    for skill, length in lengths.items():
        angle = 2 * np.pi * skill / len(lengths)
        for episode in range(EPISODES):
            t = np.linspace(0, length + 0.01 * episode, STEPS + 1)
            frame = pd.DataFrame({"skill": skill, "episode": episode, "step": range(STEPS + 1)})
            frame["x"], frame["y"] = t * np.cos(angle), t * np.sin(angle)
            if episode < broken.get(skill, 0):
                frame.loc[5, "x"] = np.nan
            frames.append(frame.assign(vx=0.0, vy=0.0))
    (run / "rollouts").mkdir(parents=True)
    nominal, paths = pd.concat(frames), []
    for condition, factor in {"nominal": 1.0, **slower}.items():
        paths.append(run / "rollouts" / f"{condition}.parquet")
        save_rollouts(nominal.assign(x=factor * nominal["x"], y=factor * nominal["y"]), paths[-1])
    measure(paths, run / "metrics.csv")
    return run


def job(env: str = "point") -> EvaluationJob:
    return tiny_config().evaluation_job(env)


def data_of(page: Path) -> Any:
    """What is in the page, read as a browser reads it: up to the first end of a script."""
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    return json.loads(text)


def test_every_skill_has_its_numbers_its_paths_and_its_clip(tmp_path: Path) -> None:
    run = write_run(tmp_path / "disk" / "seed0", {0: 1.0, 1: 2.0, 2: 3.0})
    write(run / "clips" / "skill01.mp4", np.zeros((3, 24, 32, 3), dtype=np.uint8))
    said = build(job(), ["nominal"], ["disk"], [run], tmp_path / "gallery" / "index.html")
    assert said == f"{tmp_path}/gallery/index.html: 3 skills of 1 runs"
    (shown,) = data_of(tmp_path / "gallery" / "index.html")["runs"]
    assert (shown["name"], shown["seed"], shown["chain"]) == ("DISk", "0", True)
    assert [skill["values"]["distance"] for skill in shown["skills"]] == [1.015, 2.015, 3.015]
    assert [skill["clip"] for skill in shown["skills"]] == [None, "clips/disk/seed0/skill01.mp4", None]
    assert (tmp_path / "gallery" / "clips/disk/seed0/skill01.mp4").read_bytes() == (
        run / "clips/skill01.mp4"
    ).read_bytes()
    path = np.array(shown["skills"][0]["paths"][2]).reshape(-1, 2)
    assert path[0].tolist() == [0, 0]
    assert path[-1].tolist() == [1.02, 0]
    assert len(shown["skills"][0]["paths"]) == 3

    assert shown["means"]["coverage"] > 1
    assert "movers" not in shown["means"], "this run was measured without a threshold"
    measure([run / "rollouts/nominal.parquet"], run / "metrics.csv", MeasureJob(moves=1.5, goals=5.0))
    build(job(), ["nominal"], ["disk"], [run], tmp_path / "gallery" / "index.html")
    means = data_of(tmp_path / "gallery" / "index.html")["runs"][0]["means"]
    assert (means["movers"], means["distinct"]) == (2, 2)
    assert 0 < means["goal_distance"] < 1

    (run / "skills.safetensors").touch()  # trained again: the clip is of skills that are gone
    build(job(), ["nominal"], ["disk"], [run], tmp_path / "gallery" / "index.html")
    assert not (tmp_path / "gallery" / "clips").exists()


def test_missing_and_broken_runs_leave_a_smaller_gallery(tmp_path: Path) -> None:
    fine = write_run(tmp_path / "point" / "disk" / "seed0", {0: 1.0, 1: 2.0}, broken={1: EPISODES})
    broken = write_run(tmp_path / "point" / "diayn" / "seed0", {0: 1.0}, broken={0: EPISODES})
    begun = tmp_path / "point" / "random" / "seed0"
    begun.mkdir(parents=True)
    damaged = write_run(tmp_path / "point" / "metra" / "seed0", {0: 1.0})
    (damaged / "rollouts" / "nominal.parquet").write_bytes(b"PAR1")
    said = build_from_results(tiny_config(), tmp_path / "point")
    assert "2 skills of 1 runs" in said
    shown = data_of(tmp_path / "point" / "gallery" / "index.html")
    assert [run["method"] for run in shown["runs"]] == [fine.parent.name]
    assert shown["runs"][0]["skills"][1]["values"]["distance"] is None
    assert shown["runs"][0]["skills"][1]["paths"] == []
    assert len(shown["missing"]) == 3
    assert str(tmp_path) not in " ".join(shown["missing"])
    assert any("its files are damaged" in reason for reason in shown["missing"])
    assert "no episode without NaN" in shown["missing"][0] + shown["missing"][1], broken
    with pytest.raises(ArtefactError, match="has no runs"):
        build_from_results(tiny_config(), begun.parent / "point")
    assert main(["gallery", str(tmp_path / "nowhere")]) == 2  # no such environment


def test_a_large_environment_has_a_small_page_and_one_coordinate_is_drawn_over_time(tmp_path: Path) -> None:
    first = write_run(tmp_path / "a" / "seed0", dict.fromkeys(range(50), 3.0))
    runs = [first, *(shutil.copytree(first, tmp_path / "a" / f"seed{seed}") for seed in range(1, 4))]
    page = tmp_path / "gallery" / "index.html"
    build(job("hopper"), ["nominal"], [], runs, page)
    shown = data_of(page)
    points = sum(len(path) // 2 for run in shown["runs"] for skill in run["skills"] for path in skill["paths"])
    assert points < MOST_POINTS
    assert page.stat().st_size < 600_000
    assert shown["flat"]
    assert shown["runs"][0]["skills"][0]["paths"][0][-2:] == [STEPS, 3.0]


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with browser(tmp_path_factory.mktemp("browser") / "profile") as driver:
        yield driver


@pytest.fixture
def gallery(tmp_path: Path, chromium: Any) -> Iterator[Any]:
    """The page of three methods, one with a script in its name, opened from disk; its errors and requests checked."""
    runs = [
        write_run(tmp_path / "disk" / "seed0", {0: 1.0, 1: 5.0, 2: 3.0}),
        write_run(tmp_path / "disk" / "seed1", {0: 2.0, 1: 4.0, 2: 6.0}),
        write_run(tmp_path / "diayn" / "seed0", {0: 2.5, 1: 0.5}, broken={1: EPISODES}),
        write_run(tmp_path / EVIL / "seed0", {0: 7.0}),
    ]
    noise = np.random.default_rng(0).integers(0, 255, (20, 60, 80, 3), dtype=np.uint8)
    write(runs[0] / "clips" / "skill01.mp4", noise)
    (runs[1] / "projection.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg" width="30" height="20"/>')
    page = tmp_path / "gallery" / "index.html"
    build(job(), ["nominal"], ["disk"], runs, page)
    chromium.get(page.as_uri())
    requests(chromium), console_errors(chromium)  # those of the browser's own first page
    chromium.get(page.as_uri())
    yield chromium
    assert console_errors(chromium) == []
    asked = requests(chromium)
    assert page.as_uri() in asked
    assert all(address.startswith((page.parent.as_uri(), "data:")) for address in asked), asked


def cards(driver: Any) -> list[tuple[str, str, str]]:
    found = driver.find_elements("css selector", ".card")
    return [tuple(card.get_attribute(f"data-{name}") for name in ("method", "seed", "skill")) for card in found]  # type: ignore[misc]


def choose(driver: Any, name: str, value: str) -> None:
    from selenium.webdriver.support.ui import Select

    Select(driver.find_element("id", name)).select_by_value(value)


@pytest.mark.needs("chromium")
def test_cards_are_filtered_and_sorted(gallery: Any) -> None:
    assert len(cards(gallery)) == 9
    first = gallery.find_element("css selector", ".card").text
    assert all(
        text in first for text in ("Skill 1 (index 0)", "DISk, seed 0", "1st of 3 learned", "distance", "1.01 m")
    )
    assert len(gallery.find_elements("css selector", ".plot path.skill")) == 9

    choose(gallery, "sort", "distance")
    order = [card[0:3:2] for card in cards(gallery)]
    assert order[:4] == [(EVIL, "0"), ("disk", "2"), ("disk", "1"), ("disk", "1")]
    assert order[-1] == ("diayn", "1")  # which has no sound episode
    gallery.find_element("id", "direction").click()
    order = [card[0:3:2] for card in cards(gallery)]
    assert [order[0], order[-2], order[-1]] == [("disk", "0"), (EVIL, "0"), ("diayn", "1")]

    for box in gallery.find_elements("css selector", "#methods input"):
        if box.get_attribute("value") != "disk":
            box.click()
    gallery.find_element("css selector", "#seeds input[value='0']").click()
    assert cards(gallery) == [("disk", "1", "0"), ("disk", "1", "1"), ("disk", "1", "2")]
    gallery.find_element("css selector", "#seeds input[value='1']").click()
    assert cards(gallery) == []
    assert gallery.find_element("id", "empty").is_displayed()


def bars(driver: Any) -> dict[str, float]:
    """Lengths of the bars of `distance`, by card."""
    lengths = driver.execute_script(
        """return [...document.querySelectorAll(".card")].map(card => {
          const term = [...card.querySelectorAll("dt")].find(dt => dt.textContent === "distance ↑");
          return [card.dataset.id, parseFloat(term.nextSibling.style.getPropertyValue("--share"))];
        })"""
    )
    return dict(lengths)


def solo(driver: Any, name: str) -> None:
    (button,) = [each for each in driver.find_elements("css selector", ".solo") if each.text == name]
    button.click()


@pytest.mark.needs("chromium")
def test_a_click_on_a_method_shows_it_alone_and_another_shows_all(gallery: Any) -> None:
    whole = bars(gallery)
    assert max(whole.values()) == 100
    widths = "return [...document.querySelectorAll('.bar')].map(bar => Math.round(bar.getBoundingClientRect().width))"
    assert len(set(gallery.execute_script(widths))) == 1, "a full bar is as long on every card"
    solo(gallery, "DIAYN")
    assert {method for method, _, _ in cards(gallery)} == {"diayn"}
    assert bars(gallery) == {card: whole[card] for card in bars(gallery)}, "the scale of bars depends on what is shown"
    solo(gallery, "DISk")
    assert {method for method, _, _ in cards(gallery)} == {"disk"}
    pressed = gallery.find_elements("css selector", ".solo[aria-pressed='true']")
    assert [button.text for button in pressed] == ["DISk"]
    solo(gallery, "DISk")
    assert len(cards(gallery)) == 9
    gallery.find_element("css selector", "#methods input[value='disk']").click()  # the second control hides
    assert {method for method, _, _ in cards(gallery)} == {"diayn", EVIL}
    choose(gallery, "view", "pair")
    assert bars(gallery) == {card: whole[card] for card in bars(gallery)}


@pytest.mark.needs("chromium")
def test_the_address_keeps_the_state(gallery: Any) -> None:
    from selenium.webdriver import ActionChains, Keys

    assert "#" not in gallery.current_url
    solo(gallery, "DISk")
    gallery.find_element("css selector", "#seeds input[value='0']").click()
    choose(gallery, "sort", "spread")
    gallery.find_element("id", "direction").click()
    choose(gallery, "colours", "skill")
    gallery.find_element("css selector", ".pick").send_keys(Keys.ENTER)
    chosen, address = cards(gallery), gallery.current_url
    assert {(method, seed) for method, seed, _ in chosen} == {("disk", "1")}
    gallery.get("about:blank")
    gallery.get(address)
    assert (cards(gallery), gallery.current_url) == (chosen, address)
    assert gallery.find_element("id", "colours").get_attribute("value") == "skill"
    assert gallery.find_element("css selector", ".pick").get_attribute("aria-pressed") == "true"

    ActionChains(gallery).send_keys(Keys.ESCAPE).perform()
    choose(gallery, "view", "pair")
    choose(gallery, "left", "3")
    headings = [heading.text for heading in gallery.find_elements("css selector", ".panel h2")]
    address = gallery.current_url
    gallery.get("about:blank")
    gallery.get(address)
    assert [heading.text for heading in gallery.find_elements("css selector", ".panel h2")] == headings
    assert headings[0] == f"{EVIL}, seed 0"
    # A link into a page of other runs, or one that was cut: what is unknown is ignored.
    gallery.execute_script("location.hash = '#methods=&methods=nobody&sort=nothing&left=x&pinned=x'")
    gallery.refresh()
    assert cards(gallery) == []
    gallery.execute_script("location.hash = ''")
    gallery.refresh()
    assert len(cards(gallery)) == 9


@pytest.mark.needs("chromium")
def test_a_selector_shows_another_world_on_the_same_scale(tmp_path: Path, chromium: Any) -> None:
    runs = [
        write_run(tmp_path / "disk" / "seed0", {0: 2.0, 1: 4.0}, leg1=0.5, leg2=0.25),
        write_run(tmp_path / "diayn" / "seed0", {0: 3.0}, leg2=0.1),
    ]
    write(runs[0] / "clips.leg2" / "skill01.mp4", np.zeros((3, 24, 32, 3), dtype=np.uint8))
    page = tmp_path / "gallery" / "index.html"
    said = build(job(), ["nominal", "leg1", "leg2"], ["disk"], runs, page)
    assert said == f"{page}: 3 skills of 2 runs; left out: DIAYN, seed 0, leg1 (no leg1.parquet)"
    chromium.get(page.as_uri())
    whole = bars(chromium)
    assert len(whole) == 3
    assert "in the world nominal" in chromium.find_element("id", "about").text
    chromium.find_elements("css selector", ".pick")[1].click()
    choose(chromium, "condition", "leg1")
    assert bars(chromium) == {card: pytest.approx(whole[card] / 2, rel=0.01) for card in ("0-0", "0-1")}
    choose(chromium, "condition", "leg2")
    assert bars(chromium)["1-0"] == pytest.approx(whole["1-0"] / 10, rel=0.02)
    assert "in the world leg2" in chromium.find_element("id", "about").text
    assert len(chromium.find_elements("css selector", "video")) == 1
    assert "DISk, seed 0, skill 2 (index 1)" in chromium.find_element("css selector", ".readout").text, "still pinned"
    address = chromium.current_url
    chromium.get("about:blank")
    chromium.get(address)
    assert chromium.find_element("id", "condition").get_attribute("value") == "leg2"
    choose(chromium, "view", "pair")
    choose(chromium, "condition", "leg1")
    panels = chromium.find_elements("css selector", ".panel")
    assert [len(panel.find_elements("css selector", ".card")) for panel in panels] == [2, 0]
    assert console_errors(chromium) == []


@pytest.mark.needs("chromium")
def test_methods_have_the_colours_of_the_figures(gallery: Any) -> None:
    from matplotlib.colors import to_hex

    dots = gallery.execute_script(
        """return [...document.querySelectorAll("#methods .chip")].map(chip => {
          const colour = getComputedStyle(chip.querySelector(".dot")).backgroundColor;
          return [chip.dataset.method, colour.match(/\\d+/g).map(Number)];
        })"""
    )
    found = {method: to_hex([channel / 255 for channel in colour]) for method, colour in dots}
    assert found == {method: method_colour(method) for method in ("disk", "diayn", EVIL)}
    strokes = {path.get_attribute("stroke") for path in gallery.find_elements("css selector", ".plot path.skill")}
    assert strokes == set(found.values())


@pytest.mark.needs("chromium")
def test_hover_and_focus_show_the_path(gallery: Any) -> None:
    from selenium.webdriver import ActionChains, Keys

    shown = gallery.find_elements("css selector", ".card")
    ActionChains(gallery).move_to_element(shown[1]).perform()
    (lit,) = gallery.find_elements("css selector", ".plot.dim path.skill.on")
    assert lit.get_attribute("data-id") == shown[1].get_attribute("data-id")
    assert "DISk, seed 0, skill 2" in gallery.find_element("css selector", ".readout").text
    ActionChains(gallery).move_to_element(gallery.find_element("id", "title")).perform()
    assert not gallery.find_elements("css selector", ".plot.dim")
    # The keyboard does what the mouse does, and Enter keeps it.
    shown[2].find_element("css selector", ".pick").send_keys(Keys.ENTER)
    gallery.find_element("id", "direction").send_keys("")
    assert "skill 3" in gallery.find_element("css selector", ".readout").text
    ActionChains(gallery).send_keys(Keys.ESCAPE).perform()
    assert not gallery.find_elements("css selector", ".plot.dim")


@pytest.mark.needs("chromium")
def test_two_runs_stand_side_by_side_and_clips_play(gallery: Any) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    video = gallery.find_element("css selector", "video")
    WebDriverWait(gallery, 30).until(lambda _: gallery.execute_script("return arguments[0].readyState > 1", video))
    assert gallery.execute_script("return arguments[0].videoWidth", video) == 80

    choose(gallery, "view", "pair")
    panels = gallery.find_elements("css selector", ".panel")
    assert [panel.find_element("tag name", "h2").text for panel in panels] == ["DISk, seed 0", "DIAYN, seed 0"]
    assert [len(panel.find_elements("css selector", ".card")) for panel in panels] == [3, 2]
    choose(gallery, "right", "3")
    assert gallery.find_elements("css selector", ".panel h2")[1].text == f"{EVIL}, seed 0"


@pytest.mark.needs("chromium")
def test_a_script_in_a_name_is_text(gallery: Any) -> None:
    assert gallery.execute_script("return window.harmed") is None
    assert gallery.find_elements("css selector", "img:not(#projections img)") == []
    assert EVIL in gallery.find_element("id", "methods").text
    assert len(gallery.find_elements("tag name", "script")) == 2


@pytest.mark.needs("chromium")
def test_it_fits_on_a_phone(gallery: Any) -> None:
    size = gallery.get_window_size()
    gallery.set_window_size(500, 800)  # the narrowest that Chromium allows
    try:
        assert gallery.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    finally:
        gallery.set_window_size(size["width"], size["height"])


@pytest.mark.needs("chromium")
def test_what_a_learned_sigma_sees_is_shown_below_the_skills(gallery: Any) -> None:
    [shown] = gallery.find_elements("css selector", "#projections details")
    assert shown.find_element("tag name", "summary").text == "DISk, seed 1: what its learned σ sees"
    shown.click()
    [width] = gallery.execute_script(
        "return [...document.querySelectorAll('#projections img')].map(i => i.naturalWidth)"
    )
    assert width == 30
