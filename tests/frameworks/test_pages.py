"""The programs of docs/users/frameworks as they are printed there: started as the page says, killed once, recovered."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.e2e.cli_cluster import DevCluster, Typed, exits, until

from holdfast.dev import processes

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs/users/frameworks"
FENCE = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
pytestmark = [pytest.mark.frameworks, pytest.mark.require("torch")]


@dataclass(frozen=True)
class Page:
    """Files and command lines of a page."""

    files: dict[str, str]
    commands: list[str]


def page(name: str) -> Page:
    blocks = FENCE.findall((PAGES / f"{name}.md").read_text())
    files = {title: text for _, title, text in blocks if title}
    return Page(files, [text.strip() for language, title, text in blocks if language == "sh" and not title])


def lay(name: str, folder: Path) -> list[str]:
    """Write the page's files into a folder; returns its commands."""
    found = page(name)
    files = found.files if "train.py" in found.files else page("pytorch").files | found.files
    for title, text in files.items():
        (folder / title).write_text(text)
    return found.commands


CASES = [
    ("pytorch", 0, "torch"),
    ("torchrun", 0, "torch"),
    ("torchrun", 1, "torch"),
    ("lightning", 0, "frameworks"),
    ("accelerate", 0, "frameworks"),
    ("transformers", 0, "frameworks"),
    ("deepspeed", 0, "deepspeed"),
    ("jax", 0, "frameworks"),
    ("mpi", 0, "frameworks"),
    ("tensorflow", 0, "tensorflow"),
]
"""A page, which of its commands, and the environment that it runs in, which is a part of the machine."""
BEGAN = re.compile(r"(?m)^(?:\[\S+ r0\] )?2 ranks, from (.+)$")
MOVED = re.compile(r"(?m)^(?:\[\S+ r0\] )?(?:step|epoch|\{'loss').*$")


def test_every_page_s_command_is_run() -> None:
    written = [
        (path.stem, index) for path in sorted(PAGES.glob("*.md")) for index in range(len(page(path.stem).commands))
    ]
    assert sorted((name, index) for name, index, _ in CASES) == written


@pytest.mark.parametrize(
    ("name", "index", "environment"),
    [pytest.param(*case, marks=pytest.mark.require(case[-1])) for case in CASES],
    ids=str,
)
def test_a_killed_rank_is_recovered_and_the_training_goes_on(
    cluster: DevCluster, tmp_path: Path, name: str, index: int, environment: str
) -> None:
    command = lay(name, tmp_path)[index]
    if name == "mpi":
        (tmp_path / "mpi_gang.py").write_bytes((ROOT / "examples/frameworks/mpi_gang.py").read_bytes())
    out, err = tmp_path / "said.out", tmp_path / "said.err"
    # The two hosts are one machine: else each rank would take all of its cores.
    words = shlex.split(command.replace("holdfast run ", "holdfast run --env OMP_NUM_THREADS=1 ", 1))
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen(
            words,
            cwd=tmp_path,
            env=cluster.env | {"PATH": path_of(environment)},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
        )
    run = Typed(process, out, err)
    try:
        until(lambda: len(MOVED.findall(out.read_text())) > 4 or process.poll() is not None, 400, "for progress")
        assert process.poll() is None, f"over before it could be killed\n{out.read_text()}{err.read_text()}"
        (job,) = re.findall(r"^holdfast: job (\S+):", err.read_text(), re.MULTILINE)
        os.kill(rank_to_kill(cluster, job), signal.SIGKILL)
        assert run.ends(150) == 0, out.read_text() + err.read_text()
    finally:
        process.kill()
        process.wait()
    ended = cluster.job(job)
    assert (ended["state"], ended["attempt"], ended["generation"]) == ("JOB_STATE_SUCCEEDED", 1, 2)
    assert {worker["host"] for worker in ended["workers"]} == {"host-0", "host-1"}
    assert [each["reason"] for each in exits(ended).values()] == ["COMPLETED"] * 2
    first, second = BEGAN.findall(out.read_text())
    assert first.split()[-1] in ("0", "beginning"), first
    assert re.search(r"[1-9]\d*", second), f"began with the first step: {second}"


def path_of(environment: str) -> str:
    """PATH with the programs of an environment first; ``torch`` is the tests' own."""
    own = f"{ROOT / '.venv/bin'}:{os.environ['PATH']}"
    return own if environment == "torch" else f"{ROOT / 'build/frameworks' / environment / 'bin'}:{own}"


def rank_to_kill(cluster: DevCluster, job: str) -> int:
    """The youngest process of a job that runs its program, on the second worker's host where that can be told."""
    ranks = {pid: host for pid, host in cluster.ranks(job).items() if is_rank(processes.arguments(pid))}
    assert len(ranks) >= 2, ranks
    return max(ranks, key=lambda pid: (ranks[pid] == "host-1", pid))


def is_rank(words: list[str] | tuple[str, ...]) -> bool:
    """Whether a command line is Python's with the program, rather than that of a launcher."""
    return (
        len(words) > 1
        and "python" in words[0]
        and words[-1] == "train.py"
        and all(word.startswith("-") for word in words[1:-1])
    )


@pytest.mark.require("openmpi")
def test_open_mpi_starts_processes_on_every_worker(cluster: DevCluster, tmp_path: Path) -> None:
    (tmp_path / "mpi_gang.py").write_bytes((ROOT / "examples/frameworks/mpi_gang.py").read_bytes())
    as_root = ("--env", "OMPI_ALLOW_RUN_AS_ROOT=1", "--env", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
    program = ("python", "mpi_gang.py", "--slots", "2", "mpirun", "sh", "-c", "echo on $HOLDFAST_HOST")
    done = cluster.holdfast(
        *("run", "--replicas", "2", "--max-restarts", "0", *as_root, "--", *program),
        cwd=tmp_path,
        env={"PATH": path_of("openmpi")},
        timeout=120,
    )
    assert sorted(re.findall(r"on (host-\d)", done.stdout)) == ["host-0", "host-0", "host-1", "host-1"]
