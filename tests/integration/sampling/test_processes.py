"""What the sampler sees of real processes in every state."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from tests.integration.sampling.conftest import Stage

from holdfast.hang.pipeline.samples import ProcessSample, RankSample, State
from holdfast.hang.records.recording import WorkerSample


def process(sample: RankSample) -> ProcessSample:
    assert sample.process is not None, sample
    return sample.process


async def test_sleeping_rank_uses_nothing(stage: Stage) -> None:
    stage.start("time.sleep(600)")
    await stage.up()
    await stage.sampled(lambda s: bool(s.ranks[0].process), "the rank")
    before, after = process(await stage.rank()), process(await stage.rank())
    assert after.state is State.SLEEPING
    assert after.wchan
    assert before.main_switches is not None
    assert (after.cpu_s, after.main_switches) == (before.cpu_s, before.main_switches)
    assert not after.traced


async def test_spinning_rank_uses_cpu_and_its_main_threads_switches_are_its_own(stage: Stage) -> None:
    stage.start(
        "threading.Thread(target=lambda: [time.sleep(0.001) for _ in iter(int, 1)], daemon=True).start()\n"
        "signal.pause()"
    )
    await stage.up()
    first = process(await stage.rank())
    sample = await stage.sampled(lambda s: process(s.ranks[0]).cpu_s > first.cpu_s, "CPU time")
    assert (process(sample.ranks[0]).main_switches or 0) - (first.main_switches or 0) < 50


async def test_what_a_main_thread_writes_is_told_from_what_another_thread_or_a_child_does(stage: Stage) -> None:
    now = Path(stage.facts.scratch_dir) / "now"
    beat = "while True: os.write(1, b'tick\\n'); time.sleep(0.05)"
    stage.start(
        f"def run():\n    {beat}\n"
        "threading.Thread(target=run, daemon=True).start()\n"
        f"subprocess.Popen([sys.executable, '-c', {f'import os, time{chr(10)}{beat}'!r}])\n"
        f"while not os.path.exists({str(now)!r}): time.sleep(0.02)\nos.write(1, b'mine' * 100)\nsignal.pause()"
    )
    await stage.up()
    told = await stage.sampled(lambda s: s.ranks[0].children.written > 0, "the child's lines")
    quiet = process(told.ranks[0]).main_written
    later = await stage.sampled(lambda s: s.ranks[0].children.written > told.ranks[0].children.written, "more")
    assert quiet is not None and process(later.ranks[0]).main_written == quiet
    now.touch()
    wrote = await stage.sampled(lambda s: process(s.ranks[0]).main_written != quiet, "its own line")
    assert process(wrote.ranks[0]).main_written == quiet + 400


async def test_what_a_fork_writes_is_a_helpers_and_what_tee_writes_is_not(stage: Stage) -> None:
    stage.start(
        "below = subprocess.Popen(['tee', '/dev/null'], stdin=subprocess.PIPE)\n"
        "below.stdin.write(b'x' * 4000); below.stdin.flush()\n"
        "if os.fork() == 0:\n    os.write(1, b'fork' * 100)\n    time.sleep(600)\nsignal.pause()"
    )
    await stage.up()
    sample = await stage.sampled(lambda s: s.ranks[0].helpers.written > 0, "the fork's line")
    assert sample.ranks[0].helpers.written == 400


async def test_stopped_rank_and_its_continuation(stage: Stage) -> None:
    pid = stage.start("time.sleep(600)")
    await stage.up()
    os.kill(pid, signal.SIGSTOP)
    await stage.sampled(lambda s: process(s.ranks[0]).state is State.STOPPED, "a stop")
    os.kill(pid, signal.SIGCONT)
    await stage.sampled(lambda s: process(s.ranks[0]).state is State.SLEEPING, "sleep")


def is_zombie(sample: WorkerSample) -> bool:
    seen = sample.ranks[0].process
    return seen is not None and seen.state is State.ZOMBIE


async def test_zombie_then_exit_then_nothing(stage: Stage) -> None:
    stage.start("time.sleep(0.2)")
    await stage.up()
    await stage.sampled(is_zombie, "a zombie")
    assert process(await stage.rank()).state is State.ZOMBIE
    stage.ranks[0].wait()
    vanished = await stage.rank()
    assert (vanished.process, vanished.exit_code) == (None, None)
    stage.ended[0] = 0
    ended = await stage.rank()
    assert (ended.process, ended.exit_code) == (None, 0)


@pytest.mark.require("cc")
async def test_uninterruptible_rank_is_told_so(stage: Stage) -> None:
    # The parent of a vfork waits uninterruptibly until its child is another program or gone.
    program = Path(stage.facts.scratch_dir) / "vfork"
    source = program.with_suffix(".c")
    source.write_text("#include <unistd.h>\nint main(void) { if (vfork() == 0) { sleep(600); _exit(0); } }\n")
    await anyio.run_process(["cc", "-O0", "-w", "-o", str(program), str(source)])
    stage.start(command=[str(program)])
    sample = await stage.sampled(
        lambda s: s.ranks[0].process is not None and process(s.ranks[0]).state is State.DISK, "D"
    )
    assert sample.ranks[0].mount == ""


async def test_reader_of_a_pipe_that_nobody_writes_sleeps(stage: Stage) -> None:
    fifo = Path(stage.facts.scratch_dir) / "fifo"
    os.mkfifo(fifo)
    stage.start(f"os.read(os.open({str(fifo)!r}, os.O_RDWR), 1)")
    await stage.up()
    sample = await stage.sampled(lambda s: "pipe" in process(s.ranks[0]).wchan, "the pipe")
    assert process(sample.ranks[0]).state is State.SLEEPING


async def test_traced_rank_is_told_so(stage: Stage) -> None:
    pid = stage.start("time.sleep(600)")
    await stage.up()
    assert not process(await stage.rank()).traced
    seize = (
        "import ctypes, sys, time\n"
        "assert ctypes.CDLL(None, use_errno=True).ptrace(0x4206, int(sys.argv[1]), 0, 0) == 0, ctypes.get_errno()\n"
        "print(flush=True)\ntime.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", seize, str(pid)], stdout=subprocess.PIPE) as tracer:  # noqa: ASYNC220
        assert tracer.stdout is not None
        if tracer.stdout.readline() != b"\n":
            pytest.skip("this machine allows no tracing")
        assert process(await stage.rank()).traced
        tracer.kill()


async def test_children_that_burn_are_work_and_forks_are_helpers(stage: Stage) -> None:
    stage.start(
        "subprocess.Popen([sys.executable, '-c', 'while True: pass'])\n"
        "if os.fork() == 0:\n    while True: pass\n"
        "time.sleep(600)"
    )
    await stage.up()
    sample = await stage.sampled(
        lambda s: s.ranks[0].children.cpu_s > 0.2 and s.ranks[0].helpers.cpu_s > 0.2, "burning children"
    )
    assert (sample.ranks[0].children.spawned, sample.ranks[0].helpers.spawned) >= (1, 1)
    assert process(sample.ranks[0]).cpu_s < 0.5


async def test_children_shorter_than_a_look_are_seen_by_their_parents_counters(stage: Stage) -> None:
    burn = "import os; [0 for _ in range(3_000_000)]; open('burnt', 'wb').write(bytes(1 << 20))"
    stage.start(
        "sys.stdin.close(); signal.signal(10, lambda *_: None); signal.pause()\n"
        f"subprocess.run([sys.executable, '-c', {burn!r}], cwd={stage.facts.scratch_dir!r})\n"
        "os.write(1, b'done\\n')\ntime.sleep(600)"
    )
    await stage.up()
    before = await stage.rank()
    await stage.until(lambda: process_sleeps(stage.ranks[0].pid), "the pause")
    os.kill(stage.ranks[0].pid, 10)
    await stage.until(lambda: b"done" in stage.output().read_bytes(), "the child's end")
    after = await stage.rank()
    assert after.children.cpu_s - before.children.cpu_s > 0.03
    assert process(after).cpu_s - process(before).cpu_s < 0.2


def process_sleeps(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


async def test_bytes_to_storage_are_counted_once_though_a_child_wrote_them(stage: Stage) -> None:
    file = Path(stage.facts.scratch_dir) / "written"
    stage.start(
        f"child = subprocess.Popen(['dd', 'if=/dev/zero', 'of={file}', 'bs=1M', 'count=8', 'status=none'])\n"
        "child.wait(); os.write(1, b'done\\n'); time.sleep(600)"
    )
    await stage.up()
    sample = await stage.sampled(lambda s: any(line.text == "done" for line in s.lines), "the end")
    await stage.tick()
    sample = await stage.tick()
    rank = sample.ranks[0]
    written = process(rank).storage_bytes + rank.children.storage_bytes
    if written == 0:
        pytest.skip("this file system accounts for no bytes")
    assert 8 << 20 <= written < 12 << 20


async def test_ranks_behind_a_launcher_are_found_with_their_own_numbers(stage: Stage) -> None:
    folder = Path(stage.facts.scratch_dir)
    (folder / "torchrun").write_text(
        "import os, subprocess, sys, time\n"
        "argv = [sys.executable, '-c', 'import time; time.sleep(600)']\n"
        "for rank in (6, 7):\n    subprocess.Popen(argv, env={**os.environ, 'RANK': str(rank)})\n"
        "time.sleep(600)"
    )
    stage.start(command=[sys.executable, str(folder / "torchrun")])
    sample = await stage.sampled(lambda s: [rank.rank for rank in s.ranks] == [6, 7], "both ranks")
    assert all(rank.process is not None for rank in sample.ranks)


LAUNCHER = """import os, subprocess, sys, time
argv = [sys.executable, '-c', 'import time; time.sleep(600)']
first, last, size = map(int, sys.argv[1:])
for rank in range(first, last):
    subprocess.Popen(argv, env={**os.environ, 'RANK': str(rank), 'WORLD_SIZE': str(size)})
time.sleep(600)
"""


@pytest.mark.parametrize("behind", [(), ("sh", "-c", '"$@"; true', "sh")])
@pytest.mark.parametrize(("ranks", "started", "own_world"), [("0 2 2", 2, 2), ("0 2 4", 2, 0), ("0 2 2", 1, 0)])
async def test_a_world_that_is_whole_on_one_worker_of_several_is_seen(
    stage: Stage, behind: tuple[str, ...], ranks: str, started: int, own_world: int
) -> None:
    (Path(stage.facts.scratch_dir) / "torchrun").write_text(LAUNCHER)
    command = [*behind, sys.executable, f"{stage.facts.scratch_dir}/torchrun", *ranks.split()]
    stage.world_size = started
    stage.start(command=command)
    await stage.sampled(lambda s: len(s.ranks) == 2, "both ranks")
    assert (await stage.tick()).own_world == own_world


@pytest.mark.parametrize(
    ("script", "own_world"),
    [
        ("export RANK=0 WORLD_SIZE=1; exec sleep 600", 1),
        ("exec env WORLD_SIZE=1 RANK=0 sleep 600", 1),
        ("exec sleep 600", 0),
        ("PMI_RANK=0 PMI_SIZE=1 exec sleep 600", 0),
        ("export RANK=0 WORLD_SIZE=1; sleep 600; true", 1),
    ],
)
async def test_a_program_that_a_script_tells_to_be_alone_is_seen(stage: Stage, script: str, own_world: int) -> None:
    stage.world_size = 2
    pid = stage.start(command=["env", "RANK=0", "WORLD_SIZE=2", "sh", "-c", script])
    children = Path(f"/proc/{pid}/task/{pid}/children")
    command = Path(f"/proc/{pid}/cmdline")
    await stage.until(lambda: command.read_bytes().startswith(b"sleep") or children.read_text() != "", "the sleep")
    await stage.tick()
    await stage.tick()
    assert (await stage.tick()).own_world == own_world


@pytest.mark.parametrize(("option", "own_world"), [("--standalone", 1), ("--nproc-per-node", 0)])
async def test_torchrun_that_keeps_to_its_host_is_seen_before_it_has_ranks(
    stage: Stage, option: str, own_world: int
) -> None:
    script = Path(stage.facts.scratch_dir) / "torchrun"
    script.write_text("import time\nopen(__file__ + '.runs', 'w').close()\ntime.sleep(600)")
    torchrun = f"{sys.executable} {script} {option} 1 train.py"
    stage.world_size = 2
    stage.start(command=["sh", "-c", f"{torchrun}; if false; then torchrun --standalone train.py; fi"])
    await stage.sampled(
        lambda s: script.with_name("torchrun.runs").exists(), "torchrun, not the shell's fork for it"
    )
    assert (await stage.tick()).own_world == own_world


async def test_shell_in_front_of_the_training_is_no_rank(stage: Stage) -> None:
    code = "import time; x = [0] * 10\nwhile True: x.reverse()"
    stage.start(command=["sh", "-c", f"{sys.executable} -c '{code}' | tee /dev/null; true"])
    await stage.sampled(lambda s: len(s.ranks) == 1 and process(s.ranks[0]).cpu_s > 0.3, "the training's CPU time")


async def test_rank_that_ends_midway_and_its_orphans(stage: Stage) -> None:
    stage.start("if os.fork() == 0:\n    time.sleep(600)\nos._exit(3)", rank=0)
    stage.start("time.sleep(600)", rank=1)
    await stage.up(1)
    assert stage.ranks[0].wait() == 3
    sample = await stage.tick()
    assert [rank.rank for rank in sample.ranks] == [0, 1]
    assert sample.ranks[0].process is None
    assert sample.ranks[1].process is not None


async def test_pid_that_is_not_the_shims_child_is_left_alone(stage: Stage) -> None:
    stage.start("time.sleep(600)")
    await stage.up()
    stage.ranks[1] = stage.ranks[0]
    other = subprocess.Popen(  # noqa: ASYNC220
        ["sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        assert other.stdout is not None
        stranger = int(other.stdout.readline())
        stage.ranks[1] = type("Reused", (), {"pid": stranger})()
        assert (await stage.rank(1)).process is None
        assert (await stage.rank(0)).process is not None
    finally:
        del stage.ranks[1]
        os.killpg(other.pid, signal.SIGKILL)
        other.wait()
        assert other.stdout is not None
        other.stdout.close()


async def test_new_generation_starts_anew(stage: Stage) -> None:
    stage.start("time.sleep(600)")
    await stage.up()
    await stage.tick()
    stage.running = False
    await stage.sampler.tick()
    assert len(stage.samples) == 1
    stage.generation, stage.running = 2, True
    assert (await stage.tick()).generation == 2


async def test_no_descriptor_is_left(stage: Stage) -> None:
    await stage.sampler.tick()
    stage.start("time.sleep(600)")
    await stage.up()
    before = len(os.listdir("/proc/self/fd"))
    await stage.tick()
    assert len(os.listdir("/proc/self/fd")) > before
    stage.running = False
    await stage.sampler.tick()
    assert len(os.listdir("/proc/self/fd")) == before
