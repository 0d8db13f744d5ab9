"""Which code made an artefact."""

from __future__ import annotations

import ast
import hashlib
import subprocess
from pathlib import Path


def code_hash() -> str:
    """A hash of the code that decides what is learned; comments and docstrings do not count."""
    package = Path(__file__).resolve().parent
    learner = ["networks", "tape", "critics", "sac", "replay", "seeds", "schedules", "settling", "assemble", "train"]
    files = [package / f"{name}.py" for name in [*learner, "artefacts", "skills", "rollout"]]
    files += sorted([*package.glob("objectives/*.py"), *package.glob("envs/*.py")])
    digest = hashlib.sha256()
    for path in files:
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            body = getattr(node, "body", None)
            if isinstance(body, list):
                node.body = [child for child in body if not _is_text(child)]  # type: ignore[attr-defined]
        digest.update(ast.dump(tree).encode())
    for path in sorted(package.glob("envs/*.xml")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _is_text(node: ast.AST) -> bool:
    """A docstring, or the text below a field or constant."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def commit() -> str | None:
    """The commit this code is at, with `+` if files differ from it; None outside a repository."""
    here = Path(__file__).resolve().parent
    try:
        head, changes = (
            # Fixed words, and the git that the user's PATH has.
            subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, timeout=10, check=True).stdout  # noqa: S603, S607
            for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "-uno", "."])
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return head.strip() + ("+" if changes else "")
