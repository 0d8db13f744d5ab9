"""report.py REPORT CONFIGFILE...: write a report of existing results, without computing any."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from textwrap import indent

from disk import config
from disk.errors import DiskError
from disk.figures.catalogue import computed, environments
from disk.show.standings import standings_html
from disk.storage.layout import METRICS, results_root

report, *presets = sys.argv[1:]
try:
    settings = config.load(*presets)
except DiskError as error:
    sys.exit(str(error))
found = [str(path) for path in computed(settings)]
if not found:
    sys.exit(
        f"nothing has been drawn yet for {' '.join(presets)}: run snakemake --cores 2 --configfile {' '.join(presets)}"
    )
snakemake = [sys.executable, "-m", "snakemake", "--cores", "1"]
tail = ["--configfile", *presets] if presets else []
# The tables of runs compare their code with today's, so they are written again.
tables = [path for path in found if path.endswith("runs.csv")]
subprocess.run([*snakemake, "--quiet", "all", "--force", *tables, "--allowed-rules", "list_runs", *tail], check=False)
# A report with metadata opens on the workflow's description, one without opens on the graph of rules.
folders = [results_root(settings) / env for env in environments(settings)]
measured = {env: len([*env.glob(f"*/seed*/{METRICS}")]) for env in folders}
pages = "".join(f"<h2>{env.name}</h2>\n{standings_html(env)}\n" for env, runs in measured.items() if runs)
about = (
    "<p>Skills learned without rewards, a row for each method. Links need the folder results/ beside this page.</p>\n"
)
with tempfile.TemporaryDirectory() as folder:
    page, numbers = Path(folder) / "summary.rst", Path(folder) / "numbers.yaml"
    page.write_text(".. raw:: html\n\n" + indent(about + pages, "   ") if pages else "Nothing has been measured yet.\n")
    numbers.write_text(f"Runs: {sum(measured.values())}\nFigures and tables: {len(found)}\n")
    style = ["--report-stylesheet", "workflow/report/report.css", "--report-metadata", str(numbers)]
    done = subprocess.run(
        [*snakemake, *found, "--report", report, *style, *tail],
        env={**os.environ, "DISK_SUMMARY": str(page)},
        check=False,
    )
sys.exit(done.returncode)
