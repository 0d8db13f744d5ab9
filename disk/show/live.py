"""Live pages: MuJoCo simulates the robot in the browser, and learned skills drive it.

`build` writes one self-contained file. It holds the model's XML, the skills' weights in 16 bits, MuJoCo as
WebAssembly and the scripts of disk/show/page/. It is opened from disk, without a server, and asks for nothing.
Names are data: they reach the page as JSON whose markup characters are escaped, and are shown as text.
"""

from __future__ import annotations

import base64
import gzip
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from disk.config import Config, EvaluationJob
from disk.errors import ArtefactError, ConfigError
from disk.seeds import seed_of
from disk.sharing.card import CARD
from disk.sharing.publish import card_job, evaluations
from disk.show import physics
from disk.show.html import digest, fill, to_json
from disk.show.world import describe
from disk.storage.files import load_json, load_tensors, save_text
from disk.storage.layout import HIERARCHY, RUN_NAME, SKILLS, rollouts_of

if TYPE_CHECKING:
    import pandas as pd

    from disk.skills import Skills

log = logging.getLogger("disk")

SCRIPTS = ("policy.mjs", "world.mjs", "scene.mjs", "map.mjs", "panel.mjs", "app.mjs")
"""Modules of the page, each after those that it imports."""
STARTS = 24
"""Starts that a page can choose from: those of the evaluation's first episodes."""
EPISODES = 3
"""Native episodes of a skill that the map shows, and that its mean displacement comes from."""
POINTS = 40
"""Points of such a path."""
MOST_BYTES = 8_000_000
"""Size of a page beyond which further runs are left out and named. The first run is always in it."""


@dataclass(frozen=True)
class Evaluation:
    """How skills are evaluated natively: in which condition, and what that is."""

    condition: str
    job: EvaluationJob


def build(runs: Sequence[Path], out: Path, config: Config | None = None, native: Evaluation | None = None) -> str:
    """Write the live page of some runs of one environment; return a line for people.

    `native` says how they are evaluated. Without it a published run's card says so, or the configuration.
    """
    from disk.skills import load

    engine = physics.load()
    first = load(runs[0])
    native = native or _evaluation(runs[0], first, config)
    job = native.job
    starts = [seed_of("evaluation", job.seed, episode) for episode in range(STARTS)]
    about = describe(job.world, job.step_of(0), starts)
    about["files"] = {name: _packed(content) for name, content in about["files"].items()}
    shown: list[dict[str, Any]] = []
    left_out: list[str] = []
    size = 0
    budget = MOST_BYTES - len(engine.wasm) * 4 // 3 - len(engine.script) - 100_000
    for run in runs:
        skills = load(run)
        if skills.meta["env"] != first.meta["env"]:
            raise ArtefactError(f"{run}: is of {skills.meta['env']}, but {runs[0]} is of {first.meta['env']}")
        entry = _run(run, skills, native)
        size += len(entry["policy"]["weights"])
        if shown and size > budget:
            left_out.append(entry["label"])
            continue
        shown.append(entry)
    data = {
        "env": first.meta["env"],
        "physics": {"page": physics.VERSION, "native": _native_version()},
        "world": about,
        "horizon": job.horizon,
        "runs": shown,
        "missing": left_out,
        "palette": _palette(),
    }
    text = page(data, engine)
    save_text(out, text)
    count = sum(len(run["names"]) for run in shown)
    said = f"{out}: {len(text.encode()) / 1e6:.1f} MB, {count} skills of {first.meta['env']}"
    return said + (f"; left out for its size: {', '.join(left_out)}" if left_out else "")


def pages(runs: Sequence[Path], out: Path | None) -> list[tuple[Path, Path]]:
    """Return each run with its page: in the run itself, at `out`, or in the folder `out` if there are several."""
    found = [run for run in runs if run.suffix == ".safetensors" or (run / SKILLS).exists() or len(runs) == 1]
    lacking = [run for run in runs if run not in found and not run.is_file()]  # pretrained/* has a README
    if lacking or not found:
        raise ArtefactError(f"{', '.join(map(str, lacking or runs))}: no {SKILLS} there. No page was written")
    if out is None:
        return _apart([(run, (run if run.is_dir() else run.parent) / "live.html") for run in found])
    if len(found) == 1 and out.suffix == ".html":
        return [(found[0], out)]
    return _apart([(run, out / f"{_page_name(run)}.html") for run in found])


def _apart(planned: list[tuple[Path, Path]]) -> list[tuple[Path, Path]]:
    """Refuse two runs whose pages would be the same file: the second would replace the first."""
    taken: dict[Path, Path] = {}
    for run, page in planned:
        if (first := taken.setdefault(page, run)) != run:
            raise ConfigError(f"{page}: would be the page of {first} and of {run}: give each its own --out")
    return planned


def _page_name(run: Path) -> str:
    """`ant` for pretrained/ant, `ant_disk_seed0` for results/ant/disk/seed0."""
    return "_".join(run.parts[-3:]) if RUN_NAME.fullmatch(run.name) else run.stem


def build_beside_gallery(runs: Sequence[Path], out: Path, native: Evaluation) -> str:
    """Write the live page that an environment's gallery links to. If it cannot be built, write a page that says why."""
    try:
        if not runs:
            raise ArtefactError("there is no run with trained skills beside it")
        return build(runs, out, native=native)
    except (ArtefactError, ConfigError) as error:
        return build_missing(out, str(error))


def first_seeds(results: Path, config: Config) -> list[Path]:
    """The first seed of each known method in an environment's results, in the configuration's order."""
    runs = []
    for method in config.methods:
        found = [
            path.parent for path in results.glob(f"{method}/seed*/{SKILLS}") if RUN_NAME.fullmatch(path.parent.name)
        ]
        runs += sorted(found, key=lambda run: int(run.name.removeprefix("seed")))[:1]
    return runs


def build_missing(out: Path, reason: str) -> str:
    """A page that says why there is nothing alive, so that links to it lead somewhere."""
    save_text(out, _asset("missing.html").replace("__REASON__", escape(reason)))
    return f"{out}: has no live skills: {reason}"


def page(data: dict[str, Any], engine: physics.Physics) -> str:
    """The page around its data."""
    script = "\n".join([_plain(engine.script), *(_plain(_asset(name)) for name in SCRIPTS)])
    style = _asset("page.css")
    values = {
        "__TITLE__": escape(f"Skills of {data['env']}, alive"),
        "__STYLE__": style,
        "__STYLE_HASH__": digest(style),
        "__SCRIPT__": script,
        "__SCRIPT_HASH__": digest(script),
        "__DATA__": to_json(data),
        "__WASM__": base64.b64encode(engine.wasm).decode(),
    }
    return fill(_asset("page.html"), values)


def _asset(name: str) -> str:
    return resources.files("disk.show").joinpath("page", name).read_text(encoding="utf-8")


def _plain(module: str) -> str:
    """A module's text for one script that holds them all: without its imports and exports."""
    text = re.sub(r"^import .*? from '\./[a-z]+\.mjs';\n", "", module, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^export default .*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"^export ", "", text, flags=re.MULTILINE)
    if "</script" in text.lower() or "<!--" in text:
        raise ArtefactError("a script of the page holds markup that would end it")
    return text


def _packed(content: bytes) -> str:
    return base64.b64encode(gzip.compress(content, mtime=0)).decode()


def evaluation(config: Config, env: str) -> Evaluation:
    """That of an environment's first condition."""
    condition = next(iter(config.environment(env).conditions))
    return Evaluation(condition, config.evaluation_job(env, condition))


def _evaluation(run: Path, skills: Skills, config: Config | None) -> Evaluation:
    if (run / CARD).exists():
        condition, about = next(iter(evaluations(run / CARD).items()))
        return Evaluation(condition, card_job(skills, about))
    from disk.config import load

    return evaluation(config or load(), skills.meta["env"])


def _run(run: Path, skills: Skills, native: Evaluation) -> dict[str, Any]:
    from disk.figures.style import method_name

    published = (run / CARD).exists()
    return {
        "label": run.name if published else f"{method_name(run.parent.name)}, seed {run.name.removeprefix('seed')}",
        "names": [str(skill + 1) for skill in range(len(skills))],
        "policy": _policy(skills),
        "native": _native(run, skills, native),
        "controller": _controller(run, len(skills)),
    }


def _policy(skills: Skills) -> dict[str, Any]:
    """Weights and all that the page needs to act with them; the half of the last layer that is the spread stays out."""
    actions = int(skills.meta["action_size"])
    parts, sizes = [], [int(skills.actor.mlp.layers[0][0].shape[1])]
    for index, (weight, bias) in enumerate(skills.actor.mlp.layers):
        last = index == len(skills.actor.mlp.layers) - 1
        width = actions if last else int(weight.shape[2])
        sizes.append(width)
        parts += [weight[:, :, :width], bias[:, :, :width]]
    flat = np.concatenate([part.detach().numpy().astype("<f2").ravel() for part in parts])
    return {
        "sizes": sizes,
        "copies": int(skills.actor.mlp.layers[0][0].shape[0]),
        "which": skills.which.tolist(),
        "latent": skills.latent.tolist(),
        "low": list(skills.meta["action_low"]),
        "high": list(skills.meta["action_high"]),
        "seesPosition": bool(skills.meta.get("sees_position")),
        "weights": _packed(flat.tobytes()),
    }


def _controller(run: Path, skills: int) -> dict[str, Any] | None:
    """The first trained controller over the run's skills, if there is one."""
    for path in sorted((run / HIERARCHY).glob("seed*.safetensors")):
        tensors, meta = load_tensors(path)
        if meta.get("kind") != "controller" or meta.get("skills") != skills:
            continue
        about = load_json(path.with_suffix(".json"))["job"]
        names = ("mlp_extractor.policy_net.0", "mlp_extractor.policy_net.2", "action_net")
        layers = [(tensors[f"policy/{name}.weight"].T, tensors[f"policy/{name}.bias"]) for name in names]
        flat = np.concatenate([part.numpy().astype("<f4").ravel() for layer in layers for part in layer])
        sizes = [int(layers[0][0].shape[0]), *(int(weight.shape[1]) for weight, _ in layers)]
        return {"sizes": sizes, "steps": meta["steps"], "size": about["size"], "weights": _packed(flat.tobytes())}
    return None


def _native(run: Path, skills: Skills, native: Evaluation) -> list[dict[str, Any]]:
    """What each skill does in native MuJoCo: its mean displacement over an episode, and some paths."""
    frame = _rollouts(run, skills, native)
    found = []
    for skill in range(len(skills)):
        episodes = [own.sort_values("step") for _, own in frame[frame["skill"] == skill].groupby("episode")]
        paths = [episode[["x", "y"]].to_numpy() for episode in episodes[:EPISODES]]
        drawn = [path[np.linspace(0, len(path) - 1, POINTS).round().astype(int)] for path in paths]
        moved = np.mean([path[-1] - path[0] for path in paths], axis=0)
        found.append({"moved": _rounded(moved), "paths": [_rounded(path.ravel()) for path in drawn]})
    return found


def _rollouts(run: Path, skills: Skills, native: Evaluation) -> pd.DataFrame:
    """The run's own rollouts in the condition, if it has them; otherwise a few new ones."""
    from disk.evaluation.metrics import sound
    from disk.evaluation.run import roll_out
    from disk.evaluation.tables import read_rollouts

    own = rollouts_of(run, native.condition)
    if own.exists():
        frame = sound(read_rollouts(own))
        if frame["skill"].nunique() == len(skills):
            return frame
    return roll_out(native.job.model_copy(update={"episodes": EPISODES}), skills)


def _rounded(values: np.ndarray) -> list[float]:
    return [float(f"{value:.4g}") for value in values]


def _native_version() -> str:
    import mujoco

    return str(mujoco.__version__)


def _palette() -> list[str]:
    from disk.figures.style import PALETTE

    return list(PALETTE)
