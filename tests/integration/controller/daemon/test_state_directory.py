"""The controller on a state directory that is cut short, full, read-only or without inodes says what to do."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.integration.controller.cluster import WITHIN_S, Controller, job
from tests.integration.controller.process import Process, ended, stub

from holdfast.v1 import cluster_pb2, job_pb2
from holdfast.v1.cluster_pb2_grpc import ClusterServiceStub
from holdfast_controller.shell.store import high_water


async def submitted(controller: Controller) -> str:
    answer = await stub(controller).CreateJob(job_pb2.CreateJobRequest(job=job()), timeout=WITHIN_S)
    return str(answer.job.id)


async def listed(controller: Controller) -> set[str]:
    answer = await stub(controller).ListJobs(job_pb2.ListJobsRequest(page_size=1000), timeout=WITHIN_S)
    return {each.id for each in answer.jobs}


async def position(controller: Controller) -> int:
    """The number of the newest event."""
    users: Any = ClusterServiceStub(controller.channel("user/ann"))
    changes = users.WatchChanges(cluster_pb2.WatchChangesRequest())
    try:
        return int((await changes.read()).cursor)
    finally:
        changes.cancel()


async def test_controller_whose_log_was_cut_ends_for_good_until_the_loss_is_accepted(daemon: Process) -> None:
    process = daemon.start()
    controller = await daemon.ready(process)
    first = await submitted(controller)
    store = daemon.root / "state/holdfast.db"
    files = store, store.with_name("holdfast.db-wal")
    earlier = [file.read_bytes() for file in files]
    second = await submitted(controller)
    newest = await position(controller)
    await until(lambda: (noted := high_water.read(store)) is not None and noted.sequence >= newest)
    process.send_signal(signal.SIGKILL)
    await ended(process)
    await controller.close()

    for file, content in zip(files, earlier, strict=True):
        file.write_bytes(content)
    for _ in range(2):
        assert await ended(daemon.start()) == 78, "the status that systemd doesn't start it again upon"
    assert "events that were acknowledged are missing" in daemon.log
    assert "Traceback" not in daemon.log

    accept = [sys.executable, "-m", "holdfast_controller", "accept-loss", "--config"]
    settings = str(daemon.root / "controller.toml")
    done = await asyncio.to_thread(subprocess.run, [*accept, settings], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "lost events. Start the controller." in done.stdout
    daemon.processes.clear()
    (daemon.root / "controller.log").rename(daemon.root / "earlier.log")
    controller = await daemon.ready(daemon.start())
    assert await listed(controller) == {first}
    assert second != first
    await controller.close()


async def test_controller_whose_store_is_gone_does_not_begin_anew_beside_what_is_left(daemon: Process) -> None:
    process = daemon.start()
    controller = await daemon.ready(process)
    await submitted(controller)
    process.send_signal(signal.SIGKILL)
    await ended(process)
    await controller.close()
    state = daemon.root / "state"
    for path in state.glob("holdfast.db*"):
        path.unlink()

    assert await ended(daemon.start()) == 78
    assert f"The store {state}/holdfast.db is gone, but {state}/secrets.key is there" in daemon.log
    assert not list(state.glob("holdfast.db*")), "nothing was made that hides the loss from the next start"

    state.rename(daemon.root / "moved")
    daemon.processes.clear()
    (daemon.root / "controller.log").rename(daemon.root / "earlier.log")
    controller = await daemon.ready(daemon.start())
    assert await listed(controller) == set()
    await controller.close()


class Small:
    """A controller whose state directory is a small file system of its own, which goes with it."""

    def __init__(self, daemon: Process, options: str) -> None:
        self._daemon = daemon
        self._state = daemon.root / "state"
        self._state.mkdir(exist_ok=True)
        mount = f'mount -t tmpfs -o {options} none {self._state} && exec "$@"'
        self.process = daemon.start("unshare", "--mount", "--propagation", "private", "sh", "-c", mount, "sh")

    async def ready(self) -> Controller:
        return await self._daemon.ready(self.process)

    @property
    def inside(self) -> Path:
        """The directory as the controller sees it."""
        return Path(f"/proc/{self.process.pid}/root{self._state}")


def fill(path: Path) -> None:
    """Write to a file until the file system is full."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


def use_up_inodes(directory: Path) -> list[Path]:
    """Make empty files until there can't be another; all of them."""
    made: list[Path] = []
    with contextlib.suppress(OSError):
        while True:
            path = directory / f"filler-{len(made)}"
            path.touch()
            made.append(path)
    return made


async def submit_on(controller: Controller) -> None:
    for _ in range(2_000):
        await submitted(controller)


@pytest.mark.require("root", "mount")
async def test_full_directory_ends_the_controller_which_says_so(daemon: Process) -> None:
    small = Small(daemon, "size=8m")
    controller = await small.ready()
    await submitted(controller)
    fill(small.inside / "filler")
    with pytest.raises(grpc.aio.AioRpcError):
        await submit_on(controller)
    assert await ended(small.process) == 1
    assert re.search("Make room where it lies|No space left on device", daemon.log)
    assert "Traceback" not in daemon.log
    await controller.close()


@pytest.mark.require("root", "mount")
async def test_read_only_directory_is_named(daemon: Process) -> None:
    small = Small(daemon, "size=8m,ro")
    assert await ended(small.process) == 1
    assert (
        f"holdfast-controller: Cannot open {daemon.root}/state/controller.lock: Read-only file system."
        in daemon.log
    )
    assert "Traceback" not in daemon.log


@pytest.mark.require("root", "mount")
async def test_without_inodes_work_goes_on_and_the_position_is_written_when_there_are_some(daemon: Process) -> None:
    small = Small(daemon, "size=64m,nr_inodes=64")
    controller = await small.ready()
    first = await submitted(controller)
    await until(lambda: any(small.inside.glob("audit*.jsonl")))
    fillers = use_up_inodes(small.inside)
    assert fillers
    held = {await submitted(controller) for _ in range(3)}
    await until(lambda: "store.position_unwritten" in daemon.log)
    store = small.inside / "holdfast.db"
    noted = high_water.read(store)
    for filler in fillers:
        filler.unlink()
    await until(lambda: high_water.read(store) != noted)
    assert await listed(controller) == {first, *held}
    await controller.close()


async def until(holds: Callable[[], bool]) -> None:
    """Wait until it does."""
    async with asyncio.timeout(WITHIN_S):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
