"""Export skills to other programs, and load skills from a run, a file or MLflow.

`export` writes one model for all skills of a run. The model takes observations (B, D) and skill numbers, and returns
deterministic actions (B, A) in the environment's bounds. Before it is written, the format's own runtime loads it, and
its actions are compared with the skills' actions.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np

from disk.errors import ArtefactError
from disk.lazy import need
from disk.sharing.card import CARD, card
from disk.sharing.hub import PREFIX, fetch
from disk.skills import Skills, must_act_by_modes
from disk.skills import load as load_local
from disk.storage.files import save_text, whole
from disk.storage.layout import SKILLS

Format = Literal["onnx", "safetensors"]
NAMES: dict[Format, str] = {"onnx": "skills.onnx", "safetensors": SKILLS}
REMOTE = ("runs:/", "mlflow-artifacts:/", "models:/")
TOLERANCE = 1e-4
"""Largest difference between two actions, as a share of the action's range.

Two libraries sum the same products in another order. Float32 has seven digits, and sums of hundreds of large terms
lose two of them: the pretrained skills differ by up to 5e-6. A wrong weight or index differs by far more than 1e-4.
"""
COMPARED = 1000
"""Observations on which an exported model is compared with each skill."""


def load(source: str | Path) -> Skills:
    """Load skills from a run's folder, a file of skills, MLflow or a model hub.

    MLflow's skills are at `runs:/…`, `mlflow-artifacts:/…` or `models:/…`. A hub's skills are at `hf://owner/name`, or
    at one revision of it, `hf://owner/name@…`.
    """
    if str(source).startswith(PREFIX):
        return load_local(fetch(str(source)))
    if not str(source).startswith(REMOTE):
        return load_local(source)
    from disk.config import load as load_config
    from disk.tracking.mirror import resolve_uri

    uri = resolve_uri(load_config().tracking.uri)
    whole_run = str(source).startswith("runs:/") and "/" not in str(source).removeprefix("runs:/").strip("/")
    address = f"{str(source).rstrip('/')}/{SKILLS}" if whole_run else str(source)
    mlflow = need("mlflow")
    with tempfile.TemporaryDirectory() as folder:
        try:
            path = mlflow.artifacts.download_artifacts(artifact_uri=address, dst_path=folder, tracking_uri=uri)
        except Exception as error:  # a store, a server and a network raise errors of their own
            raise ArtefactError(f"{source}: cannot be fetched from {uri}: {error}") from None
        return load_local(path)


def export(run: Path, form: Format, out: Path | None = None) -> Path:
    """Write the skills of a run, or of a file of skills, with a card beside them. Return the model's path."""
    skills = load_local(run)
    must_act_by_modes(skills, "an exported model")
    home = run if run.is_dir() else run.parent
    folder = out or home / "export" / form
    path = folder / NAMES[form]
    if path.resolve() == (run if run.is_file() else run / SKILLS).resolve():
        raise ArtefactError(f"{path}: is the file to export; give another --out")
    content = _WRITERS[form](skills)
    difference = _compare(skills, _READERS[form](content), path)
    with whole(path) as file:
        file.write(content)
    checked = (
        f"This {form} file was loaded back and compared with the skills on {COMPARED} observations per skill.\n"
        f"Actions differ by at most {difference:.2g} of their range."
    )
    save_text(folder / CARD, card(skills, home, path.name, form, checked))
    return path


def _compare(skills: Skills, act: Callable[[np.ndarray, int], np.ndarray], path: Path) -> float:
    """Return the largest difference between the model's and the skills' actions, as a share of the action's range."""
    seen = 3.0 * np.random.default_rng(0).standard_normal((COMPARED, skills.observation_size)).astype(np.float32)
    action_range = np.subtract(skills.meta["action_high"], skills.meta["action_low"])
    differences = [np.abs(act(seen, skill.index) - skill.act(seen)) / action_range for skill in skills]
    worst = float(np.max(differences))
    if not worst <= TOLERANCE:  # also if it is NaN
        raise ArtefactError(
            f"{path}: its actions differ from the skills' by {worst:.3g} of their range, expected at most "
            f"{TOLERANCE:g}; nothing was written"
        )
    return worst


def _write_onnx(skills: Skills) -> bytes:
    """Build the graph node by node; a dozen operators need no tracer.

    `skill` has one number for all rows (1,) or one per row (B,). Observations have shape (B, 1, D) inside, so that the
    weights of one skill (1, D, H) and weights per row (B, D, H) both fit MatMul.
    """
    onnx = need("onnx")
    helper = onnx.helper
    meta, actions = skills.meta, int(skills.meta["action_size"])
    constants: dict[str, np.ndarray] = {"which": skills.which.numpy(), "row_axis": np.array([1])}
    nodes: list[Any] = []

    def node(operator: str, inputs: list[str], output: str) -> str:
        nodes.append(helper.make_node(operator, inputs, [output]))
        return output

    def constant(name: str, value: np.ndarray) -> str:
        constants[name] = np.ascontiguousarray(value)
        return name

    x, actor = node("Unsqueeze", ["observation", "row_axis"], "rows"), node("Gather", ["which", "skill"], "actor")
    last = len(skills.actor.mlp.layers) - 1
    for i, (weight, bias) in enumerate(skills.actor.mlp.layers):
        w, b = weight.detach().numpy(), bias.detach().numpy()
        if i == last:
            w, b = w[:, :, :actions], b[:, :, :actions]  # the mean; the rest is the deviation
        own = node("Gather", [constant(f"weight{i}", w[:, : skills.observation_size] if i == 0 else w), actor], f"w{i}")
        offset = node("Gather", [constant(f"bias{i}", b), actor], f"b{i}")
        if i == 0 and skills.latent.shape[1]:  # z follows the observation: its product is one more bias
            z = node("Gather", [constant("latent", skills.latent.numpy()[:, None]), "skill"], "z")
            of_z = node("Gather", [constant("weight_z", w[:, skills.observation_size :]), actor], "w_z")
            offset = node("Add", [offset, node("MatMul", [z, of_z], "z_product")], "b_z")
        x = node("Add", [node("MatMul", [x, own], f"product{i}"), offset], f"sum{i}")
        if i < last:
            x = node("Relu", [x], f"hidden{i}")
    low, high = (np.asarray(meta[f"action_{side}"], dtype=np.float32) for side in ("low", "high"))
    x = node("Mul", [node("Tanh", [x], "squashed"), constant("half_range", 0.5 * (high - low))], "scaled")
    node("Squeeze", [node("Add", [x, constant("middle", 0.5 * (high + low))], "native"), "row_axis"], "action")

    number, integer = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
    graph = helper.make_graph(
        nodes,
        "skills",
        [
            helper.make_tensor_value_info("observation", number, ["batch", skills.observation_size]),
            helper.make_tensor_value_info("skill", integer, ["one_or_batch"]),
        ],
        [helper.make_tensor_value_info("action", number, ["batch", actions])],
        [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, producer_name="disk", ir_version=9, opset_imports=[helper.make_opsetid("", 17)])
    helper.set_model_props(model, {"disk": json.dumps(meta, sort_keys=True)})
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def _read_onnx(content: bytes) -> Callable[[np.ndarray, int], np.ndarray]:
    session = need("onnxruntime").InferenceSession(content, providers=["CPUExecutionProvider"])

    def act(seen: np.ndarray, skill: int) -> np.ndarray:
        actions: np.ndarray = session.run(["action"], {"observation": seen, "skill": np.array([skill])})[0]
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


_WRITERS: dict[Format, Callable[[Skills], bytes]] = {
    "onnx": _write_onnx,
    "safetensors": _write_safetensors,
}
_READERS: dict[Format, Callable[[bytes], Callable[[np.ndarray, int], np.ndarray]]] = {
    "onnx": _read_onnx,
    "safetensors": _read_safetensors,
}
