"""Skills on a model hub: uploaded, pinned by their revision, loaded and measured again.

The hub is a small server that speaks Hugging Face's protocol for these calls. The real one is not asked.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from conftest import PROJECT, TINY


class Hub(BaseHTTPRequestHandler):
    """Repositories as lists of commits, each a dictionary of files; a commit's name is a hash of its content."""

    repositories: dict[str, dict[str, dict[str, bytes]]] = {}  # noqa: RUF012  one hub per test session

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        if self.path == "/api/repos/create":
            asked = json.loads(body)
            name = "/".join(filter(None, [asked.get("organization"), asked["name"]]))
            known = name in self.repositories
            self.repositories.setdefault(name, {})
            self.answer({"url": f"http://{self.headers['Host']}/{name}", "id": name}, 409 if known else 200)
        elif self.path == "/api/validate-yaml":
            self.answer({"errors": [], "warnings": []})
        elif re.fullmatch(r"/api/models/(.+)/preupload/main", self.path):
            files = [{"path": file["path"], "uploadMode": "regular", "shouldIgnore": False, "oid": None}
                     for file in json.loads(body)["files"]]  # fmt: skip
            self.answer({"files": files})
        elif found := re.fullmatch(r"/api/models/(.+)/commit/main", self.path):
            commits = self.repositories[found[1]]
            files = dict(next(reversed(commits.values()), {}))
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            name = hashlib.sha1(repr((len(commits), sorted(files.items()))).encode()).hexdigest()  # noqa: S324  as git
            commits[name] = files
            self.answer(
                {
                    "commitUrl": f"http://{self.headers['Host']}/{found[1]}/commit/{name}",
                    "commitOid": name,
                    "success": True,
                }
            )
        else:
            self.answer({"error": self.path}, 404)

    def do_GET(self, body: bool = True) -> None:
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?", self.path.partition("?")[0]):
            commits = self.repositories.get(found[1], {})
            name = self.revision(commits, found[2])
            siblings = [{"rfilename": file} for file in commits.get(name, ())]
            about = {"_id": "1", "id": found[1], "sha": name, "siblings": siblings, "private": False, "tags": []}
            self.answer(about if name in commits else {"error": "no such revision"}, 200 if name in commits else 404)
        elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", self.path):
            commits = self.repositories[found[1]]
            name = self.revision(commits, found[2])
            content = commits[name][found[3]]
            self.send_response(200)
            self.send_header("X-Repo-Commit", name)
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if body:
                self.wfile.write(content)
        else:
            self.answer({"error": self.path}, 404)

    def do_HEAD(self) -> None:
        self.do_GET(body=False)

    def revision(self, commits: dict[str, dict[str, bytes]], asked: str | None) -> str:
        return next(reversed(commits), "") if asked in (None, "main") else asked  # type: ignore[return-value]

    def answer(self, content: object, code: int = 200) -> None:
        data = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, form: str, *values: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def test_skills_are_published_to_a_hub_loaded_from_it_and_measured_again(
    endpoint: str, small_runs: dict[str, Path], tmp_path: Path
) -> None:
    preset = tmp_path / "tiny.yaml"
    preset.write_text(yaml.safe_dump({**TINY, "evaluation": {"episodes": 2}}))
    variables = {**os.environ, "PYTHONPATH": str(PROJECT), "HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "cache"),
                 "HF_TOKEN": "hf_none", "HF_HUB_DISABLE_XET": "1", "no_proxy": "127.0.0.1"}  # fmt: skip

    def run(*words: object, code: int = 0) -> str:
        command = [sys.executable, *map(str, words)]
        done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    publish = ("-m", "disk", "publish", small_runs["disk"], "--configfile", preset, "--out", "published", "--to")
    said = run(*publish, "hf://me/point")
    [pinned] = re.findall(r"(hf://me/point@[0-9a-f]{40}): uploaded and compared", said)
    measured = run("-m", "disk", "evaluate", pinned)
    assert "Hausdorff" in measured
    card = Hub.repositories["me/point"][pinned.partition("@")[2]]["README.md"].decode()
    assert "model-index" in yaml.safe_load(card.split("---\n")[1])

    Hub.repositories["me/point"]["f" * 40] = {"README.md": b"---\n---\n", "skills.safetensors": b"not skills"}
    assert "skills" in run("-c", f"import disk; print(len(disk.load('{pinned}')), 'skills')")
    refused = run("-m", "disk", "evaluate", "hf://me/point", code=1)  # the newest revision, which is damaged
    assert "Traceback" not in refused
    assert "hf://me/nobody: cannot be fetched" in run("-m", "disk", "evaluate", "hf://me/nobody", code=1)
    assert "expected an address like hf://owner/name" in run(*publish, "hf://nowhere", code=1)
