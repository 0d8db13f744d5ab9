"""What is wrong with a configuration, in words: the key's path, the value, and what was expected."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ValidationError

UNION_BRANCH = re.compile(r"int|str|Coordinates|(list|dict|literal|function|constrained)[\[-].*")


def explain(error: ValidationError, model: type[BaseModel], prefix: str = "") -> str:
    """One line a fault: `environments.ant.steps: -5: input should be …`."""
    lines: dict[str, str] = {}
    for fault in error.errors():
        # Besides keys and indices, pydantic's location names the branch of a union it tried.
        location = [part for part in fault["loc"] if not UNION_BRANCH.fullmatch(str(part))]
        names = [str(part) if str(part).isprintable() else repr(part) for part in location]
        path = ".".join(filter(None, [prefix, *names]))
        message, value = fault["msg"].removeprefix("Value error, "), fault["input"]
        if fault["type"] == "extra_forbidden":
            message = f"unknown key; {_nearest(location, model)}"
        elif fault["type"] == "missing":
            message = "missing, and it has no default"
        elif fault["type"] != "value_error":
            message = f"{value!r}: {message[:1].lower()}{message[1:]}{_hint(value)}"
        lines.setdefault(path, f"{path}: {message}" if path else message)
    # Where a union's branches failed at different depths, the deepest says most.
    deepest = [line for path, line in lines.items() if not any(other.startswith(f"{path}.") for other in lines)]
    return "\n".join(deepest)


def unknown(name: str, names: Iterable[str], what: str = "") -> str:
    """Say that a name is none of the known ones, and which one was probably meant."""
    names = sorted(names)
    similar = difflib.get_close_matches(name, names, n=1)
    meant = f"did you mean {similar[0]!r}? " if similar else ""
    return f"{f'unknown {what} {name!r}' if what else f'{name!r} is unknown'}; {meant}known: {', '.join(names)}"


def _hint(value: Any) -> str:
    looks_numeric = isinstance(value, str) and value.replace(".", "").replace("-", "").replace("e", "").isdigit()
    return " (YAML reads 5e5 as text: write 500_000 or 5.0e+5)" if looks_numeric else ""


def _nearest(location: list[int | str], model: Any) -> str:
    """The keys that would have been right at this place, or the one that was probably meant."""
    for part in location[:-1]:
        field = getattr(model, "model_fields", {}).get(part)
        if field is None:
            continue  # a name in a table, or an index: the model stays
        candidates = [field.annotation, *getattr(field.annotation, "__args__", ())]
        model = next((c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)), model)
    keys = sorted(field.alias or name for name, field in model.model_fields.items())
    similar = difflib.get_close_matches(str(location[-1]), keys, n=1)
    return f"did you mean {similar[0]!r}?" if similar else f"known: {', '.join(keys)}"
