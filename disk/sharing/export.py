"""Skills that travel: a run's skills as a file for other programs, with a card, and skills from wherever they are.

`export` writes one model for all skills of a run: it takes observations (B, D) and the number of a skill, and returns
the skill's deterministic actions (B, A) in the environment's own bounds. It is loaded again by the format's own
runtime and compared with the skills, action for action, before it counts as done.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from disk.errors import ArtefactError
from disk.sharing.card import card
from disk.skills import Skills, must_act_by_modes
from disk.skills import load as load_local
from disk.storage.files import save_text, whole
from disk.storage.layout import SKILLS

Format = Literal["onnx", "safetensors"]
FORMATS: tuple[Format, ...] = get_args(Format)
NAMES = {"onnx": "skills.onnx", "safetensors": SKILLS}
REMOTE = ("runs:/", "mlflow-artifacts:/", "models:/")
TOLERANCE = 1e-5
COMPARED = 1000
"""Observations on which an exported model is compared with the skills."""


def load(source: str | Path) -> Skills:
    """Skills from a run's directory, a file of skills, or an MLflow artefact (`runs:/…`, `mlflow-artifacts:/…`)."""
    if not str(source).startswith(REMOTE):
        return load_local(source)
    from disk.config import load as load_config
    from disk.tracking.mirror import resolve_uri

    uri = resolve_uri(load_config().tracking.uri)
    whole_run = str(source).startswith("runs:/") and "/" not in str(source).removeprefix("runs:/").strip("/")
    address = f"{str(source).rstrip('/')}/{SKILLS}" if whole_run else str(source)
    import mlflow

    with tempfile.TemporaryDirectory() as folder:
        try:
            path = mlflow.artifacts.download_artifacts(artifact_uri=address, dst_path=folder, tracking_uri=uri)
        except Exception as error:  # whatever a store, a server or a network raises
            raise ArtefactError(f"{source}: cannot be fetched from {uri}: {error}") from None
        return load_local(path)


def export(run: Path, form: Format, out: Path | None = None) -> Path:
    """Write the skills of a run, or of a file of skills, in a format, with a card beside them; the model's path."""
    skills = load_local(run)
    must_act_by_modes(skills, "an exported model")
    home = run if run.is_dir() else run.parent
    folder = out or home / "export" / form
    path = folder / NAMES[form]
    if path.resolve() == (run if run.is_file() else run / SKILLS).resolve():
        raise ArtefactError(f"{path}: is what would be exported; give another directory")
    content = _WRITERS[form](skills)
    difference = _compare(skills, _READERS[form](content), path)
    with whole(path) as file:
        file.write(content)
    checked = (
        f"Written as {form}, loaded back and compared with the skills on {COMPARED} observations a skill: actions "
        f"differ by at\nmost {difference:.2g}."
    )
    save_text(folder / "README.md", card(skills, home, path.name, form, checked))
    return path


def _compare(skills: Skills, act: Callable[[np.ndarray, int], np.ndarray], path: Path) -> float:
    """The largest difference between the model's actions and the skills' own, which must be nothing to speak of."""
    seen = 3.0 * np.random.default_rng(0).standard_normal((COMPARED, skills.observation_size)).astype(np.float32)
    worst = 0.0
    for skill in skills:
        worst = max(worst, float(np.abs(act(seen, skill.index) - skill.act(seen)).max()))
    if not worst <= TOLERANCE:
        raise ArtefactError(f"{path}: its actions differ by {worst:.3g} from the skills' own; nothing was written")
    return worst


def _write_onnx(skills: Skills) -> bytes:
    """The graph, node by node: a dozen operators, which no tracer needs to find out."""
    onnx = _need("onnx")
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    meta, actions = skills.meta, int(skills.meta["action_size"])
    constants: dict[str, np.ndarray] = {"which": skills.which.numpy(), "latent": skills.latent.numpy()}
    nodes = [helper.make_node("Gather", ["which", "skill"], ["actor"])]
    last = len(skills.actor.mlp.layers) - 1
    x = "observation"
    for i, (weight, bias) in enumerate(skills.actor.mlp.layers):
        w, b = weight.detach().numpy(), bias.detach().numpy()
        if i == last:
            w, b = w[:, :, :actions], b[:, :, :actions]  # the mean; the rest is its spread
        if i == 0:  # z comes behind the observation: its share of the product is a bias of its own
            constants["weight_z"] = w[:, skills.observation_size :]
            w = w[:, : skills.observation_size]
        constants |= {f"weight{i}": np.ascontiguousarray(w), f"bias{i}": np.ascontiguousarray(b)}
        nodes += [
            helper.make_node("Gather", [f"{part}{i}", "actor"], [f"{part}{i}_own"]) for part in ("weight", "bias")
        ]
        nodes += [
            helper.make_node("MatMul", [x, f"weight{i}_own"], [f"product{i}"]),
            helper.make_node("Add", [f"product{i}", f"bias{i}_own"], [f"sum{i}"]),
        ]
        x = f"sum{i}"
        if i == 0 and skills.latent.shape[1]:
            nodes += [
                helper.make_node("Gather", ["latent", "skill"], ["z"]),
                helper.make_node("Gather", ["weight_z", "actor"], ["weight_z_own"]),
                helper.make_node("MatMul", ["z", "weight_z_own"], ["z_share"]),
                helper.make_node("Add", [x, "z_share"], ["sum_z"]),
            ]
            x = "sum_z"
        if i < last:
            nodes.append(helper.make_node("Relu", [x], [f"hidden{i}"]))
            x = f"hidden{i}"
    low, high = (np.asarray(meta[f"action_{side}"], dtype=np.float32) for side in ("low", "high"))
    constants |= {"half_range": 0.5 * (high - low), "middle": 0.5 * (high + low)}
    nodes += [
        helper.make_node("Tanh", [x], ["squashed"]),
        helper.make_node("Mul", ["squashed", "half_range"], ["scaled"]),
        helper.make_node("Add", ["scaled", "middle"], ["action"]),
    ]
    used = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes,
        "skills",
        [
            helper.make_tensor_value_info("observation", onnx.TensorProto.FLOAT, ["batch", skills.observation_size]),
            helper.make_tensor_value_info("skill", onnx.TensorProto.INT64, []),
        ],
        [helper.make_tensor_value_info("action", onnx.TensorProto.FLOAT, ["batch", actions])],
        [numpy_helper.from_array(value, name) for name, value in constants.items() if name in used],
    )
    model = helper.make_model(graph, producer_name="disk", ir_version=9, opset_imports=[helper.make_opsetid("", 17)])
    helper.set_model_props(model, {"disk": json.dumps(meta, sort_keys=True)})
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def _read_onnx(content: bytes) -> Callable[[np.ndarray, int], np.ndarray]:
    session = _need("onnxruntime").InferenceSession(content, providers=["CPUExecutionProvider"])

    def act(seen: np.ndarray, skill: int) -> np.ndarray:
        actions: np.ndarray = session.run(["action"], {"observation": seen, "skill": np.array(skill)})[0]
        return actions

    return act


def _write_safetensors(skills: Skills) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / SKILLS
        skills.save(path)
        return path.read_bytes()


def _read_safetensors(content: bytes) -> Callable[[np.ndarray, int], np.ndarray]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / SKILLS
        path.write_bytes(content)
        skills = load_local(path)
    return lambda seen, skill: skills[skill].act(seen)


def _need(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError:
        raise ArtefactError(f"ONNX needs the package {name}: pip install 'disk-skills[onnx]'") from None


_WRITERS: dict[Format, Callable[[Skills], bytes]] = {
    "onnx": _write_onnx,
    "safetensors": _write_safetensors,
}
_READERS: dict[Format, Callable[[bytes], Callable[[np.ndarray, int], np.ndarray]]] = {
    "onnx": _read_onnx,
    "safetensors": _read_safetensors,
}
