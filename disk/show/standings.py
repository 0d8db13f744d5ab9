"""Who stands where: a short table of an environment's methods for people, the best method first."""

from __future__ import annotations

import base64
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from disk.evaluation.words import MEASURES
from disk.storage.layout import METRICS

if TYPE_CHECKING:
    import pandas as pd

MEASURED = ("hausdorff", "isolation", "consistency")
COLUMNS = ("distinct", "movers", *MEASURED)
LEADS = {
    "distinct": "the most distinct skills",
    "hausdorff": "the largest Hausdorff distance (how far apart skills end)",
    "isolation": "the largest isolation (how far the nearest other skill ends)",
}
"""What methods are sorted by, and what the best of them has."""
GALLERY, PICTURE = "gallery/index.html", "trajectories.svg"


def standings(env: Path) -> tuple[pd.DataFrame, str]:
    """Return means over seeds in the first condition, a row for each method, and a sentence that names the best."""
    import pandas as pd

    from disk.evaluation.run import read_runs
    from disk.figures.style import method_name

    rows = []
    for method, seed, frame in read_runs(sorted(env.glob(f"*/seed*/{METRICS}"))):
        first = frame[frame["condition"] == frame["condition"].iloc[0]]
        means = first.groupby("metric")["value"].mean()
        rows.append({"method": method, "seed": seed, "skills": first["skill"].max() + 1, **means})
    runs = pd.DataFrame(rows)
    table = runs.groupby("method")[["skills", *(name for name in COLUMNS if name in runs)]].mean()
    leads = [name for name in LEADS if name in table and table[name].notna().any()]  # one skill has no distances
    table = table.sort_values(leads, ascending=False).astype({"skills": int})
    table.insert(0, "seeds", runs.groupby("method")["seed"].count())
    best: dict[str, list[str]] = {}
    for name in leads:
        best.setdefault(method_name(str(table[name].idxmax())), []).append(LEADS[name])
    said = "; ".join(f"{method} has {' and '.join(leads)}" for method, leads in best.items())
    for name in (name for name in COLUMNS if name in table):
        table[name] = table[name].map(_digits if name in MEASURED else "{:.3g}".format)
    return table.rename(columns=MEASURES, index=method_name).rename_axis(None), f"{said}." if said else ""


def _digits(value: float) -> str:
    """Return three significant digits, zeros included: 21.5, 13.0, 140."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:#.3g}".rstrip(".")


def standings_html(env: Path) -> str:
    """Return the table, the picture and links as HTML for a report in the directory that `env` is relative to."""
    table, best = standings(env)
    picture = env / PICTURE
    # Short lines: reStructuredText, in which the report keeps this, refuses long ones.
    image = base64.encodebytes(picture.read_bytes()).decode() if picture.exists() else ""
    links = [f'<a href="{escape(path.as_posix())}">{path.name}</a>' for path in sorted(env.glob("*.csv"))]
    if (env / GALLERY).exists():
        links.insert(0, f'<a href="{escape((env / GALLERY).as_posix())}">gallery: every skill</a>')
    drawn = f'<img style="max-width: 60rem" src="data:image/svg+xml;base64,{image}">' if image else ""
    said = f"<p>{escape(best)} ↑: more is better; ↓: less is better. Means over seeds.</p>"
    return "\n".join([table.to_html(border=0), said, drawn, f"<p>{' · '.join(links)}</p>"])
