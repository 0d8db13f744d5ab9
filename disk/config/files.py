"""Configuration files: the shipped ones, and how one is laid over another."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from disk.config.messages import unknown
from disk.errors import ConfigError

if TYPE_CHECKING:
    import yaml

PROJECT = Path(__file__).resolve().parents[2]
SHIPPED = (Path(__file__).parent / "defaults").resolve()
"""`config/` of the project, which a wheel carries along. In a checkout this is a link to it."""
DEFAULT_FILES = tuple(SHIPPED / name for name in ("config.yaml", "envs.yaml", "methods.yaml"))
UNREADABLE = (OSError, ValueError, LookupError, AttributeError, TypeError, RecursionError)
"""What a file that is no YAML raises beside YAMLError, such as `2024-02-30`, `!!bool x` or bytes that are not UTF-8."""


def read(files: Iterable[Path]) -> dict[str, Any]:
    """Read YAML files, each laid over those before it."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where there is a compiled one
    raw: dict[str, Any] = {}
    for path in files:
        try:
            reader = loader(path.read_text())
            node = reader.get_single_node()
            _refuse_twins(node, path)
            content = None if node is None else reader.construct_document(node)
            json.dumps(content, default=str, skipkeys=True)  # fails for an alias that holds itself
        except ConfigError:
            raise
        except (*UNREADABLE, yaml.YAMLError) as error:
            raise ConfigError(f"{path}: cannot be read: {error}") from None
        if not isinstance(content, Mapping):
            raise ConfigError(f"{path}: expected keys and values, found {type(content).__name__}")
        raw = merge(raw, content)
    return raw


def _refuse_twins(root: yaml.Node | None, path: Path) -> None:
    """Refuse a key that a mapping has twice. PyYAML would drop the first one and all that is below it."""
    import yaml

    waiting, seen = [root], set()
    while waiting:
        node = waiting.pop()
        if node is None or id(node) in seen or isinstance(node, yaml.ScalarNode):
            continue
        seen.add(id(node))  # an alias is its anchor's node, which may even hold itself
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
            continue
        lines: dict[tuple[str, str], int] = {}
        for key, value in node.value:
            waiting += [key, value]
            if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
                continue
            line, first = key.start_mark.line + 1, lines.get((key.tag, key.value))
            if first is not None:
                raise ConfigError(
                    f"{path}, line {line}: key {key.value!r} is already in line {first}: expected each key once; "
                    f"put the rows of line {line} below line {first}"
                )
            lines[key.tag, key.value] = line


def merge(base: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings are merged key by key, everything else is replaced: what Snakemake does to config files."""
    merged = dict(base)
    for key, value in extra.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def alike(rows: Mapping[str, Any], name: str, seen: tuple[str, ...] = ()) -> Any:
    """A row of methods.yaml with the keys of the row that it is `like`, of the row that this one is like, …"""
    row, seen = rows[name], (*seen, name)
    other = row.get("like") if isinstance(row, Mapping) else None
    if not isinstance(other, str):
        return row
    if other in seen:
        raise ValueError(f"methods.{name}.like: {other!r}: rows that are like each other: {' → '.join((*seen, other))}")
    if other not in rows:
        raise ValueError(f"methods.{name}.like: {unknown(other, map(str, rows))}")
    return merge(alike(rows, other, seen), row) if isinstance(rows[other], Mapping) else row
