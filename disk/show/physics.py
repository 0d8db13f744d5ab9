"""MuJoCo for browsers: DeepMind's npm package, fetched once by the ordinary npm client and kept in the user's cache.

Pages carry a copy of it, so that neither npm nor Node is needed to open them. Both files are checked against the
checksums below: what runs in a page is what was tested.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from disk.errors import ArtefactError
from disk.storage.files import whole

PACKAGE, VERSION = "@mujoco/mujoco", "3.14.0"
CHECKSUMS = {
    "mujoco.js": "bc6980e4bc5ee5f809a6cabde0743798637e113d333f9e85124714d42be1ccae",
    "mujoco.wasm": "2d380f1070a556c3003b4a7c7c10c98a5f61db4e91815de1075ec478e9487e76",
}
HINT = "run `python -m disk live --fetch` (needs npm, once), or make setup on a machine that has npm"


@dataclass(frozen=True)
class Physics:
    """The two parts of the package that a page holds."""

    script: str
    """An ES module with one default export, `loadMujoco`."""
    wasm: bytes
    """Gzipped."""


def cache() -> Path:
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "disk-skills" / f"mujoco-{VERSION}"


def available() -> bool:
    return all((cache() / name).exists() for name in ("mujoco.js", "mujoco.wasm.gz"))


def load() -> Physics:
    """Read the cached package; raise ArtefactError with the command to run if it is missing or damaged."""
    if not available():
        raise ArtefactError(f"MuJoCo for browsers ({PACKAGE} {VERSION}) is not on this machine: {HINT}")
    script, wasm = ((cache() / name).read_bytes() for name in ("mujoco.js", "mujoco.wasm.gz"))
    try:
        _check("mujoco.js", script)
        _check("mujoco.wasm", gzip.decompress(wasm))
    except (ArtefactError, OSError, EOFError, zlib.error) as error:
        raise ArtefactError(f"{cache()}: is damaged ({error}): {HINT}") from None
    return Physics(script.decode(), wasm)


def fetch() -> str:
    """Download the package with npm into the cache, unless it is there and whole. Say what was done."""
    with suppress(ArtefactError):
        load()
        return f"{cache()}: MuJoCo {VERSION} for browsers is there"
    npm = shutil.which("npm")
    if npm is None:
        raise ArtefactError(f"npm is not installed, so {PACKAGE} cannot be fetched; pages with live skills need it")
    with tempfile.TemporaryDirectory() as folder:
        command = [npm, "pack", "--silent", f"{PACKAGE}@{VERSION}"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603
        archives = list(Path(folder).glob("*.tgz"))
        if done.returncode or not archives:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise ArtefactError(f"npm could not fetch {PACKAGE} {VERSION}: {last}")
        with tarfile.open(archives[0]) as archive:
            files = {name: _member(archive, name) for name in CHECKSUMS}
    for name, content in files.items():
        _check(name, content)
    _save("mujoco.js", files["mujoco.js"])
    _save("mujoco.wasm.gz", gzip.compress(files["mujoco.wasm"], mtime=0))
    return f"{cache()}: fetched MuJoCo {VERSION} for browsers"


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    try:
        file = archive.extractfile(f"package/{name}")
    except KeyError:
        file = None
    if file is None:
        raise ArtefactError(f"{PACKAGE} {VERSION}: has no {name}")
    return file.read()


def _check(name: str, content: bytes) -> None:
    found = hashlib.sha256(content).hexdigest()
    if found != CHECKSUMS[name]:
        raise ArtefactError(f"{PACKAGE} {VERSION}: {name} has checksum {found[:12]}…, expected {CHECKSUMS[name][:12]}…")


def _save(name: str, content: bytes) -> None:
    with whole(cache() / name) as file:
        file.write(content)
