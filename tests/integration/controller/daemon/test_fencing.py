"""The process of a fence command: what it finds, what of its end counts, and that nothing of it is left."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from tests.e2e.cli_cluster import until

from holdfast.dev import processes
from holdfast.errors import ConfigError
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.step.actions import CallFence
from holdfast_controller.shell.base.config import FenceConfig
from holdfast_controller.shell.main.fencing import CALL, Outcome, environment, run

ENV = environment(CallFence("gpu-01", "10.0.0.1", 30.4, Wall(1_800_000_000.0)))


async def ran(script: str, within_s: float = 60.0) -> Outcome:
    return await run(["/bin/sh", "-c", script], ENV, within_s)


async def test_only_exit_status_0_is_a_proof() -> None:
    assert await ran("echo well; exit 0") == Outcome(True, "switched off by /bin/sh: well")
    assert await ran("echo why >&2; exit 3") == Outcome(False, "/bin/sh exited with 3: why")
    assert await ran("kill -TERM $$") == Outcome(False, "/bin/sh was killed by signal 15")
    gone = await run(["/no/such/fence"], ENV, 60.0)
    assert gone == Outcome(False, "/no/such/fence can't be started: No such file or directory")


async def test_it_finds_the_host_and_nothing_of_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SECRET_OF_THE_CONTROLLER", "x")
    await ran(f"env | grep -v -e ^_= -e ^PWD= -e ^SHLVL= -e ^OLDPWD= > {tmp_path}/env; pwd > {tmp_path}/cwd; cat")
    lines = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines())
    assert len(lines.pop(CALL)) == 32
    assert lines == dict(ENV)
    assert lines["HOLDFAST_DEADLINE"] == "1800000000" and lines["HOLDFAST_SILENT_S"] == "30"
    assert (tmp_path / "cwd").read_text() == "/\n"


async def test_one_that_does_not_end_is_no_proof_and_is_killed_with_its_children(tmp_path: Path) -> None:
    began = time.monotonic()
    found = await ran(f"sleep 600 & echo $! > {tmp_path}/child; echo begun; wait", within_s=3.0)
    assert found == Outcome(False, "not done within 3 s: begun")
    assert time.monotonic() - began < 60
    child = int((tmp_path / "child").read_text())
    until(lambda: child not in processes.snapshot(), 60)


@pytest.mark.parametrize("code", [0, 3])
async def test_a_child_that_leaves_its_session_neither_delays_the_answer_nor_is_left(
    tmp_path: Path, code: int
) -> None:
    began = time.monotonic()
    script = (
        f"setsid sh -c 'echo $$ > {tmp_path}/child; exec sleep 600' & until [ -s {tmp_path}/child ]; do :; done"
    )
    found = await ran(f"{script}; echo off; exit {code}", within_s=300.0)
    assert found.proven is (code == 0) and found.said.endswith(": off")
    assert time.monotonic() - began < 60, "though the child keeps the command's output open"
    child = int((tmp_path / "child").read_text())
    until(lambda: child not in processes.snapshot(), 60)


async def test_another_call_for_the_same_host_is_left_alone(tmp_path: Path) -> None:
    """Another controller of this machine may call at the same time, with the same words."""

    async def end_two() -> None:
        await asyncio.to_thread(until, (tmp_path / "lasts").exists, 60)
        assert (await ran("sleep 600 & exit 0")).proven
        assert not (await ran("sleep 600", within_s=0.2)).proven
        (tmp_path / "done").touch()

    lasts = f"touch {tmp_path}/lasts; until [ -e {tmp_path}/done ]; do sleep 0.02; done"
    found, _ = await asyncio.gather(ran(lasts), end_two())
    assert found.proven, found


async def test_of_much_output_the_end_is_kept() -> None:
    found = await ran("yes | head -c 10000000; echo; echo 'a \x1b[31mred end'; exit 1")
    assert not found.proven and "red end" in found.said and "\x1b" not in found.said and len(found.said) < 300


def test_settings_that_can_not_work_are_refused() -> None:
    with pytest.raises(ConfigError, match="absolute path"):
        FenceConfig(command=("fence",))
    with pytest.raises(ConfigError, match=r"fence\.timeout"):
        FenceConfig(command=("/fence",), timeout=0)
