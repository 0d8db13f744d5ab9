"""Changes that nobody announces: the tables of config/recovery.yaml, from its runs.

    python benchmarks/recovery.py results/recovery          # also of what there is so far
    python benchmarks/recovery.py docs/results/recovery --page docs/changing.md --figures docs/figures    # as shipped

`untold` compares `disk_aware` with `disk`, which is told; `changes` has every method after a change of the world.
`--page` puts each table where a page says `<!-- recovery: untold -->` or `<!-- recovery: changes -->`, up to
`<!-- end -->`. `--figures` draws `{env}_recovery.svg` there.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import pandas as pd
from ship import probe_steps

from disk.evaluation.forgetting import usable_table
from disk.evaluation.recovery import recovery_table, summary
from disk.figures.recovery import recovery
from disk.storage.files import load_stats
from disk.storage.layout import Run

TOLD, UNTOLD = "disk", "disk_aware"
METHODS = (TOLD, UNTOLD, "disk_plus", "dads_scaled", "metra", "diayn_sigma")
COMPARED = {
    "hausdorff": "mean Hausdorff, mean over conditions",
    "distinct": "`distinct`, mean over conditions",
    "usable": "usable distinct skills at the end",
    "probe_steps": "steps for probes",
    "collected_steps": "steps for 𝒯",
}


def measured(results: Path) -> pd.DataFrame:
    """Return one row per run of the two methods: env, method, seed and the columns of COMPARED. Unknown is NaN."""
    rows = []
    for path in sorted(results.glob("*/*/seed*/metrics.csv")):
        run = Run.of(path)
        if run.method not in (TOLD, UNTOLD):
            continue
        # First over the skills of a condition. Measures of the whole set have one value there.
        means = pd.read_csv(path).groupby(["metric", "condition"])["value"].mean().groupby("metric").mean()
        usable = path.with_name("usable.csv")
        last = pd.read_csv(usable)["distinct"].iloc[-1] if usable.exists() else None
        found = {"hausdorff": means["hausdorff"], "distinct": means["distinct"], "usable": last, **steps(path.parent)}
        rows.append({"env": run.env, "method": run.method, "seed": run.seed, **found})
    table = pd.DataFrame(rows, columns=["env", "method", "seed", *COMPARED]).astype(dict.fromkeys(COMPARED, float))
    return table.sort_values("env", ascending=False, kind="stable")


def steps(run: Path) -> dict[str, int | None]:
    """Return a run's steps for probes and for 𝒯, from its about.json or, if it was not shipped, its skills' files."""
    about = run / "about.json"
    if about.exists():
        shipped = json.loads(about.read_text())
        return {name: shipped.get(name) for name in ("probe_steps", "collected_steps")}
    stats = [load_stats(path) for path in sorted(run.glob("skill[0-9][0-9]/stats.json"))]
    return {"probe_steps": probe_steps(stats), "collected_steps": sum(each["collected_steps"] for each in stats)}


def values(column: pd.Series[float]) -> str:
    """Write the mean, and all seeds' values if they differ."""
    known = column.dropna()
    if known.empty:
        return "–"
    several = f" ({', '.join(number(value) for value in known)})" if known.nunique() > 1 else ""
    return number(known.mean()) + several


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def untold(runs: pd.DataFrame) -> str:
    """Compare `disk_aware` with `disk`: means, values of seeds, and the ratio of the means."""
    lines = [f"| world | | `{TOLD}`, told | `{UNTOLD}`, untold | ratio |", "|---|---|---|---|---|"]
    for env, part in runs.groupby("env", sort=False):
        by = {method: own.sort_values("seed") for method, own in part.groupby("method")}
        told, other = (by.get(method, part[:0]) for method in (TOLD, UNTOLD))
        seeds = f"{len(told)} and {len(other)} seeds" if len(told) != len(other) else f"{len(told)} seeds"
        for row, (name, title) in enumerate(COMPARED.items()):
            ratio = other[name].mean() / told[name].mean()
            cells = (values(told[name]), values(other[name]), "–" if pd.isna(ratio) else f"{ratio:.2f}")
            lines.append(f"| {'' if row else f'`{env}`, {seeds}'} | {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def recovered(results: Path) -> dict[str, pd.DataFrame]:
    """Return each world's table of `recovery_table`, methods in the order of METHODS."""
    files: dict[str, list[Path]] = {}
    for path in sorted(results.glob("*/*/seed*/usable.csv"), key=lambda path: METHODS.index(Run.of(path).method)):
        files.setdefault(Run.of(path).env, []).append(path)
    return {env: recovery_table(usable_table(files[env])) for env in sorted(files, reverse=True)}


def changes(tables: dict[str, pd.DataFrame]) -> str:
    """Tabulate what each method has left at once and before the next change, as a share of what it had."""
    titles = (
        "world | method | seeds | changes | reach at once | before the next change | back at 90 % of reach | "
        "`distinct`: changes | at once | before the next change"
    )
    lines = [f"| {titles} |", "|" + "---|" * 10]
    for env, table in tables.items():
        seeds = table.groupby("method")["seed"].nunique()
        found = summary(table).set_index(["measure", "method"])
        for row, (method, reach) in enumerate(found.loc["reach"].iterrows()):
            back = f"{reach['recovered']:.0%} of changes"
            if reach["recovered"] > 0:
                back += f", after {reach['steps']:,.0f} steps"
            cells = [str(seeds[method]), f"{reach['changes']:.0f}", *shares(reach), back]
            if ("distinct", method) in found.index:
                distinct = found.loc[("distinct", method)]
                cells += [f"{distinct['changes']:.0f}", *shares(distinct)]
            else:
                cells += ["0", "–", "–"]
            lines.append(f"| {'' if row else f'`{env}`'} | `{method}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def shares(row: pd.Series[float]) -> list[str]:
    return [f"{row[name]:.0%}" for name in ("at_once", "last")]


def put(page: str, name: str, table: str) -> str:
    """Put a table between its two markers on a page."""
    found = re.compile(rf"(<!-- recovery: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    if not found.search(page):
        raise SystemExit(f"the page has no <!-- recovery: {name} --> with an <!-- end -->")
    return found.sub(lambda at: f"{at[1]}\n{table}\n\n{at[2]}", page)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--page", type=Path, help="the page whose tables to bring up to date")
    parser.add_argument("--figures", type=Path, help="where to draw {env}_recovery.svg")
    given = parser.parse_args()
    runs, tables = measured(given.results), recovered(given.results)
    if runs.empty or not tables:
        raise SystemExit(f"{given.results}: has no metrics.csv or no usable.csv of any run yet")
    texts = {"untold": untold(runs), "changes": changes(tables)}
    print("\n\n".join(texts.values()))
    if given.page:
        page = given.page.read_text()
        for name, text in texts.items():
            page = put(page, name, text)
        given.page.write_text(page)
    for env, table in tables.items() if given.figures else ():
        recovery(table, given.figures / f"{env}_recovery.svg", env=env)


if __name__ == "__main__":
    main()
