"""Skills on a model hub, Hugging Face or the one that HF_ENDPOINT names: `hf://owner/name`, or one revision of it."""

from __future__ import annotations

from pathlib import Path

from disk.errors import ArtefactError
from disk.lazy import need
from disk.sharing.card import CARD
from disk.storage.layout import SKILLS

PREFIX = "hf://"


def fetch(address: str) -> Path:
    """Download skills and their card, both of one revision. Return their folder in the hub's cache."""
    hub = need("huggingface_hub")
    name, _, revision = address.removeprefix(PREFIX).partition("@")
    try:
        revision = hub.HfApi().repo_info(name, revision=revision or None).sha
        return Path([hub.hf_hub_download(name, file, revision=revision) for file in (CARD, SKILLS)][-1]).parent
    except Exception as error:  # the hub, the network and the cache raise errors of their own
        raise ArtefactError(f"{address}: cannot be fetched: {_first_line(error)}") from None


def repository(address: str) -> str:
    """Return the name of the repository at an address that can be written to."""
    name = address.removeprefix(PREFIX)
    if not address.startswith(PREFIX) or "@" in name or name.count("/") != 1:
        raise ArtefactError(f"{address}: expected an address like hf://owner/name")
    return name


def push(folder: Path, address: str) -> str:
    """Upload published skills and their card, and load them back. Return their address with its revision."""
    hub, name = need("huggingface_hub"), repository(address)
    try:
        hub.HfApi().create_repo(name, exist_ok=True)
        message = "Skills and their card, written by python -m disk publish"
        done = hub.HfApi().upload_folder(
            repo_id=name, folder_path=folder, allow_patterns=[CARD, SKILLS], commit_message=message
        )
    except Exception as error:
        raise ArtefactError(f"{address}: cannot be written to: {_first_line(error)}") from None
    pinned = f"{address}@{done.oid}"
    there = fetch(pinned)
    for file in (CARD, SKILLS):
        if (there / file).read_bytes() != (folder / file).read_bytes():
            raise ArtefactError(f"{pinned}: its {file} is not the one that was sent")
    return pinned


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
