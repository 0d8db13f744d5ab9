"""Write files whole, and read them with care.

Every file is written under a temporary name in its own folder, flushed to the disk and renamed. A crash leaves the old
file or the new one, never half of one. Tensors are safetensors with a single metadata key, `disk`, that holds sorted
JSON: the library would write several keys in random order.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from disk.errors import ArtefactError

if TYPE_CHECKING:
    from torch import Tensor  # the cheap rules read and write files without loading torch


UNSIGNED = ("checksum", "seconds", "cpu_seconds", "projection_seconds", "commit", "code_hash")
"""Keys of a stats.json that its checksum leaves out."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a refusal of a full, read-only or lost disk into an error that names the file and the remedy."""
    try:
        yield
    except OSError as error:
        raise ArtefactError(
            f"{path}: cannot be written: {error.strerror or error}; make room or make it writable, "
            "then run the same command again"
        ) from error


@contextmanager
def whole(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing. It appears under its name only when all of it is on the disk."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, 0o666 & ~_umask())
            os.replace(name, path)
            _flush_directory(path.parent)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def _flush_directory(path: Path) -> None:
    """Flush a rename to the disk, not only the file's content."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sweep(directory: Path, name: str = "") -> None:
    """Remove the temporary files of killed processes: those of one file, or all.

    Call this only as the one process that writes there: with the lease in hand, or as the only writer of the file.
    """
    for path in directory.glob(f".{name}*.tmp"):
        path.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def save_text(path: Path, text: str) -> None:
    with whole(path) as file:
        file.write(text.encode())


def save_json(path: Path, content: Mapping[str, Any]) -> None:
    save_text(path, json.dumps(content, indent=2, sort_keys=True) + "\n")


def load_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except OSError as error:
        raise ArtefactError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ArtefactError(f"{path}: is damaged ({error}); delete it and run the same command again") from None
    if not isinstance(content, dict):
        raise ArtefactError(f"{path}: expected a JSON object; delete it and run the same command again")
    return content


def save_stats(path: Path, content: Mapping[str, Any]) -> None:
    """Write a stats.json, with a checksum of its content."""
    save_json(path, {**content, "checksum": _stats_fingerprint(content)})


def load_stats(path: Path) -> dict[str, Any]:
    """Read a stats.json. Refuse one whose content does not match its checksum."""
    content = load_json(path)
    expected, found = content.get("checksum"), _stats_fingerprint(content)
    if found != expected:
        raise ArtefactError(
            f"{path}: is damaged (checksum {found}, expected {expected}); restore it, or delete it and run the same "
            "command again"
        )
    return content


def _stats_fingerprint(content: Mapping[str, Any]) -> str:
    # Two trainings that give the same skill have the same checksum, so times and versions are left out.
    lasting = {key: value for key, value in content.items() if key not in UNSIGNED}
    return hashlib.sha256(json.dumps(lasting, sort_keys=True).encode()).hexdigest()


def save_tensors(path: Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    """Write tensors and their metadata, with a checksum of both."""
    from safetensors.torch import save

    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    signed = {**meta, "checksum": _fingerprint(plain, meta)}
    with whole(path) as file:
        file.write(save(plain, metadata={"disk": json.dumps(signed, sort_keys=True)}))


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read tensors and metadata. Refuse a damaged file, with its name and the remedy."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            # Copies: the mapped file's alignment could change the last bits of a product.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
            meta = json.loads((file.metadata() or {}).get("disk", "null"))
    except FileNotFoundError:
        raise ArtefactError(f"{path}: does not exist") from None
    except (SafetensorError, OSError, ValueError, RuntimeError, TypeError, AttributeError) as error:
        raise ArtefactError(f"{path}: is damaged ({error}); delete it and run the same command again") from None
    if not isinstance(meta, dict):
        raise ArtefactError(f"{path}: has no `disk` metadata, so this project did not write it")
    expected, found = meta.pop("checksum", None), _fingerprint(tensors, meta)
    if found != expected:
        raise ArtefactError(
            f"{path}: is damaged (checksum {found}, expected {expected}); delete it and run the same command again"
        )
    return tensors, meta


def _fingerprint(tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(meta, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()[:16]


def inside(folder: Path, name: str) -> Path:
    """Return the path of a file in a folder. Its name was read from a file, so refuse one that leads elsewhere."""
    path = Path(name)
    if path.is_absolute() or ".." in path.parts:
        raise ArtefactError(f"{folder}: lists {name!r}, which is not in it; delete it and run the same command again")
    return folder / path


def load_rows(path: Path) -> list[str]:
    """Read the lines of a CSV file. Refuse one whose end is cut off, or whose rows differ in length."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ArtefactError(f"{path}: cannot be read: {error}; delete it and run the same command again") from None
    rows = text.splitlines()
    if not text.endswith("\n") or len({row.count(",") for row in rows}) > 1:
        raise ArtefactError(f"{path}: is damaged: a row is cut off; delete it and run the same command again")
    return rows


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ArtefactError(f"{path}: cannot be read: {error.strerror}") from None
