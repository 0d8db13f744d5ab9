"""The version of the code that made an artefact: a hash of its syntax trees, and the git commit."""

from __future__ import annotations

import ast
import hashlib
import subprocess
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
LEARNING = (
    "learning",
    "envs",
    "networks.py",
    "projection.py",
    "skills.py",
    "seeds.py",
    "storage/replay.py",
    "evaluation/rollout.py",
    "evaluation/workers.py",
)
"""Folders and files, below the package, that decide what a skill learns."""
DOWNSTREAM = (*LEARNING, "downstream")
"""Folders and files that decide what a controller learns."""


def code_hash(places: tuple[str, ...] = LEARNING, package: Path = PACKAGE) -> str:
    """Hash the Python code and the XML models in these places. Comments and docstrings do not count."""
    found = [path for place in places for path in ([package / place] if "." in place else (package / place).rglob("*"))]
    files = sorted(path for path in found if path.suffix == ".py")
    digest = hashlib.sha256()
    for path in files:
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            body = getattr(node, "body", None)
            if isinstance(body, list):
                node.body = [child for child in body if not _is_text(child)]  # type: ignore[attr-defined]
        digest.update(ast.dump(tree).encode())
    for path in sorted(path for path in found if path.suffix == ".xml"):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _is_text(node: ast.AST) -> bool:
    """Return True for a docstring, and for the text below a field or constant."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def commit() -> str | None:
    """Return the git commit of this code, with `+` if files differ from it; None outside a repository."""
    try:
        head, changes = (
            # The words are fixed; git is the one on the user's PATH.
            subprocess.run(["git", *words], cwd=PACKAGE, capture_output=True, text=True, timeout=10, check=True).stdout  # noqa: S603, S607
            for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "-uno", "."])
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return head.strip() + ("+" if changes else "")
