"""A parked process begins its rank's program with the shim's last word, or never; what it can't be is started cold."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.shim.conftest import FAILPOINTS
from tests.integration.shim.test_stop import TRACER
from tests.integration.shim.warm.warm_jobs import HOLD, Job, Shim, children, gone, launched, parked, waiting

from holdfast_agent.shell.shims.shim_files import Started
from holdfast_agent.shim import shim as shim_program

CAP_SYS_RESOURCE = 24
Eventually = Callable[[Callable[[], bool]], None]


# -- a job that does not ask


REPORT = """
at = {path!r}
real = shim.Shim.quit
def quit(self):
    real(self)
    open(at, "w").write(" ".join(sorted(sys.modules)))
shim.Shim.quit = quit
"""


def test_a_shim_loads_nothing_of_warm_starts_before_a_launch_asks(
    start_shim: Callable[..., Shim], tmp_path: Path
) -> None:
    loaded = []
    orders: tuple[dict[str, object], ...] = ({}, {"warm": {}})
    for number, fields in enumerate(orders):
        path = tmp_path / f"modules{number}"
        program = tmp_path / f"shim{number}.py"
        folder = str(Path(shim_program.__file__).parents[2])
        start = f"import sys\nsys.path.append({folder!r})\nfrom holdfast_agent.shim import shim\n"
        program.write_text(start + REPORT.format(path=str(path)) + "shim.run(int(sys.argv[1]))\n")
        shim = start_shim(tmp_path / f"w{number}", program=str(program))
        shim.assign()
        shim.launch(1, shim.rank(sys.executable, "-c", "", generation=number + 1), **fields)
        shim.until("empty")
        shim.send(op="quit")
        assert shim.wait() == 0
        loaded.append(set(path.read_text().split()))
    ours = {f"holdfast_agent.shim.warm.{name}" for name in ("imports", "release", "parked_ranks", "warm_starts")}
    assert loaded[1] - loaded[0] >= ours
    assert not any("warm" in each for each in loaded[0])


SEEN = """
import json, os, sys
print(json.dumps([dict(os.environ), open('/proc/self/environ').read(), sys.path,
                  [getattr(f, '__name__', type(f).__name__) for f in sys.meta_path],
                  sorted(sys.modules), os.listdir('/proc/self/fd'), open('/proc/self/cmdline').read()]))
"""


def test_ranks_of_a_job_that_does_not_ask_find_what_a_process_without_a_shim_finds(shim: Shim) -> None:
    order = shim.rank(sys.executable, "-c", SEEN)
    shim.launch(1, order)
    assert [message["ev"] for message in shim.until("empty")] == ["started", "exited", "empty"]
    alone = subprocess.run(
        order["argv"], env=order["env"], cwd=order["cwd"], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert json.loads(shim.output()) == json.loads(alone.stdout)


# -- what must be as it was


@pytest.mark.require("root")
def test_priority_is_that_of_the_shim_at_the_launch(hasty: Callable[..., Shim]) -> None:
    shim = hasty()
    program = "import os\n" + HOLD + "print(os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0))"
    job = Job(shim, "-c", program + "\nprint(open('/proc/self/oom_score_adj').read())")
    assert job.park()["ranks"] == 1
    rank = children(shim.process.pid)[0]
    _, (pid,) = parked(shim, 1)
    assert (os.getpriority(os.PRIO_PROCESS, pid), os.sched_getscheduler(pid)) == (19, os.SCHED_IDLE)
    may_be_lowered = int(status_of(pid)["CapEff"], 16) >> CAP_SYS_RESOURCE & 1
    score = [Path(f"/proc/{each}/oom_score_adj").read_text() for each in (rank, pid)]
    assert score[1] == ("1000\n" if may_be_lowered else score[0])
    nice = min(19, os.getpriority(os.PRIO_PROCESS, 0) + 1)
    os.setpriority(os.PRIO_PROCESS, shim.process.pid, nice)
    warm, _ = launched(job)
    assert warm == ["started warm"]
    assert shim.output(generation=2).split() == [str(nice), str(os.SCHED_OTHER), score[0].strip()]


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def one_processor(shim: Shim, job: Job) -> str:
    os.sched_setaffinity(shim.process.pid, {min(os.sched_getaffinity(0))})
    return "Cpus_allowed"


def fewer_files(shim: Shim, job: Job) -> str:
    resource.prlimit(shim.process.pid, resource.RLIMIT_NOFILE, (500, 500))
    return "limits"


def other_directory(shim: Shim, job: Job) -> str:
    (shim.out / "elsewhere").mkdir()
    job.cwd = str(shim.out / "elsewhere")
    return "its directory"


def other_dump(shim: Shim, job: Job) -> str:
    Path(f"/proc/{shim.process.pid}/coredump_filter").write_text("0x1")
    return "coredump_filter"


@pytest.mark.parametrize("change", [one_processor, fewer_files, other_directory, other_dump])
def test_what_a_fresh_process_would_inherit_otherwise_is_named(
    hasty: Callable[..., Shim], change: Callable[[Shim, Job], str]
) -> None:
    shim = hasty()
    job = Job(shim, "-c", HOLD + "print(os.getcwd())", ranks=2)
    assert job.park()["ranks"] == 2
    _, pids = parked(shim, 2)
    name = change(shim, job)
    warm, said = launched(job)
    assert warm == [f"started cold: {name} has changed"]
    assert not any(message.get("warm") for message in said)
    assert [message["status"] for message in said if message["ev"] == "exited"] == [0, 0]
    assert gone(pids)


def test_a_module_that_was_edited_is_named(hasty: Callable[..., Shim]) -> None:
    shim = hasty()
    (shim.out / "mine.py").write_text("value = 1")
    program = shim.out / "prog.py"
    program.write_text("import mine\n" + HOLD + "print(mine.value)")
    job = Job(shim, str(program))
    assert job.park({"preload": ["mine"]})["ranks"] == 1
    (shim.out / "mine.py").write_text("value = 22")
    warm, _ = launched(job)
    assert warm == [f"started cold: {shim.out}/mine.py has changed since"]
    assert shim.output(generation=2) == "22\n"


def test_one_rank_that_starts_cold_is_counted(hasty: Callable[..., Shim]) -> None:
    shim, job = waiting(hasty)
    _, pids = parked(shim, 2)
    os.kill(pids[1], signal.SIGSTOP)
    job.argv = ("-c", HOLD + "time.sleep(600)")
    job.stop(1, another=True)
    job.launch(2, warm={})
    said = shim.until("warm")
    started = {message["rank"]: message for message in said if message["ev"] == "started"}
    assert (started[0].get("warm"), started[1].get("warm")) == (True, None)
    assert started[0]["pid"] == pids[0]
    words = "1 of 2 ranks started warm, started cold: a parked process has not answered within 2 s"
    assert said[-1]["message"] == words
    assert gone(pids[1:])


def test_what_stops_a_cold_rank_is_said_of_a_warm_one_as_soon(hasty: Callable[..., Shim]) -> None:
    shim = hasty()
    job = Job(shim, "-c", HOLD)
    assert job.park()["ranks"] == 1
    job.cwd = str(shim.out / "missing")
    warm, said = launched(job)
    assert warm == ["started cold: it can't be handed over"]  # not by the time that a parked process has
    exited = said[-1]
    assert (exited["reason"], exited["status"]) == ("CANNOT_START", None)
    assert exited["message"].startswith(f"cannot change to {shim.out}/missing")


def test_restarts_in_a_row_leave_no_descriptor_and_no_process(hasty: Callable[..., Shim]) -> None:
    shim = hasty()
    program = "import os, time\nprint(os.environ['HOLDFAST_GENERATION'], flush=True)\ntime.sleep(600)"
    job = Job(shim, "-c", program, ranks=2)
    assert job.park()["ranks"] == 2
    held = []
    for generation in range(2, 12):
        _, pids = parked(shim, 2)
        job.stop(generation - 1, another=True)
        job.launch(generation, warm={})
        said = shim.until("warm")
        assert said[-1]["message"] == "started warm"
        assert [message["pid"] for message in said if message["ev"] == "started"] == pids
        assert shim.until("warm")[-1]["ranks"] == 2
        assert len(children(shim.process.pid)) == 3  # two ranks and the keeper
        held.append(len(os.listdir(f"/proc/{shim.process.pid}/fd")))
    assert held[-1] == held[0]


def test_a_hash_seed_of_each_ranks_own_is_started_cold(hasty: Callable[..., Shim]) -> None:
    shim = hasty()
    orders = []
    for rank in (0, 1):
        order = shim.rank(sys.executable, "-c", HOLD, rank=rank)
        order["env"] = {**order["env"], "HOLDFAST_GENERATION": "1", "PYTHONHASHSEED": str(rank)}
        orders.append(order)
    shim.launch(1, *orders, warm={})
    assert shim.until("warm")[-1]["message"] == "starts cold: PYTHONHASHSEED differs between its ranks"


@pytest.mark.require("root")
def test_a_parked_process_that_outlives_kill_is_reported_until_it_is_gone(hasty: Callable[..., Shim]) -> None:
    shim, job = waiting(hasty, ranks=1)
    _, (pid,) = parked(shim, 1)
    job.stop(1, another=True)
    # A debugger keeps what it traces from its parent until it has looked at it, and this one never looks.
    tracer = subprocess.Popen([sys.executable, "-c", TRACER, str(pid)], stdout=subprocess.PIPE, text=True)
    try:
        assert tracer.stdout is not None
        assert tracer.stdout.readline() == "attached\n"
        shim.send(op="stop", generation=1, grace_s=0.0, reason="STOPPED")
        stuck = shim.expect("stuck")
        assert (stuck["generation"], stuck["pids"]) == (1, [pid])
        assert stuck["message"].startswith(f"outlive KILL, parked for the next generation: {pid} (")
    finally:
        tracer.kill()
        tracer.wait()
    shim.until("empty")


# -- deaths on the way

POINTS = [
    "shim.parked.after",
    "shim.park.before",
    "shim.keeper.before",
    "shim.keeper.after",
    "shim.fork.before",
    "shim.handover.before",
    "shim.handover.after",
    "shim.release.before",
    "shim.fork.after",
    "shim.started.before",
    "shim.release.after",
    "shim.started.after",
]
IN_A_CHILD = ("shim.park.before", "shim.handover.before", "shim.handover.after")
BEFORE_THE_WORD = POINTS[2:10]


@pytest.mark.parametrize("point", POINTS)
def test_a_death_on_the_way_leaves_no_process_and_runs_nothing_unrecorded(
    hasty: Callable[..., Shim], tmp_path: Path, point: str, strays: list[int], eventually: Eventually
) -> None:
    armed = tmp_path / "failpoints"
    armed.mkdir()
    shim = hasty(FAILPOINTS.format(folder=str(armed)))
    ran = shim.out / "ran"
    program = f"import os\nopen({str(ran)!r} + os.environ['HOLDFAST_GENERATION'], 'a').write('x')\n" + HOLD
    job = Job(shim, "-c", program)
    if point in POINTS[:2]:
        (armed / point).write_text("exit")
    job.launch(1, warm={})
    strays.append(shim.until("started")[-1]["pid"])
    if point == "shim.park.before":
        assert shim.until("warm")[-1]["message"] == "the next start is cold: its imports did not come to an end"
        eventually(lambda: children(shim.process.pid) == strays)
        return
    pids: list[int] = []
    if point not in POINTS[:2]:
        assert shim.until("warm")[-1]["ranks"] == 1
        keeper, pids = parked(shim, 1)
        pids.append(keeper)
        (armed / point).write_text("exit")
        job.stop(1, another=True)
        job.launch(2, warm={})
    if point in IN_A_CHILD:
        said = shim.until("exited")
        assert said[-1]["status"] == 0
        assert Path(f"{ran}2").read_text() == "x"
        assert gone(pids)
        return
    assert shim.wait() == -signal.SIGKILL
    if point in BEFORE_THE_WORD:
        assert gone(pids)
        assert not Path(f"{ran}2").exists()
    elif pids:
        assert any(isinstance(record, Started) for record in shim.journal(2))
        assert gone(pids)  # the program has ended by itself
        assert Path(f"{ran}2").read_text() == "x"
    assert gone([pid for pid in pids if pid not in strays])
