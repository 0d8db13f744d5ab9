"""Gather the pages of the documentation's site in build/docs, where Zensical reads them: make docs

The pages are written for GitHub too. So files outside docs/ become pages, links are rewritten, formulas become MathML
and the notebook becomes Markdown. The finished site needs no script or font from elsewhere.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
from pathlib import Path

import nbformat
from latex2mathml.converter import convert
from nbconvert import MarkdownExporter

from disk.cli import parser

PROJECT = Path(__file__).resolve().parent.parent
CODE = re.compile(r"(^ *```.*?^ *```|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
HEADER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
LINK = re.compile(r"(?P<file>\[[\w/]+\.md)?\]\((?P<target>[^)#\s:]+)(?P<anchor>#[^)\s]*)?\)")
FORMULA = re.compile(r"\$\$(?P<block>.+?)\$\$|(?<![\w$])\$(?P<inline>[^\s$](?:[^$\n]*[^\s$])?)\$", re.DOTALL)
SOURCES = {".py": "python", ".yaml": "yaml", ".cff": "yaml"}
"""Files that a page of the site shows, by their suffix, and their language."""
MARKDOWN = {ord(character): f"&#{ord(character)};" for character in "_*|\\`[]~^"}
"""Characters of MathML that Markdown would read as its own."""


def stage(out: Path) -> None:
    """Write the site's pages, and the files that they show, into a folder, which is emptied first."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(PROJECT / "docs", out, ignore=shutil.ignore_patterns("*.md", "*.py", "*.ipynb", "__pycache__"))
    names = pages()
    for source, page in names.items():
        path, change = PROJECT / source, Changes(Path(source), Path(page), names, out)
        text = notebook(path, out) if path.suffix == ".ipynb" else path.read_text()
        write(out / page, "".join(change(part) for part in CODE.split(HEADER.sub("", text))))
    write(out / "commands.md", commands())
    live = sorted((out / "live").glob("*.html"))
    write(out / "live.md", (out / "live.md").read_text().replace("<!-- pages -->", "\n".join(map(live_link, live))))


def pages() -> dict[str, str]:
    """Return the pages of the repository and their places in the site. README.md gives way to docs/index.md."""
    docs = {path: path.removeprefix("docs/") for path in found("docs/*.md")}
    cards = {path: path.replace("/README.md", ".md") for path in found("pretrained/*/README.md")}
    others = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "config/README.md": "config.md"}
    return {**docs, **others, **cards, "docs/tour.ipynb": "tour.md", "pretrained/README.md": "pretrained/index.md"}


def found(pattern: str) -> list[str]:
    return sorted(path.relative_to(PROJECT).as_posix() for path in PROJECT.glob(pattern))


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


class Changes:
    """What happens to the prose of a page on its way into the site."""

    def __init__(self, source: Path, page: Path, names: dict[str, str], out: Path) -> None:
        self.source, self.page, self.names, self.out = source, page, names, out

    def __call__(self, part: str) -> str:
        return part if CODE.fullmatch(part) else LINK.sub(self.link, FORMULA.sub(formula, part))

    def link(self, match: re.Match[str]) -> str:
        """Point a link of the repository at the page of the site.

        A source file becomes a page that shows it, a folder one that lists its files. A page that is called by its file
        name is called by its title.
        """
        target = os.path.normpath(self.source.parent / match["target"])
        place = self.names.get(target) or ("index.md" if target == "README.md" else target.removeprefix("docs/"))
        suffix = Path(target).suffix
        if suffix in SOURCES:
            place, language = f"source/{target}.md", SOURCES[suffix]
            write(self.out / place, f"# {target}\n\n```{language}\n{(PROJECT / target).read_text()}```\n")
        if (PROJECT / target).is_dir():
            files = [path.relative_to(PROJECT / target) for path in sorted((PROJECT / target).rglob("*.*"))]
            place = f"{place}/index.md"
            write(self.out / place, f"# {target}\n\n" + "".join(f"- [{file}]({file})\n" for file in files))
        name = f"[{title(PROJECT / target)}" if match["file"] else ""
        return f"{name}]({os.path.relpath(place, self.page.parent)}{match['anchor'] or ''})"


def title(page: Path) -> str:
    return page.read_text().partition("# ")[2].partition("\n")[0]


def formula(match: re.Match[str]) -> str:
    """Return a formula as MathML, which browsers draw without a script. One wider than a phone scrolls by itself."""
    text = " ".join((match["block"] or match["inline"]).split())
    if match["block"]:
        return f'<div class="formula">{convert(text, display="block").translate(MARKDOWN)}</div>'
    mathml = convert(text).translate(MARKDOWN)
    return f'<span class="formula">{mathml}</span>' if len(text) > 60 else mathml


def notebook(path: Path, out: Path) -> str:
    """Return an executed notebook as Markdown, and write its pictures beside it."""
    text, resources = MarkdownExporter().from_notebook_node(nbformat.read(path, as_version=4))
    for name, content in resources["outputs"].items():
        (out / name).write_bytes(content)
    return str(text)


def commands() -> str:
    """Return the page of the command line, from the help of its own parser."""
    top = parser()
    (added,) = (action for action in top._actions if isinstance(action, argparse._SubParsersAction))
    helps = "".join(f"## {name}\n\n```text\n{sub.format_help()}```\n\n" for name, sub in added.choices.items())
    return f"# Commands\n\n```text\n{top.format_help()}```\n\n{helps}"


def live_link(path: Path) -> str:
    return f"- [{path.stem}](live/{path.name})"


if __name__ == "__main__":
    stage(PROJECT / "build/docs")
