"""Live pages: how long they take to build and load, how large they are, and whether they keep real time.

Chromium runs without a screen and draws in software, as on a machine without a GPU. Frames, simulated seconds and the
speed of physics alone are what the page itself reports, over its last second. `--gif` films the ant losing a leg.

    python benchmarks/live.py                                   # pages of pretrained/: about five minutes
    python benchmarks/live.py --runs pretrained/ant --gif docs/figures/live_ant.gif
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from turns import machine, save

from disk.config import PROJECT
from disk.show.live import build, pages

sys.path.insert(0, str(PROJECT / "tests"))
from browser import browser

SOFTWARE = ("use-angle=swiftshader", "enable-unsafe-swiftshader")
SECONDS = 8.0
"""For which a page runs before it is asked."""
VIEWS = {"all": "", "one": "#mode=one&skill=2"}
SIZE, SHOWN, COLOURS = (1120, 700), (664, 415), 128
"""Of the film: the page, the picture, and its palette."""
FILM = (
    ("disk.frameCamera()", "Ten skills, learned without rewards, run in the browser", 26),
    ("disk.choose(4); disk.frameCamera(); disk.zoom(1.25)", "One of them", 18),
    ("disk.toggle(2)", "Its back left leg breaks", 22),
    ("disk.toggle(2)", "Mended", 14),
)
"""What is done, what is said, and for how many frames of 0.12 s."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=Path, nargs="+", default=sorted((PROJECT / "pretrained").iterdir()))
    parser.add_argument("--out", type=Path, help="write the numbers to this file too")
    parser.add_argument("--gif", type=Path, help="film the first run's page")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, browser(Path(folder, "profile"), 1360, 860, SOFTWARE) as driver:
        rows = []
        for run, page in pages(arguments.runs, Path(folder)):
            began = time.perf_counter()
            build([run], page)
            row = {"page": page.stem, "build_s": round(time.perf_counter() - began, 1), "mb": page.stat().st_size / 1e6}
            rows.append(row | {name: speeds(driver, page, view) for name, view in VIEWS.items()})
            print(line(rows[-1]), flush=True)
            if arguments.gif and len(rows) == 1:
                film(driver, page, arguments.gif)
        if arguments.out:
            save(arguments.out, {"machine": machine(), "pages": rows})


def open_page(driver: Any, page: Path, fragment: str) -> None:
    driver.get("about:blank")
    driver.get(f"{page.as_uri()}{fragment}")
    while not driver.execute_script("return Boolean(globalThis.disk)"):
        time.sleep(0.05)


def speeds(driver: Any, page: Path, fragment: str) -> dict[str, Any]:
    """What a page says of itself after some seconds."""
    open_page(driver, page, fragment)
    time.sleep(SECONDS)
    said: dict[str, Any] = driver.execute_script("return {...disk.report, loaded: disk.loadedMs, by: disk.renderer}")
    return said


def line(row: dict[str, Any]) -> str:
    views = []
    for view in VIEWS:
        said = row[view]
        views.append(
            f"{said['robots']} at once: {said['frames']:.0f} frames/s, {said['simulated']:.2f} simulated s/s, "
            f"physics alone {said['most']:.1f}"
        )
    loaded = row["all"]["loaded"] / 1000.0
    made = f"{row['page']}: built in {row['build_s']} s, {row['mb']:.1f} MB, loaded in {loaded:.1f} s"
    return "; ".join([made, *views])


def film(driver: Any, page: Path, out: Path) -> None:
    """Step the page frame by frame, with its own camera, and write what is seen as a GIF."""
    metrics = {"width": SIZE[0], "height": SIZE[1], "deviceScaleFactor": 1.6, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    open_page(driver, page, "")
    driver.execute_script("""
      disk.state.paused = true;
      disk.begin();
      disk.adapt = () => {};
      disk.scene.scale = 1;
      const style = new CSSStyleSheet();
      style.replaceSync('#note, #toast, #about { display: none !important } footer { padding-bottom: 14px }'
        + '#said { position: fixed; left: 22px; top: 54px; font-size: 20px; font-weight: 600; color: #59626b }');
      document.adoptedStyleSheets = [style];
      const said = Object.assign(document.createElement('div'), { id: 'said' });
      document.body.append(said);
    """)
    frames = []
    for action, text, count in FILM:
        driver.execute_script(f"{action}; document.getElementById('said').textContent = arguments[0]", text)
        for _ in range(count):
            driver.execute_script("disk.advance(0.12); disk.draw(0.12); disk.panel.tick(); disk.drawMap()")
            driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
            picture = Image.open(io.BytesIO(driver.get_screenshot_as_png())).convert("RGB")
            frames.append(picture.resize(SHOWN, Image.Resampling.LANCZOS))
    save_gif(frames, out)
    print(f"{out}: {out.stat().st_size / 1e6:.1f} MB")


def save_gif(frames: list[Image.Image], out: Path) -> None:
    """One palette for all frames and no dithering: what stands still costs nothing."""
    palette = palette_of(frames)
    first, *rest = (frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames)
    out.parent.mkdir(parents=True, exist_ok=True)
    first.save(out, save_all=True, append_images=rest, duration=110, loop=0, optimize=True, disposal=1)


def palette_of(frames: list[Image.Image]) -> Image.Image:
    """Colours by how often they occur, strong ones counted more: most of the picture is a grey floor."""
    pixels = np.concatenate([np.asarray(frame).reshape(-1, 3) for frame in frames[:: max(1, len(frames) // 10)]])
    strong = np.ptp(pixels, axis=1) > 60
    draw = np.random.default_rng(0)
    chosen = [draw.choice(pixels[of], 40_000) for of in (strong, ~strong)]
    sample = np.concatenate(chosen).reshape(200, 400, 3)
    return Image.fromarray(sample).quantize(COLOURS, method=Image.Quantize.MEDIANCUT, kmeans=2)


if __name__ == "__main__":
    main()
