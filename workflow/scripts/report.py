"""report.py REPORT CONFIGFILE...: write a report of existing results, without computing any."""

import subprocess
import sys
import tempfile
from pathlib import Path
from textwrap import indent

import yaml

from disk import config
from disk.figures.catalogue import computed, environments
from disk.show.standings import standings_html
from disk.storage.layout import METRICS, results_root

report, *presets = sys.argv[1:]
settings = config.load(*presets)
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
# Snakemake opens a report on its metadata, if there are any, instead of the graph of rules.
folders = [results_root(settings) / env for env in environments(settings)]
measured = [env for env in folders if any(env.glob(f"*/seed*/{METRICS}"))]
summary = {f"Summary of {env.name}": ".. raw:: html\n\n" + indent(standings_html(env), "   ") for env in measured}
with tempfile.TemporaryDirectory() as folder:
    page = Path(folder) / "summary.yaml"
    page.write_text(yaml.safe_dump(summary, sort_keys=False, allow_unicode=True))
    style = ["--report-stylesheet", "workflow/report/report.css", "--report-metadata", str(page)]
    sys.exit(subprocess.run([*snakemake, *found, "--report", report, *style, *tail], check=False).returncode)
