"""Evidence of PyTorch DDP over gloo, two ranks, in each kind of hang that the example can be told to have."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from tests.support.rank_gang import free_port

from holdfast._session.reports import WorkerId
from holdfast.hang.evidence.evidence import Evidence, diagnosis
from holdfast_agent.core.launch.environment import HostFacts, WorkerUser
from holdfast_agent.core.worker.states import Running
from holdfast_agent.core.worker.worker import Worker
from holdfast_agent.gpu.reader import SimulatedSource
from holdfast_agent.shell.evidence import Examiner, Limits

TRAIN = Path(__file__).parents[4] / "examples" / "ddp_torch" / "train.py"
pytestmark = [pytest.mark.anyio, pytest.mark.require("torch", "ptrace")]


@contextlib.contextmanager
def ranks_that_hang(folder: Path, kind: str) -> Iterator[dict[int, int]]:
    """Rank to pid of a gang whose rank 1 hangs at step 12, once both train: to look at them earlier is dear."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "TORCHELASTIC_"))}
    env |= {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(TRAIN), "--hang-rank", "1", "--hang-step", "12", "--hang-kind", kind]
    gang = [
        subprocess.Popen(
            [*command, "--checkpoint-dir", str(folder)],
            env=env | {"RANK": str(rank), "LOCAL_RANK": str(rank), "CUDA_VISIBLE_DEVICES": ""},
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        for rank in (0, 1)
    ]
    try:
        for process in gang:
            assert process.stdout is not None
            assert any(b"from step" in line for line in process.stdout), "a rank has ended"
        yield {rank: process.pid for rank, process in enumerate(gang)}
    finally:
        for process in gang:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@pytest.mark.parametrize(
    ("kind", "guilty"),
    [
        ("sleep", "is in train.py:"),
        ("stop", "is in train.py:"),
        ("mismatch", "waits in barrier"),
        ("queue", "`dataloader.__next__`"),
    ],
)
async def test_the_hanging_rank_and_what_its_peer_waits_in_are_named(
    tmp_path: Path, kind: str, guilty: str
) -> None:
    facts = HostFacts("host-0", str(tmp_path), str(tmp_path), WorkerUser("ada", "/", "/bin/sh"), 2)
    examiner = Examiner(lambda: facts, SimulatedSource("h", 0), limits=Limits(1.0))
    with ranks_that_hang(tmp_path, kind) as pids, anyio.fail_after(120):
        worker = Worker(WorkerId("job-1", "workerpool0-0"), Running(1), pids=pids)
        while True:
            found = await examiner.diagnose(worker, 1, [1], native=True)
            said = diagnosis([found], 0.0)
            # A busy machine may leave a child no time for its look.
            seen = kind != "queue" or _child_functions(found)
            if seen and said.same and "rank 0 waits in backward" in said.words and guilty in said.words:
                break
            await anyio.sleep(0.5)
    assert _phrase_of_rank_1(said.words).startswith("workerpool0-0 rank 1 ")
    assert guilty in _phrase_of_rank_1(said.words)
    if kind == "queue":
        assert _child_functions(found)[0] == "__getitem__"
    if kind == "mismatch":
        assert any("c10d::Work::wait" in frame for frame in _native_functions(found))


def _phrase_of_rank_1(words: str) -> str:
    phrases = words.removeprefix("mismatched collectives: ").split("; ")
    return next(phrase for phrase in phrases if "rank 1" in phrase)


def _child_functions(found: Evidence) -> list[str]:
    """Of the main thread of the suspect's first child."""
    last = next((child.last for child in found.ranks[1].children), None)
    main = None if last is None else last.python.main
    return [] if main is None else [frame.function for frame in main.frames]


def _native_functions(found: Evidence) -> list[str]:
    """Of all threads of the suspect, Python and C."""
    native = found.ranks[1].process.looks[-1].native
    assert native is not None
    return [frame.function for thread in native.threads for frame in thread.frames]
