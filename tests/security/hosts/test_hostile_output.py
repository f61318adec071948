"""Output files that a rank makes into something else: sparse, endless, not regular, growing. Reads stay bounded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.integration.agent.conftest import Agent, agent, controller, settings
from tests.integration.agent.controller import Controller
from tests.integration.agent.daemon.test_logs import finished
from tests.integration.agent.launch.test_launch import launch

from holdfast._session.reports import WorkerId
from holdfast.training import progress_file
from holdfast.v1 import job_pb2
from holdfast_agent.core.launch.environment import HostFacts, WorkerUser, log_paths
from holdfast_agent.shell.evidence.last_words import last_words
from holdfast_agent.shell.output import archive_copy, log_index
from holdfast_agent.shell.output.archive import Order, copy
from holdfast_agent.shell.output.log_reader import TAIL_MOST_BYTES, LogFile, Wanted
from holdfast_agent.shim import error_file
from holdfast_agent.shim.last_lines import tail

__all__ = ["agent", "controller", "settings"]

HUGE = 8 << 40
ME = WorkerUser("me", "/", "/bin/sh")
KEY = WorkerId("job-1", "workerpool0-0")
SPARSE = f"import os; print('first', flush=True); os.write(2, b'other\\n'); os.ftruncate(1, {HUGE})"


@contextmanager
def patient(seconds: float) -> Iterator[None]:
    """Far above what a bounded read takes, far below an unbounded one."""

    def late(*_: object) -> None:
        raise AssertionError(f"it takes longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def huge(path: Path) -> None:
    try:
        with path.open("wb") as file:
            file.write(b"first\n")
            file.truncate(HUGE)
    except OSError:
        pytest.skip("this file system has no files of that size")


def sparse_with_an_end(path: Path) -> None:
    huge(path)
    with path.open("ab") as file:
        file.write(b"last\n")


def one_line(path: Path) -> None:
    with path.open("wb") as file:
        for _ in range(128):
            file.write(b"x" * (1 << 20))


def not_text(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\0\x1b[2J" * 100_000)


def fifo(path: Path) -> None:
    os.mkfifo(path)


def link_to_zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


def zeros(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root makes a device")
    os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5))


def folder(path: Path) -> None:
    path.mkdir()


KINDS: list[Callable[[Path], None]] = [
    *(huge, sparse_with_an_end, one_line, not_text, fifo, link_to_zeros, zeros, folder),
]


def read_tail(path: Path) -> None:
    try:
        file = LogFile(str(path), Wanted(tail_lines=10, since_ms=1))
    except OSError:
        return
    taken = 0
    for _ in range(4 * TAIL_MOST_BYTES >> 20):
        _, data = file.read(1 << 20)
        taken += len(data)
        if not data:
            break
    assert taken <= TAIL_MOST_BYTES


def read_last_words(path: Path) -> None:
    facts = HostFacts(name="h", log_dir=str(path.parent.parent.parent), scratch_dir="/", user=ME, cpu_count=1)
    assert log_paths(facts, KEY, 1, 0)[0] == str(path)
    words, _ = last_words(facts, KEY, 1, 0)
    assert sum(map(len, words)) < 1 << 20


def read_stderr_tail(path: Path) -> None:
    assert sum(map(len, tail(os.fsencode(path)))) <= 4096


def read_error_file(path: Path) -> None:
    assert error_file.raised(os.fsencode(path)) == ""


def read_progress(path: Path) -> None:
    assert progress_file.read(str(path), 0) is None


def read_index(path: Path) -> None:
    path.rename(f"{path}.idx")
    path.write_bytes(b"first\n")
    os.utime(path, (2**31, 2**31))
    assert log_index.written_by(str(path), 5) >= 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "read", [read_tail, read_last_words, read_stderr_tail, read_error_file, read_progress, read_index]
)
def test_whatever_lies_in_a_files_place_is_read_within_bounds(
    kind: Callable[[Path], None], read: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "job-1/g1/workerpool0-0.r0.out"
    path.parent.mkdir(parents=True)
    kind(path)
    with patient(20):
        read(path)


@pytest.mark.parametrize("kind", KINDS)
def test_an_archive_takes_no_more_than_the_disk_holds(kind: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "logs/g1/workerpool0-0.r0.out"
    path.parent.mkdir(parents=True)
    kind(path)
    with patient(60):
        copy(str(tmp_path / "logs"), Order(KEY.job, KEY.worker, str(tmp_path / "out")), ME)
    there = tmp_path / "out/rank-logs/job-1/g1/workerpool0-0.r0.out"
    assert not there.exists() or there.stat().st_size <= path.stat().st_blocks * 512


def test_an_archive_that_is_all_holes_ends(tmp_path: Path) -> None:
    path = tmp_path / "logs/g1/workerpool0-0.r0.out"
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        for number in range(20_000):
            os.pwrite(file.fileno(), b"x", number * 1 << 20)
    with patient(60):
        copy(str(tmp_path / "logs"), Order(KEY.job, KEY.worker, str(tmp_path / "out")), ME)
    index = tmp_path / "out/rank-logs/job-1/g1/.workerpool0-0.r0.out.idx"
    assert index.stat().st_size <= archive_copy.INDEX_MOST_BYTES + 100


def test_words_of_a_rank_that_prints_without_end_are_read_once(tmp_path: Path) -> None:
    path = tmp_path / "job-1/g1/workerpool0-0.r0.out"
    path.parent.mkdir(parents=True)
    path.touch()
    over = threading.Event()

    def print_on() -> None:
        with path.open("ab", buffering=0) as file:
            while not over.is_set() and file.tell() < 1 << 30:
                file.write(b"x" * (1 << 16) + b"\n")

    writer = threading.Thread(target=print_on)
    writer.start()
    try:
        with patient(20):
            for _ in range(20):
                read_last_words(path)
    finally:
        over.set()
        writer.join()


async def test_a_sparse_log_holds_up_no_other_and_not_the_agents_end(agent: Agent, controller: Controller) -> None:
    await finished(controller, [sys.executable, "-c", SPARSE])
    if (agent.logs / "job-1/g1/workerpool0-0.r0.out").stat().st_size != HUGE:
        pytest.skip("this file system has no files of that size")
    for number in range(1, 9):
        await controller.open(number, tail_lines=10)
    text, problem = await controller.read(20, tail_lines=10, stream=job_pb2.LOG_STREAM_STDERR)
    assert (text, problem) == ("other\n", "")
    await controller.until(lambda: all(number in controller.ends for number in range(1, 9)), "the end of each")
    assert all(len(controller.text(number)) <= TAIL_MOST_BYTES for number in range(1, 9))
    for number in range(30, 40):
        await controller.open(number, tail_lines=10)
    began = time.monotonic()
    assert agent.kill(signal.SIGTERM) == 0
    assert time.monotonic() - began < 20


async def test_one_job_can_not_take_all_readings(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    await controller.until(lambda: controller.transfer, "a transfer stream")
    await launch(controller, ["sleep", "600"])
    await controller.state("RUNNING")
    for number in range(1, 301):
        await controller.open(number, follow=True)
    _, problem = await controller.read(400)
    assert "256 streams of this job already" in problem
    _, problem = await controller.read(401, job_id="job-2")
    assert "has no output" in problem


def test_a_folder_of_a_million_names_is_not_read_whole(tmp_path: Path) -> None:
    from holdfast_agent.shell.sampling import worker

    for number in range(3 * worker.PROGRESS_MOST):
        (tmp_path / f"r{number}.progress").touch()
    assert len(worker._names(str(tmp_path))) == worker.PROGRESS_MOST


def test_the_last_lines_of_a_huge_archive_are_looked_for_within_bounds(tmp_path: Path) -> None:
    path = tmp_path / "out/rank-logs/job-1/g1/workerpool0-0.r0.out"
    path.parent.mkdir(parents=True)
    huge(path)
    words = f'["read", "{tmp_path}/out", "job-1", "g1", "{path.name}", "0", "10", "-", "-"]'
    with patient(60):
        done = subprocess.run(
            [sys.executable, "-I", "-S", archive_copy.__file__],
            env={archive_copy.WORDS: words},
            capture_output=True,
        )
    assert done.returncode == 0 and len(done.stdout) < 2 * TAIL_MOST_BYTES
