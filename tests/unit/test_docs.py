"""The documentation names what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from disk.config import PROJECT

PAGES = sorted(path.relative_to(PROJECT).as_posix() for path in [*PROJECT.glob("*.md"), *PROJECT.glob("[cd]*/*.md")])


def test_the_map_from_the_paper_to_the_code_names_what_there_is():
    text = (PROJECT / "docs/algorithm.md").read_text()
    named = re.findall(r"`([a-z_/]+\.py)`: ((?:`[\w.]+`(?:, )?)+)", text)
    assert len(named) > 15
    for file, things in named:
        code = (PROJECT / "disk" / file).read_text()
        for thing in re.findall(r"`([\w.]+)`", things):
            for part in thing.split("."):
                assert re.search(rf"(def|class) {part}\b", code), f"{file} has no {thing}"


def test_the_page_of_the_workflow_has_every_rule_and_every_file_that_one_makes():
    page = (PROJECT / "docs/workflow.md").read_text()
    files = [*(PROJECT / "workflow/rules").glob("*.smk"), PROJECT / "workflow/Snakefile"]
    code = "\n".join(path.read_text() for path in files)
    rules = re.findall(r"^rule (\w+):", code, re.MULTILINE)
    assert len(rules) > 30
    tables = "\n".join(line for line in page.splitlines() if line.startswith("| `"))
    assert [name for name in rules if f"`{name}`" not in tables] == []
    outputs = {path.rpartition("/")[2] for path in re.findall(r'"<results>/([^"]+\.\w+)"', code)}
    outputs -= {path for path in outputs if path.startswith("{")}  # names made by functions

    def blank(text: str) -> str:
        return re.sub(r"\{[^}]*\}", "{}", text)

    assert len(outputs) > 30
    assert [name for name in sorted(outputs) if blank(name) not in blank(page)] == []


@pytest.mark.parametrize(("page", "tables"), [("docs/results.md", 8), ("docs/methods.md", 1), ("README.md", 1)])
def test_pages_have_the_tables_of_what_was_shipped(page: str, tables: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(PROJECT / "benchmarks"))
    from tables import with_tables

    text = (PROJECT / page).read_text()
    assert len(re.findall(r"<!-- \w+: ", text)) >= tables
    assert with_tables(text, PROJECT / "docs/results/laptop") == text


def test_the_readme_is_short_enough_to_be_read():
    lines = (PROJECT / "README.md").read_text().splitlines()
    assert len(lines) <= 150
    assert max(map(len, lines)) <= 120


@pytest.mark.parametrize("page", PAGES)
def test_links_between_pages_and_to_figures_lead_somewhere(page: str):
    path = PROJECT / page
    for target in re.findall(r"\]\(([^)#\s]+)", path.read_text()):
        if "://" not in target:
            assert (path.parent / Path(target)).exists(), f"{page}: {target}"


@pytest.mark.parametrize("page", [page for page in PAGES if page not in ("docs/extending.md", "CHANGELOG.md")])
def test_files_of_the_project_that_a_page_names_exist(page: str):
    """Not in docs/extending.md, where the reader adds a file, nor in the changelog. A page may leave out `disk/`."""
    named = re.findall(
        r"(?<![\w/.])(?:disk|workflow|benchmarks|config|tests|profiles)/[\w./-]+\.(?:py|smk|sh|yaml|rst)\b",
        (PROJECT / page).read_text(),
    )
    missing = sorted({name for name in named if not any((PROJECT / top / name).exists() for top in ("", "disk"))})
    assert not missing, f"{page} names {missing}"


@pytest.mark.parametrize("page", PAGES)
def test_no_target_stands_where_snakemake_takes_it_for_another_value_of_an_option(page: str):
    """These options take any number of values: `--configfile a.yaml target` reads the target as a file."""
    commands = re.findall(r"^.*\bsnakemake .*$", (PROJECT / page).read_text(), re.MULTILINE)
    for command in commands:
        words = re.split(r"\s+#|`", command[command.index("snakemake ") :])[0].split()
        option = None
        for word in words:
            option = word if word.startswith("-") else option
            if option == "--configfile" and word != option:
                assert word.endswith(".yaml"), command
            if option == "--sdm" and word != option:
                assert word == "apptainer", command
