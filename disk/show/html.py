"""Self-contained pages: data and scripts in one file, which a content security policy names by their hashes."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any


def fill(template: str, values: Mapping[str, str]) -> str:
    """Replace the names of a template, such as __DATA__, by their values. Values are not searched for names."""
    return re.sub("__[A-Z_]+__", lambda found: values.get(found[0], found[0]), template)


def to_json(data: Any) -> str:
    """Return JSON for a script element, which only these characters can end; JSON may write any of them as \\u…."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def digest(text: str) -> str:
    """Return the hash by which a content security policy allows a script or style."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
