"""The package's metadata: extras that are named as they are declared, and a lock that holds all of them."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions

import pytest
from conftest import PROJECT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from disk import lazy
from disk.config import DEFAULT_FILES
from disk.errors import ExtraError

METADATA = tomllib.loads((PROJECT / "pyproject.toml").read_text())
EXTRAS = METADATA["project"]["optional-dependencies"]
LOCKS = [(PROJECT / name).read_text() for name in ("requirements.lock", "requirements-torch.lock")]


def pins(text: str) -> dict[str, Requirement]:
    """What a lock installs on this machine."""
    lines = [line.removesuffix("\\").strip() for line in text.splitlines() if line and line[0].isalnum()]
    return {
        canonicalize_name(each.name): each
        for each in map(Requirement, lines)
        if not each.marker or each.marker.evaluate()
    }


def test_a_missing_module_is_named_with_the_extra_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(lazy.EXTRAS, "workflow", ("not_installed",))
    with pytest.raises(
        ExtraError, match=r"^not_installed is not installed: run pip install 'disk-skills\[workflow\]'$"
    ):
        lazy.need("not_installed")
    assert lazy.missing("something_else") is None, "which no extra brings"
    assert "workflow: not_installed is not installed: run pip install" in lazy.extras()
    assert "tracking: installed" in lazy.extras()


def test_the_modules_of_an_extra_are_those_that_it_declares() -> None:
    owners = {module: {canonicalize_name(name) for name in names} for module, names in packages_distributions().items()}
    for extra, modules in lazy.EXTRAS.items():
        declared = {canonicalize_name(Requirement(line).name) for line in EXTRAS[extra]} - {"disk-skills"}
        assert all(owners[module] & declared for module in modules), extra
        assert declared <= set().union(*(owners[module] for module in modules)), extra
    assert Requirement(EXTRAS["all"][0]).extras == set(lazy.EXTRAS)


def test_the_lock_holds_every_requirement_with_a_hash_and_no_address() -> None:
    locked = pins(LOCKS[0]) | pins(LOCKS[1])
    declared = [
        *METADATA["project"]["dependencies"],
        *(line for extra in (*lazy.EXTRAS, "dev") for line in EXTRAS[extra]),
    ]
    for line in declared:
        wanted = Requirement(line)
        if wanted.name != "disk-skills":
            pin = locked[canonicalize_name(wanted.name)]
            [version] = [each.version for each in pin.specifier]
            assert wanted.specifier.contains(version), f"{line}: the lock has {version}: run make lock"
    for text in LOCKS:
        assert "://" not in text
        packages = re.split(r"\n(?=[a-z0-9])", text)
        assert all("--hash=sha256:" in package for package in packages)


def test_this_environment_is_the_locks() -> None:
    wrong = []
    for name, pin in pins(LOCKS[0]).items():
        try:
            found = distribution(name).version
        except PackageNotFoundError:
            found = "missing"
        if f"=={found}" != str(pin.specifier):
            wrong.append(f"{name}: {found}, expected {pin.specifier}")
    assert not wrong, f"run make setup, or make lock after a change of pyproject.toml: {wrong}"


def test_make_setup_installs_the_torch_whose_bytes_are_promised() -> None:
    [promised] = METADATA["tool"]["uv"]["constraint-dependencies"]
    assert f"--no-deps {promised}\n" in (PROJECT / "Makefile").read_text()
    assert str(pins(LOCKS[1])["torch"]) == promised


def test_the_defaults_inside_the_package_are_the_files_that_users_edit() -> None:
    assert [path.parent for path in DEFAULT_FILES] == [PROJECT / "config"] * 3
