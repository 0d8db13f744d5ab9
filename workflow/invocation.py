"""How Snakemake was called. It tells a workflow neither its targets nor whether it is to run anything."""

from __future__ import annotations

import contextlib
import io
import sys
from argparse import Namespace
from pathlib import Path

from snakemake.cli import get_argument_parser

PRINTING = ("lint", "list_rules", "list_target_rules", "print_compilation", "dag", "rulegraph", "filegraph", "d3dag")
ASKING = ("list_changes", "list_input_changes", "list_params_changes", "list_untracked", "list_conda_envs")
READING = (*PRINTING, *ASKING, "summary", "detailed_summary", "report")
"""Options with which Snakemake prints something about the workflow, and runs no job."""


def arguments(words: list[str]) -> Namespace | None:
    """Return Snakemake's own reading of a command line; None if that was another program's."""
    if "snakemake" not in Path(words[0]).parts[-2:]:  # bin/snakemake, or snakemake/__main__.py
        return None
    end = words.index("--") if "--" in words else len(words)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            found = get_argument_parser().parse_args(words[1:end])
    except SystemExit:  # Snakemake itself has understood it, so it is another version's
        return None
    found.targets = [*found.targets, *words[end + 1 :]]
    return found


def targets() -> list[str]:
    """Return the targets of this call; option values such as the path of a report are none."""
    found = arguments(sys.argv)
    return found.targets if found else []


def only_reads() -> bool:
    """Return True if this call prints something about the workflow, and runs no job."""
    found = arguments(sys.argv)
    return bool(found) and not found.report_after_run and any(getattr(found, name, None) for name in READING)
