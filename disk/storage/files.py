"""Files, written whole and read with care.

Every file is written under a temporary name in its own folder, flushed to the disk and renamed, so that
a crash leaves the old file or the new one, never half of one. Tensors are safetensors with a single
metadata key, `disk`, holding sorted JSON (several keys would be written in random order).
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


BEFORE_CHECKSUMS = {
    *("skill", "mean_consistency", "mean_diversity", "alpha", "beta", "steps", "steps_saved", "collected_steps"),
    *("config_hash", "code_hash", "commit", "job", "stamp", "checksums", "seconds"),
}
"""Keys of a stats.json from before it had a checksum of its own."""
UNSIGNED = ("checksum", "seconds", "commit", "code_hash")
"""What a stats.json's checksum leaves out."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say which file a full, read-only or lost disk has refused, and what to do about it."""
    try:
        yield
    except OSError as error:
        raise ArtefactError(
            f"{path}: cannot be written: {error.strerror or error}; make room or make it writable, "
            "then run the same command again"
        ) from error


@contextmanager
def whole(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that appears under its name only when all of it is on the disk."""
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
    """Put a rename on the disk, not only the file's content."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sweep(directory: Path, name: str = "") -> None:
    """Remove what processes that were killed in the middle of a write have left, of one file or of all.

    Only for whoever is alone in writing them: with the lease in hand, or as the only one to write that file.
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
    """A stats.json, with a checksum of what it says."""
    save_json(path, {**content, "checksum": _stats_fingerprint(content)})


def load_stats(path: Path) -> dict[str, Any]:
    """A stats.json; one that was written before it had a checksum is taken as it is."""
    content = load_json(path)
    if "checksum" not in content and content.keys() <= BEFORE_CHECKSUMS:
        return content
    expected, found = content.get("checksum"), _stats_fingerprint(content)
    if found != expected:
        raise ArtefactError(
            f"{path}: is damaged (checksum {found}, expected {expected}); restore it, or delete it and run the same "
            "command again"
        )
    return content


def _stats_fingerprint(content: Mapping[str, Any]) -> str:
    # Without what may differ between two trainings that give the same skill, so that it does not differ either.
    lasting = {key: value for key, value in content.items() if key not in UNSIGNED}
    return hashlib.sha256(json.dumps(lasting, sort_keys=True).encode()).hexdigest()


def save_tensors(path: Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    """Write tensors and what is to be known of them, with a checksum of both."""
    from safetensors.torch import save

    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    signed = {**meta, "checksum": _fingerprint(plain, meta)}
    with whole(path) as file:
        file.write(save(plain, metadata={"disk": json.dumps(signed, sort_keys=True)}))


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and metadata; a damaged file is an error that names it and says what to do."""
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
    """A file of a folder whose name comes from another file, which may have been written by anybody."""
    path = Path(name)
    if path.is_absolute() or ".." in path.parts:
        raise ArtefactError(
            f"{folder}: speaks of {name!r}, which is not in it; delete it and run the same command again"
        )
    return folder / path


def checksum(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ArtefactError(f"{path}: cannot be read: {error.strerror}") from None
