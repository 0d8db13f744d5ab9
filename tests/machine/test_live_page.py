"""A live page, opened from disk in a real browser: it simulates, obeys mouse and keys, and asks for nothing."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import browser, console_errors, requests
from conftest import PROJECT, tiny_config

from disk.show import live, physics
from disk.storage.files import load_tensors, save_tensors

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.needs("wasm")]

PRETRAINED = PROJECT / "pretrained"
SOFTWARE = ("use-angle=swiftshader", "enable-unsafe-swiftshader")  # WebGL without a GPU
EVIL = "<img src=x onerror=window.harmed=1>&'\"</script><script>window.harmed=1</script>"
SECONDS_TO_LOAD = 3.0


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """The page of a pretrained run, built once; one native episode a skill is enough here."""
    folder = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live, "EPISODES", 1)

        def page(name: str) -> Path:
            path = folder / f"{name}.html"
            if not path.exists():
                live.build([PRETRAINED / name], path, tiny_config())
            return path

        yield page


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with browser(tmp_path_factory.mktemp("profile") / "profile", 1100, 760, SOFTWARE) as driver:
        yield driver


def errors(driver: Any) -> list[str]:
    """Messages of the console, but for those of the software renderer about its own speed."""
    return [message for message in console_errors(driver) if "GL Driver Message (OpenGL, Performance" not in message]


class Page:
    """A live page in a browser."""

    def __init__(self, driver: Any, path: Path, fragment: str = "") -> None:
        self.driver = driver
        driver.get("about:blank")  # else another fragment of the same page would not load it again
        requests(driver), console_errors(driver)
        driver.get(f"{path.as_uri()}{fragment}")
        self.wait("globalThis.disk || document.querySelector('#loading.failed')")

    def js(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def wait(self, condition: str, seconds: float = 30.0) -> None:
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, seconds, poll_frequency=0.05).until(
            lambda d: d.execute_script(f"return Boolean({condition})")
        )

    def press(self, keys: str) -> None:
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).send_keys(keys).perform()

    def click(self, element: str) -> None:
        self.driver.find_element("css selector", element).click()

    def state(self, name: str) -> Any:
        return self.js("const v = disk.state[arguments[0]]; return v instanceof Set ? [...v].sort() : v", name)

    def run(self, seconds: float) -> tuple[float, float]:
        """Let the first robot walk, from its start, with the clock stopped; its displacement."""
        moved = self.js(
            "disk.state.paused = true; disk.begin(); disk.advance(arguments[0]);"
            "const {robot} = disk.actors[0]; return robot.position().map((each, i) => each - robot.start[i])",
            seconds,
        )
        return moved[0], moved[1] if len(moved) > 1 else 0.0


@pytest.fixture
def ant(pages: Callable[[str], Path], chromium: Any) -> Page:
    """Skill 4 of the ant, with the clock stopped."""
    page = Page(chromium, pages("ant"), "#mode=one&skill=4")
    page.js("disk.state.paused = true")
    return page


@pytest.mark.slow
def test_a_page_loads_within_three_seconds_without_an_error_or_a_request(
    pages: Callable[[str], Path], chromium: Any
) -> None:
    times = []
    for _ in range(3):  # the quickest of three: other tests use the same cores
        page = Page(chromium, pages("ant"))
        times.append(page.js("return disk.loadedMs") / 1000.0)
        page.wait("disk.report", 60)  # frames have been drawn
        assert requests(chromium) == [pages("ant").as_uri()]
        assert errors(chromium) == []
        if times[-1] < SECONDS_TO_LOAD:
            break
    assert min(times) < SECONDS_TO_LOAD
    assert page.state("mode") == "all"
    assert page.js("return disk.actors.length") == 10
    assert page.js("return new Set(disk.actors.map(({colour}) => String(colour))).size") == 10
    said = page.js("return document.getElementById('physics').textContent")
    assert physics.VERSION in said
    assert "distances differ" in said


def test_skill_four_of_the_ant_walks_as_in_the_native_evaluation(ant: Page) -> None:
    x, y = ant.run(25.0)
    native = ant.js("return disk.run.native[3].moved")
    assert math.hypot(x, y) > 10.0
    between = math.atan2(y, x) - math.atan2(native[1], native[0])
    assert abs(math.degrees(math.remainder(between, 2 * math.pi))) < 30.0


def test_a_dead_leg_changes_the_path(ant: Page) -> None:
    whole = ant.run(4.0)
    assert ant.run(4.0) == whole  # no chance in it
    ant.js("disk.toggle(2)")
    limping = ant.run(4.0)
    assert math.dist(whole, limping) > 0.5
    assert ant.js("const {ctrl} = disk.actors[0].robot.data; return [ctrl[6], ctrl[7], ctrl[0] !== 0]") == [0, 0, True]
    ant.js("disk.mend()")
    assert ant.run(4.0) == whole


def test_every_skill_starts_together_and_fans_out(pages: Callable[[str], Path], chromium: Any) -> None:
    page = Page(chromium, pages("ant"))
    page.js("disk.state.paused = true; disk.begin(); disk.advance(6)")
    ends = page.js("return disk.actors.map((actor) => actor.robot.position())")
    far = [end for end in ends if math.hypot(*end) > 3.0]
    assert len(far) >= 4
    assert min(math.dist(a, b) for i, a in enumerate(far) for b in far[:i]) > 2.0
    page.wait("document.querySelectorAll('#labels span:not([hidden])').length === 10")


BY_KEY = {
    "1": ("skill", 0), "7": ("skill", 6), "0": ("skill", 9), "a": ("mode", "all"), "g": ("mode", "work"),
    "z": ("broken", [0]), "x": ("broken", [1]), "c": ("broken", [2]), "v": ("broken", [3]),
    "[": ("gravity", 0.9), "]": ("gravity", 1.1), ";": ("friction", 0.9), "'": ("friction", 1.1),
    " ": ("paused", False), "n": ("start", 1), "-": ("speed", -1), "+": ("speed", 1),
}  # fmt: skip


@pytest.mark.slow
def test_every_control_has_a_key(ant: Page) -> None:
    for key, (name, value) in BY_KEY.items():
        ant.js("disk.state.paused = true; disk.set('speed', 0); disk.mend(); disk.choose(3)")
        ant.press(key)
        assert ant.state(name) == value, key
    ant.js("disk.state.paused = true; disk.toggle(1); disk.choose(3)")
    ant.press("m")
    assert ant.state("broken") == []
    ant.press("s")
    assert ant.js("return disk.actors[0].robot.time") == pytest.approx(0.05)
    ant.press("p")
    assert ant.js("return Math.hypot(...disk.actors[0].robot.data.xfrc_applied)") > 0
    ant.press("r")
    assert ant.js("return disk.actors[0].robot.time") == 0
    ant.press("gl")
    assert ant.state("goal")[0] == pytest.approx(ant.js("return disk.actors[0].robot.position()[0]") + 1.0)
    ant.press("h")
    assert ant.js("return document.getElementById('keys').open")
    ant.press("h")
    yaw = ant.js("return disk.scene.camera.yaw")
    from selenium.webdriver.common.keys import Keys

    ant.press(Keys.ARROW_LEFT + Keys.PAGE_UP)
    assert ant.js("return disk.scene.camera.yaw") != yaw
    assert ant.js("return disk.zoomed") < 1
    ant.press("f")
    assert ant.js("return disk.zoomed") == 1
    ant.press("u")
    ant.wait("!document.getElementById('toast').hidden")


def test_shift_and_a_digit_switch_skills_without_starting_again(ant: Page) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    ant.js("disk.advance(1)")
    ActionChains(ant.driver).key_down(Keys.SHIFT).send_keys("2").key_up(Keys.SHIFT).perform()
    assert ant.js("return [disk.actors[0].skill, disk.actors[0].robot.time > 0.9]") == [1, True]


@pytest.mark.slow
def test_every_control_has_something_to_click(ant: Page) -> None:
    for button, name, value in (
        ("#all", "mode", "all"),
        ("#one", "mode", "one"),
        ("#work", "mode", "work"),
        ("#cards li:nth-child(2) button", "skill", 1),
        ("#groups button:nth-of-type(3)", "broken", [2]),
        ("#mend", "broken", []),
        ("#new", "start", 1),
        ("#pause", "paused", False),
        ("#step", "paused", True),
    ):
        ant.click(button)
        assert ant.state(name) == value, button
    ant.click("#push")
    assert ant.js("return Math.hypot(...disk.actors[0].robot.data.xfrc_applied)") > 0
    ant.click("#restart")
    assert ant.js("return disk.actors[0].robot.time") == 0
    for slider, value in (("gravity", 0.0), ("friction", 0.0), ("speed", -3)):
        handle = ant.driver.find_element("id", slider)
        from selenium.webdriver.common.action_chains import ActionChains

        half = handle.size["width"] // 2
        ActionChains(ant.driver).move_to_element_with_offset(handle, 1 - half, 0).click().perform()
        assert ant.state(slider) == value
    assert ant.js("return disk.world.options.gravity[2]") == pytest.approx(0.0)
    ant.click("#help")
    ant.click("#close")
    assert not ant.js("return document.getElementById('keys').open")
    ant.click("#link")
    ant.wait("!document.getElementById('toast').hidden")


def click_at(page: Page, point: list[float]) -> None:
    """Click where a point of the world is seen, with a camera that has come to rest."""
    from selenium.webdriver.common.actions.action_builder import ActionBuilder

    page.js("for (let i = 0; i < 9; i++) { disk.jump = true; disk.follow(0.1); } disk.follow = () => {}; disk.draw(0)")
    x, y = page.js("return disk.scene.project(arguments[0])", point)
    actions = ActionBuilder(page.driver)
    actions.pointer_action.move_to_location(round(x), round(y)).click()
    actions.perform()


def test_a_click_breaks_a_leg_a_drag_turns_and_the_wheel_zooms(ant: Page) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    ankle = ant.js("""
      const {geoms} = disk.world.about.groups[1], {geom_xpos} = disk.actors[0].robot.data;
      return Array.from(geom_xpos.slice(3 * geoms.at(-1), 3 * geoms.at(-1) + 3))""")
    click_at(ant, ankle)
    assert ant.state("broken") == [1]
    assert ant.js("return disk.actors[0].dead.size") > 0
    yaw = ant.js("return disk.scene.camera.yaw")
    ActionChains(ant.driver).click_and_hold().move_by_offset(80, 10).release().perform()
    assert ant.js("return disk.scene.camera.yaw") == pytest.approx(yaw - 0.48, abs=0.02)
    assert ant.state("broken") == [1]  # a drag is no click
    canvas = ant.driver.find_element("id", "scene")
    from selenium.webdriver.common.actions.wheel_input import ScrollOrigin

    ActionChains(ant.driver).scroll_from_origin(ScrollOrigin.from_element(canvas), 0, -300).perform()
    assert ant.js("return disk.zoomed") < 1


def test_a_link_brings_back_skill_world_and_start(ant: Page) -> None:
    ant.js(
        "disk.choose(6); disk.newStart(); disk.newStart(); disk.toggle(0); disk.toggle(3); disk.set('gravity', 0.55)"
    )
    there = ant.run(3.0)
    link = ant.js("return location.href")
    again = Page(ant.driver, Path(link.split("#")[0].removeprefix("file://")), f"#{link.split('#')[1]}")
    again.js("disk.state.paused = true")
    for name, value in (("mode", "one"), ("skill", 6), ("start", 2), ("broken", [0, 3]), ("gravity", 0.55)):
        assert again.state(name) == value, name
    assert again.run(3.0) == there


def test_a_fragment_that_makes_no_sense_is_ignored(pages: Callable[[str], Path], chromium: Any) -> None:
    page = Page(chromium, pages("hopper"), "#skill=99&start=-3&mode=<script>&broken=7.x&gravity=1e9&goal=1&run=2")
    page.js("disk.state.paused = true")
    for name, value in (("mode", "all"), ("skill", 0), ("start", 0), ("broken", []), ("gravity", 1), ("goal", None)):
        assert page.state(name) == value, name


def test_at_work_the_robot_goes_where_the_visitor_clicks(pages: Callable[[str], Path], chromium: Any) -> None:
    page = Page(chromium, pages("halfcheetah"), "#mode=work")
    page.js("disk.state.paused = true; disk.begin(); disk.zoom(4)")
    click_at(page, [4.0, 0.0, 0.0])
    goal = page.state("goal")[0]
    assert goal == pytest.approx(4.0, abs=0.5)
    nearest = page.js(
        """
      let nearest = Infinity;
      for (let i = 0; i < 40; i++) {
        disk.advance(0.5);
        nearest = Math.min(nearest, Math.abs(disk.actors[0].robot.position()[0] - arguments[0]));
      }
      return nearest""",
        goal,
    )
    assert nearest < 0.75


@pytest.mark.slow
def test_at_work_the_ant_reaches_a_goal_by_choosing_skills(pages: Callable[[str], Path], chromium: Any) -> None:
    page = Page(chromium, pages("ant"), "#mode=work&goal=5_-4")
    page.js("disk.state.paused = true; disk.begin()")
    used, nearest = set(), math.inf
    for _ in range(12):
        page.js("disk.advance(2)")
        used.add(page.js("return disk.actors[0].skill"))
        nearest = min(nearest, math.dist(page.js("return disk.actors[0].robot.position()"), (5, -4)))
    assert nearest < 2.0  # it began 6.4 m away
    assert len(used) > 1


def test_a_trained_controller_chooses_where_there_is_one(
    pages: Callable[[str], Path], tmp_path: Path, chromium: Any
) -> None:
    """A controller that always prefers skill 3, whatever it sees."""
    import torch

    run = tmp_path / "results" / "hopper" / "disk" / "seed0"
    (run / "hierarchy").mkdir(parents=True)
    shutil.copy(PRETRAINED / "hopper" / "skills.safetensors", run)
    sizes = (("mlp_extractor.policy_net.0", 12, 64), ("mlp_extractor.policy_net.2", 64, 64), ("action_net", 64, 4))
    tensors = {f"policy/{name}.weight": torch.zeros(outputs, inputs) for name, inputs, outputs in sizes}
    tensors |= {f"policy/{name}.bias": torch.zeros(outputs) for name, _, outputs in sizes}
    tensors["policy/action_net.bias"][2] = 1.0
    save_tensors(run / "hierarchy" / "seed0.safetensors", tensors, {"kind": "controller", "skills": 4, "steps": 10})
    (run / "hierarchy" / "seed0.json").write_text(json.dumps({"job": {"size": 15.0}}))
    live.build([run], tmp_path / "page.html", tiny_config())
    page = Page(chromium, tmp_path / "page.html", "#mode=work&goal=3_0")
    page.js("disk.state.paused = true; disk.advance(0.1); disk.panel.show()")
    assert page.js("return disk.actors[0].skill") == 2
    assert "a trained controller" in page.js("return document.getElementById('hint').textContent")


@pytest.mark.parametrize("name", ["ant_broken", "ant_blocks_even", "halfcheetah", "hopper", "swimmer"])
def test_every_world_has_a_working_page(name: str, pages: Callable[[str], Path], chromium: Any) -> None:
    works(Page(chromium, pages(name)), name)


def test_the_point_robot_has_a_working_page(chain: list[Path], tmp_path: Path, chromium: Any) -> None:
    from disk.learning.run import bundle_run

    run = tmp_path / "results" / "point" / "disk" / "seed0"
    bundle_run([folder / "policy.safetensors" for folder in chain], run / "skills.safetensors")
    live.build([run], tmp_path / "point.html", tiny_config())
    page = Page(chromium, tmp_path / "point.html")
    works(page, "point")
    assert page.js("return document.getElementById('gravity-field').hidden")  # there is none


def works(page: Page, name: str) -> None:
    page.js("disk.state.paused = true; disk.begin(); disk.advance(0.6)")
    page.wait("disk.report", 60)
    moved = page.js("return disk.actors.map((actor) => disk.distance(actor))")
    assert all(math.isfinite(each) for each in moved)
    assert max(moved) > 0.02
    assert page.js("return disk.scene.gl.getError()") == 0
    assert page.js("return document.getElementById('title').textContent") == name.replace("_", " ")
    assert errors(page.driver) == []


def test_blocks_stop_the_ant_until_they_are_gone(pages: Callable[[str], Path], chromium: Any) -> None:
    page = Page(chromium, pages("ant_blocks_even"), "#mode=one&skill=4&blocks=0")
    page.press(".")
    assert page.state("blocks") == 1
    page.press(",")
    heights = "return disk.world.about.blocks.map(({body}) => disk.world.model.body_pos[3 * body + 2])"
    assert set(page.js(heights)) == {0}
    page.js("disk.set('blocks', 40)")
    assert set(page.js(heights)) == {-4}
    page.js("disk.set('blocks', 7)")
    assert page.js(heights) == [-4] * 7 + [0] * 33


def test_several_runs_are_chosen_from(tmp_path: Path, chromium: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "EPISODES", 1)
    runs = [tmp_path / "results" / "hopper" / method / "seed0" for method in ("disk", "diayn")]
    for run in runs:
        run.mkdir(parents=True)
        shutil.copy(PRETRAINED / "hopper" / "skills.safetensors", run)
    live.build(runs, tmp_path / "page.html", tiny_config())
    page = Page(chromium, tmp_path / "page.html")
    labels = page.js("return [...document.getElementById('run').options].map((each) => each.textContent)")
    assert labels == ["DISk, seed 0", "DIAYN, seed 0"]
    page.press("o")
    assert page.state("run") == 1
    page.click("#run option:nth-child(1)")
    assert page.state("run") == 0


def test_names_are_text_and_nothing_more(pages: Callable[[str], Path], tmp_path: Path, chromium: Any) -> None:
    text = pages("hopper").read_text()
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    data = json.loads(found)
    data["env"] = data["runs"][0]["label"] = data["runs"][0]["names"][0] = data["world"]["groups"][0]["name"] = EVIL
    data["runs"].append(data["runs"][0])
    (tmp_path / "evil.html").write_text(live.page(data, physics.load()))
    page = Page(chromium, tmp_path / "evil.html", f"#mode={EVIL}")
    assert page.js("return window.harmed") is None
    assert page.js("return document.getElementById('title').textContent") == EVIL.replace("_", " ")
    assert page.js("return document.querySelector('#cards b').textContent") == EVIL
    assert page.js("return document.querySelector('#groups button').textContent") == EVIL
    assert page.js("return document.querySelectorAll('img').length") == 0
    # Even markup that got in could run nothing: inline handlers and scripts are not allowed.
    page.js("document.body.insertAdjacentHTML('beforeend', arguments[0])", EVIL)
    assert page.js("return window.harmed") is None


@pytest.mark.slow
def test_on_a_phone_everything_is_within_reach(pages: Callable[[str], Path], chromium: Any) -> None:
    page = Page(chromium, pages("ant"))
    chromium.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    )
    try:
        assert page.js("return document.documentElement.scrollWidth") <= 390
        beside = page.js("""
          document.getElementById('run').hidden = false;  // as on a page of several runs
          const [clock, run] = ['clock', 'run'].map((id) => document.getElementById(id).getBoundingClientRect());
          return run.right < clock.left && clock.right <= 390""")
        assert beside
        page.click("#more")
        outside = page.js("""
          return [...document.querySelectorAll('#bar button, #world button, #world input, #speed')]
            .filter((each) => each.checkVisibility())
            .map((each) => [each.id || each.textContent, each.getBoundingClientRect()])
            .filter(([, box]) => box.left < 0 || box.right > 390 || box.bottom > 844 || box.height < 20)
            .map(([name]) => name)""")
        assert outside == []
        page.click("#push")  # raises if something lies over it
        page.click("#groups button:nth-of-type(1)")
        assert page.state("broken") == [0]
    finally:
        chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_pages_are_made_from_the_weights_of_the_run(pages: Callable[[str], Path], chromium: Any) -> None:
    """The page's own policy, asked in the browser, answers as the file of skills does."""
    import numpy as np

    from disk.skills import load

    skills = load(PRETRAINED / "hopper")
    assert load_tensors(PRETRAINED / "hopper" / "skills.safetensors")[1]["env"] == "hopper"
    page = Page(chromium, pages("hopper"))
    seen = np.linspace(-1.0, 1.0, skills.observation_size)
    for skill in skills:
        found = page.js("return Array.from(disk.policy.act(...arguments))", skill.index, seen.tolist())
        np.testing.assert_allclose(found, skill.act(seen), atol=1e-5)
