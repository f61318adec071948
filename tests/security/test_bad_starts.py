"""Daemons that are started wrongly: refused in a sentence that says what to do, or going on as well as they can."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.integration.agent.conftest import Agent, agent, controller
from tests.integration.agent.controller import Controller, assignment

from holdfast._base import config
from holdfast.errors import ConfigError
from holdfast.settings import ClientSettings
from holdfast_agent.shell.config import Config
from holdfast_agent.shell.users import trusted_dirs
from holdfast_controller.shell.base.config import ControllerConfig

__all__ = ["agent", "controller"]
NOBODY = 65534


@pytest.fixture
def settings() -> dict[str, Any]:
    """A small disk is no fault here."""
    return {"checks": {"disk_free_mb": 0}}


@pytest.mark.parametrize(
    ("cls", "text", "words"),
    [
        (Config, "worker_usr = 'nobody'", "unknown key 'worker_usr'. Did you mean worker_user? Known keys: "),
        (Config, "[hooks]\nprologue = ['/x']", "unknown key 'hooks.prologue'. Did you mean prolog? "),
        (Config, "[packages]\nofline = true", "unknown key 'packages.ofline'. Did you mean offline? "),
        (
            ControllerConfig,
            "enrollment_listen = 'x'",
            "unknown key 'enrollment_listen'. Did you mean enrolment_listen?",
        ),
        (ControllerConfig, "[certificates]\nhosts = '1h'", "unknown key 'certificates.hosts'. Did you mean host? "),
        (ClientSettings, "controler = 'x'", "unknown key 'controler'. Did you mean controller? "),
        (ClientSettings, "qqq = 'x'", "unknown key 'qqq'. Known keys: "),
    ],
)
def test_a_misspelt_key_is_named_with_what_was_meant(
    tmp_path: Path, cls: type[object], text: str, words: str
) -> None:
    path = tmp_path / "x.toml"
    needed = {Config: "controller name state_dir log_dir ca cert key", ClientSettings: "controller ca cert key"}
    keys = needed.get(cls, "listen state_dir ca cert key cluster").split()
    path.write_text("".join(f"{key} = 'x'\n" for key in keys if not text.startswith(key)) + text + "\n")
    with pytest.raises(ConfigError) as caught:
        config.load(cls, path)
    # The misspelt key is in the file's last line.
    assert str(caught.value).startswith(f"{path}:{len(path.read_text().splitlines())}: {words}")


@pytest.mark.require("root")
@pytest.mark.parametrize(
    ("part", "uid", "gid", "mode", "words"),
    [
        ("state", NOBODY, 0, 0o755, "belongs to nobody"),
        ("", NOBODY, 0, 0o755, "belongs to nobody"),
        ("", 0, 0, 0o777, "may be written to by others"),
        ("", 0, 1000, 0o775, "may be written to by others"),
        ("state", 0, 0, 0o1777, "may be written to by others"),
        ("state", 0, 4, 0o775, "may be written to by others"),
    ],
)
def test_a_folder_that_others_could_swap_is_refused(
    tmp_path: Path, part: str, uid: int, gid: int, mode: int, words: str
) -> None:
    folder = tmp_path / "site/state"
    folder.mkdir(parents=True)
    trusted_dirs.check("state_dir", folder)
    changed = folder.parent / part
    changed.chmod(mode)
    os.chown(changed, uid, gid)
    link = tmp_path / "link"
    link.symlink_to(folder)
    for named in (folder, link):
        with pytest.raises(ConfigError) as caught:
            trusted_dirs.check("state_dir", named)
        assert f"state_dir is {named}, and {changed.resolve()} {words}" in str(caught.value)
        assert f"chown root {changed.resolve()}; chmod go-w" in str(caught.value)


@pytest.mark.require("root")
@pytest.mark.parametrize(("gid", "mode"), [(0, 0o775), (4, 0o775), (1000, 0o1777)])
def test_a_folder_below_one_of_the_systems_own_groups_is_taken(tmp_path: Path, gid: int, mode: int) -> None:
    """As /var/log is on some distributions, and /tmp everywhere."""
    folder = tmp_path / "log/holdfast"
    folder.mkdir(parents=True)
    os.chown(folder.parent, 0, gid)
    folder.parent.chmod(mode)
    trusted_dirs.check("log_dir", folder)


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """The agent's state lies on a disk that takes one more file, and no second."""
    state = tmp_path / "state"
    state.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m,nr_inodes=5", "none", str(state)], check=True, timeout=60
    )
    for name in ("workers", "packages"):
        (state / name).mkdir()
    (state / "agent.lock").touch()
    yield state
    subprocess.run(["umount", "-l", str(state)], check=True, timeout=180)


@pytest.mark.anyio
@pytest.mark.require("mount")
async def test_an_agent_whose_disk_is_full_at_its_start_says_so_and_serves_what_runs(
    full: Path, agent: Agent, controller: Controller
) -> None:
    await controller.connected()
    command = ["/bin/sh", "-c", "exit 7"]
    await controller.assign(assignment("PREPARE", command))
    refused = await controller.state("CANNOT_PREPARE")
    assert "No space left on device" in refused.message and refused.host_fault
    said = log_of(agent)
    assert "shim_pool.refill_failed" in said and "shims.log" in said and "Traceback" not in said
    await anyio.run_process(["mount", "-o", "remount,nr_inodes=1000", str(full)])
    await controller.assign(assignment("PREPARE", command, generation=2))
    prepared = await controller.state("PREPARED", generation=2)
    await controller.assign(assignment("RUN", command, prepared=prepared, generation=2))
    assert (await controller.exit(generation=2)).exit.exit_code == 7


def log_of(agent: Agent) -> str:
    return (agent.root / "agent.log").read_text()
