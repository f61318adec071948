"""What a refusal says of files: no more than the job's own account may see, though the agent is root."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.agent.desired import FACTS, desired

from holdfast._session.assignment import Phase
from holdfast_agent.core.launch.environment import WorkerUser
from holdfast_agent.shell.prepare import checks
from holdfast_agent.shell.users import fs_identity

pytestmark = pytest.mark.require("root")

NOBODY, TEAM = 65534, 4242
USER = WorkerUser("nobody", "/", "/bin/sh", NOBODY, NOBODY, (TEAM,))


@pytest.fixture
def folder() -> Iterator[Path]:
    """Open to all, as a test's own folder isn't."""
    with tempfile.TemporaryDirectory(prefix="hidden-") as made:
        Path(made).chmod(0o755)
        yield Path(made)


def said(command: str, directory: str = "") -> str:
    """The refusal of a job of that account, without the host's name."""
    wanted = desired(Phase.PREPARE)
    assert wanted.launch is not None
    task = replace(wanted.launch.task, command=(command,), working_directory=directory)
    launch = replace(wanted.launch, task=task)
    found = checks.problem(replace(wanted, launch=launch), replace(FACTS, user=USER), root_allowed=False)
    return found.removeprefix("host-0: ")


@pytest.mark.parametrize("mode", [0o700, 0o750])
def test_a_refusal_does_not_tell_what_is_in_a_folder_that_the_account_may_not_see(folder: Path, mode: int) -> None:
    private = folder / "others"
    private.mkdir(mode=mode)
    (private / "there").mkdir()
    (private / "run").touch(0o600)
    for name in ("there", "missing"):
        assert said("/bin/sh", f"{private}/{name}") == ""
    for name in ("run", "missing"):
        assert said(f"{private}/{name}") == ""
        assert said(f"{private}/{name}/../run") == ""


@pytest.mark.parametrize("owner", [(NOBODY, NOBODY), (0, TEAM)], ids=["account", "group"])
def test_what_the_account_and_its_groups_may_see_is_refused_by_name(folder: Path, owner: tuple[int, int]) -> None:
    own = folder / "own"
    own.mkdir(mode=0o750)
    os.chown(own, *owner)
    (own / "notes").touch()
    assert said("/bin/sh", f"{own}") == ""
    assert said("/bin/sh", f"{own}/missing") == f"the working directory {own}/missing does not exist."
    assert said(f"{own}/missing") == f"the command {own}/missing does not exist."
    assert said(f"{own}/notes") == f"the command {own}/notes is not an executable file."


def test_nothing_is_said_where_the_accounts_rights_cannot_be_taken(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing:
        """As for an agent without CAP_SETUID, which is not told so."""

        @staticmethod
        def setfsuid(*_: int) -> int:
            return 0

        syscall = setfsgid = setfsuid

    monkeypatch.setattr(fs_identity, "_libc", Refusing)
    assert said(f"{folder}/missing") == ""


def test_the_agent_has_roots_rights_again_afterwards(folder: Path) -> None:
    private, groups = folder / "others", os.getgroups()
    private.mkdir(mode=0o700)
    os.chown(private, TEAM, TEAM)
    (private / "run").touch(0o600)
    said("/bin/sh", f"{private}/missing")
    assert (private / "run").read_bytes() == b""
    assert os.getgroups() == groups
    (private / "made").touch()
    made = (private / "made").stat()
    assert (made.st_uid, made.st_gid) == (os.geteuid(), os.getegid())
