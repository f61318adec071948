"""Directories for a dev cluster that another user has prepared: nothing in them is opened, and none is taken."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.dev import starting, stopping
from holdfast.errors import ConfigError

NEIGHBOUR = 65_534
RECORD = 'port = 7001\nport_ranges = ["21000-21099"]\ngpus = [1]\n'


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="prepared-"))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def victim(tmp_path: Path, folder: Path) -> Path:
    """A file of ours, to which the lock and the next record lead."""
    file = tmp_path / "victim"
    file.write_text("precious")
    for name in ("dev.lock", "dev.new"):
        (folder / name).symlink_to(file)
    return file


@pytest.mark.require("root")
@pytest.mark.parametrize("act", [starting.start, stopping.stop])
def test_a_directory_of_another_users_is_refused_though_root_could_use_it(
    folder: Path, victim: Path, act: Callable[[Path], None]
) -> None:
    (folder / "dev.toml").write_text(RECORD)
    os.chown(folder, NEIGHBOUR, NEIGHBOUR)
    with pytest.raises(ConfigError, match=f"belongs to another user, of uid {NEIGHBOUR}"):
        act(folder)
    assert victim.read_text() == "precious"
    assert {path.name for path in folder.iterdir()} == {"dev.lock", "dev.new", "dev.toml"}


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770])
def test_what_others_could_have_put_into_a_directory_of_ones_own_is_not_used(
    folder: Path, victim: Path, mode: int
) -> None:
    folder.chmod(mode)
    with pytest.raises(ConfigError, match=r"is not empty, and others may write to it\. .*chmod go-w"):
        starting.start(folder)
    assert victim.read_text() == "precious"
