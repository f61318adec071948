"""The old name of the flight recorder's size: only for a torch that knows no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_agent.shim.torch_names import NEW, OLD, leave_out_old


def installed(prefix: Path, version: str, packages: str = "lib/python3.11/site-packages") -> Path:
    """A Python with this torch, as it lies on a host."""
    folder = prefix / packages / "torch"
    folder.mkdir(parents=True)
    (folder / "version.py").write_text(f"__all__ = []\n__version__ = '{version}'\ndebug = False\n")
    (prefix / "bin").mkdir(exist_ok=True)
    (prefix / "bin/python3").touch(mode=0o755)
    return prefix


def names(env: dict[str, str], command: str = "python3", *, size: str = "2000") -> set[bytes]:
    """The names that are left of both."""
    encoded = {name.encode(): value.encode() for name, value in env.items()}
    encoded |= {NEW: size.encode(), OLD: b"2000"}
    leave_out_old([command.encode()], encoded)
    return encoded.keys() & {NEW, OLD}


@pytest.mark.parametrize(
    ("version", "left"),
    [
        ("2.13.0+cpu", {NEW}),
        ("2.9.0", {NEW}),
        ("2.8.0+cu128", {NEW, OLD}),
        ("2.10.0a0+git12", {NEW}),
        ("3.0.1", {NEW}),
        ("1.13.1", {NEW, OLD}),
        ("unknown", {NEW, OLD}),
    ],
)
def test_a_torch_that_knows_the_new_name_gets_no_other(tmp_path: Path, version: str, left: set[bytes]) -> None:
    venv = installed(tmp_path / "venv", version)
    assert names({"PATH": f"/nowhere:{venv}/bin:/usr/bin"}) == left
    assert names({"PATH": "/nowhere"}, f"{venv}/bin/torchrun") == left


def test_the_first_torch_that_python_would_find_counts(tmp_path: Path) -> None:
    old, new = installed(tmp_path / "old", "2.4.0"), installed(tmp_path / "new", "2.12.0")
    assert names({"PATH": f"{old}/bin:{new}/bin"}) == {NEW, OLD}
    assert names({"PATH": f"{new}/bin:{old}/bin"}) == {NEW}
    path = {"PATH": f"{new}/bin", "PYTHONPATH": f"{tmp_path}:{old}/lib/python3.11/site-packages"}
    assert names(path) == {NEW, OLD}
    own = installed(tmp_path / "home/.local", "2.5.0")
    assert names({"PATH": f"{new}/bin", "HOME": str(own.parent)}) == {NEW, OLD}


def test_without_a_torch_and_with_sizes_that_differ_both_stay(tmp_path: Path) -> None:
    assert names({"PATH": str(tmp_path)}) == {NEW, OLD}
    venv = installed(tmp_path / "venv", "2.12.0")
    assert names({"PATH": f"{venv}/bin"}, size="7") == {NEW, OLD}
