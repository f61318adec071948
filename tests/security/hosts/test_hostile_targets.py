"""Ranks that are made to mislead what reads their stacks and their processes: evidence comes in time, within bounds."""

from __future__ import annotations

import stat
import struct
import sys
import time
from pathlib import Path

import anyio
import pytest
from tests.integration.agent.hangs.test_evidence import Gang, examine, gang, only, state, until

from holdfast.hang.evidence.evidence import Look
from holdfast_agent.shell.evidence import tools

__all__ = ["gang"]
pytestmark = pytest.mark.anyio
BUDGET_S = 30.0

# The first thread ends, others go on: its process is a zombie that never goes.
HALF_DEAD = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
print("ready")
ctypes.CDLL(None).pthread_exit(None)
"""
# Children that come and go all the while, up to 100 at a time.
FORKS = """
import os, time
print("ready")
alive = set()
while True:
    while len(alive) < 100:
        pid = os.fork()
        if not pid:
            time.sleep(0.02)
            os._exit(0)
        alive.add(pid)
    alive.discard(os.wait()[0])
"""
# As many mappings as the kernel allows, each said to be an interpreter.
MAPPINGS = """
import ctypes, mmap, sys, time
held, page = [], mmap.PAGESIZE
with open(sys.argv[1], "wb+") as file:
    file.truncate(2 * page)
    try:
        for number in range(30_000):
            held.append(mmap.mmap(file.fileno(), page, flags=mmap.MAP_SHARED, offset=page * (number % 2)))
    except OSError:
        pass
print("ready")
time.sleep(600)
"""
SLEEPS = "import time\nprint('ready')\ntime.sleep(600)"


def lying(folder: Path, sections: int) -> str:
    """A copy of the interpreter, a tebibyte of holes long, that says to have so many sections."""
    path = folder / "python3.11"
    content = bytearray(Path(sys.executable).resolve().read_bytes())
    at = 1 << 34
    struct.pack_into("<Q", content, 0x28, at)  # e_shoff
    struct.pack_into("<HHH", content, 0x3A, 64, 0, 0)  # e_shentsize, e_shnum: see the first section, e_shstrndx
    path.write_bytes(content)
    with path.open("r+b") as file:
        file.truncate(1 << 40)
        file.seek(at + 0x20)
        file.write(struct.pack("<Q", sections))  # sh_size of the first section
    path.chmod(stat.S_IRWXU)
    return str(path)


async def looked_at(gang: Gang, *, native: bool = True) -> tuple[Look, float]:
    """The last look at the only rank, and how long all of it took."""
    began = time.monotonic()
    rank = only(await examine(gang, 0, tools=tools.Tools(deadline_s=1.0), native=native, budget_s=BUDGET_S))
    return rank.process.looks[-1], time.monotonic() - began


@pytest.mark.require("ptrace")
async def test_a_program_that_lies_about_its_size_costs_its_reader_no_more_than_its_bound(
    gang: Gang, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that believes it takes 64 bytes for each section it is told of, four times its bound here."""
    monkeypatch.setattr(tools, "MEMORY_BYTES", 512 << 20)
    gang.start(lying(tmp_path, (2 << 30) // 64), "-c", SLEEPS, PYTHONHOME=sys.base_prefix)
    until(lambda: "ready" in gang.out(0))
    look, took_s = await looked_at(gang)
    assert took_s < BUDGET_S
    assert look.vector.state == "S", "the rank itself is as it was"


@pytest.mark.parametrize("name", ["py-spy", "pystack"])
async def test_a_reader_of_memory_has_a_bound_and_goes_before_any_rank(
    gang: Gang, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """However it is misled. The kernel, when a host runs out of memory, picks it first."""
    monkeypatch.setattr(tools, "MEMORY_BYTES", 256 << 20)
    told = tmp_path / "told"
    greedy = tmp_path / name
    greedy.write_text(
        f"#!{sys.executable}\n"
        "import time\n"
        "held = []\n"
        "try:\n"
        "    while len(held) < 64:\n"
        "        held.append(bytearray(16 << 20))\n"
        "except MemoryError:\n"
        "    pass\n"
        f"open({str(told)!r}, 'a').write(f'{{len(held)}} ' + open('/proc/self/oom_score_adj').read())\n"
        "raise SystemExit(1)\n"
    )
    greedy.chmod(stat.S_IRWXU)
    gang.python(SLEEPS)
    found = tools.Tools(search=str(tmp_path))
    await found.run([str(greedy)])
    held, score = told.read_text().split()
    assert 4 <= int(held) < 16
    assert int(score) == 1000


@pytest.mark.require("ptrace")
async def test_a_process_whose_first_thread_has_ended_is_looked_at_and_told_of(gang: Gang) -> None:
    process = gang.python(HALF_DEAD)
    until(lambda: state(process.pid) == "Z")
    look, took_s = await looked_at(gang)
    assert took_s < BUDGET_S
    assert look.vector.state == "Z"
    assert look.python.problem == "the process has ended"


@pytest.mark.require("ptrace")
async def test_a_rank_that_forks_without_end_is_looked_at_in_time(gang: Gang) -> None:
    gang.python(FORKS)
    rank = only(await examine(gang, 0, native=True, budget_s=BUDGET_S))
    assert len(rank.process.looks) == 2
    assert rank.process.looks[-1].vector.state
    assert len(rank.children) <= 100


@pytest.mark.require("ptrace")
async def test_a_rank_of_so_many_mappings_is_looked_at_in_time(gang: Gang, tmp_path: Path) -> None:
    gang.start(sys.executable, "-c", MAPPINGS, str(tmp_path / "libpython3.11.so.1.0"), PYTHONUNBUFFERED="1")
    until(lambda: "ready" in gang.out(0))
    look, took_s = await looked_at(gang)
    assert took_s < BUDGET_S
    assert look.vector.state == "S"
    assert gang.ranks[0].poll() is None


async def test_a_job_whose_ranks_make_each_reader_take_all_its_time_holds_up_no_other_jobs() -> None:
    """Those of one job are dumped again and again, as its owner may ask; another job hangs meanwhile."""
    found, ended = tools.Tools(deadline_s=0.3), []

    async def read(job: str, seconds: str) -> None:
        tools.ASKED_FOR.set(job)
        await found.run(["sleep", seconds])
        ended.append(job)

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(read, "hostile", "600")
        await anyio.sleep(0.1)
        for _ in range(3):
            tasks.start_soon(read, "hangs", "0")
    assert ended[-1] == "hostile"
    last = max(at for at, job in enumerate(ended) if job == "hangs")
    assert last < 2 + 3 + 3, "each waits for the end of one reader at most"
