"""report.py REPORT CONFIGFILE...: write a report of existing results, without computing any."""

import subprocess
import sys

from disk import config
from disk.figures.catalogue import computed

report, *presets = sys.argv[1:]
found = [str(path) for path in computed(config.load(*presets))]
if not found:
    sys.exit(
        f"nothing has been drawn yet for {' '.join(presets)}: run snakemake --cores 2 --configfile {' '.join(presets)}"
    )
snakemake = [sys.executable, "-m", "snakemake", "--cores", "1"]
tail = ["--configfile", *presets] if presets else []
# The tables of runs compare their code with today's, so they are written again.
tables = [path for path in found if path.endswith("runs.csv")]
subprocess.run([*snakemake, "--quiet", "all", "--force", *tables, "--allowed-rules", "list_runs", *tail], check=False)
sys.exit(subprocess.run([*snakemake, *found, "--report", report, *tail], check=False).returncode)
