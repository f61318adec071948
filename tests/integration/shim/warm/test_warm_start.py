"""A program can't tell a warm start from a cold one, and what is parked for one is never taken for work."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.shim.warm.warm_jobs import HOLD, Job, Shim, children, gone, package, parked, waiting

FACTS = """
import atexit, gc, json, locale, resource, signal, stat, sys, threading, warnings
def facts():
    main = sys.modules["__main__"]
    fds = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            kind = os.fstat(int(fd))
        except OSError:
            continue
        fds[fd] = [stat.S_IFMT(kind.st_mode), os.get_inheritable(int(fd))]
    return {
        "argv": sys.argv, "orig_argv": getattr(sys, "orig_argv", None),
        "path": sys.path, "flags": str(sys.flags), "fds": fds,
        "main": sorted(str(name) for name in vars(main)),
        "spec": str(main.__spec__), "file": str(vars(main).get("__file__")),
        "environ": {n: v for n, v in os.environ.items() if n != "HOLDFAST_GENERATION"}, "cwd": os.getcwd(),
        "handlers": [str(signal.getsignal(n)).split(" at ")[0] for n in sorted(signal.valid_signals())],
        "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())), "umask": os.umask(0o077),
        "threads": [t.name for t in threading.enumerate()], "tasks": len(os.listdir("/proc/self/task")),
        "main_thread": threading.main_thread().ident == threading.get_ident(),
        "main_task": threading.main_thread().native_id == os.getpid(),
        "leads": os.getpgid(0) == os.getpid(), "session": os.getsid(0) == os.getppid(),
        "nice": os.getpriority(os.PRIO_PROCESS, 0), "policy": os.sched_getscheduler(0),
        "oom": open("/proc/self/oom_score_adj").read(), "uid": os.getresuid(), "groups": os.getgroups(),
        "limits": [resource.getrlimit(n) for n in range(16)], "affinity": sorted(os.sched_getaffinity(0)),
        "stdin": sys.stdin.read(), "streams": [str(s).replace("0x", "") for s in (sys.stdin, sys.stdout, sys.stderr)],
        "line_buffering": [sys.stdout.line_buffering, sys.stderr.line_buffering],
        "finders": [str(getattr(f, "__name__", type(f))) for f in sys.meta_path],
        "hooked": [n for n in ("sitecustomize", "usercustomize") if n in sys.modules],
        "filters": [str(f) for f in warnings.filters], "gc": [gc.isenabled(), gc.get_threshold()],
        "locale": locale.setlocale(locale.LC_ALL), "hash": hash("holdfast"), "builtin": sorted(dir(__builtins__)),
        "status": [l for l in open("/proc/self/status") if l.split(":")[0] in
                   ("NoNewPrivs", "SigBlk", "SigIgn", "SigCgt", "CapEff", "CapBnd", "Seccomp", "CoreDumping")],
    }
print(json.dumps(facts(), sort_keys=True, indent=1))
"""


def forms(tmp_path: Path, program: str) -> dict[str, list[str]]:
    """The same program as a script, a module and a command."""
    (tmp_path / "prog.py").write_text(program)
    return {
        "script": ["-u", str(tmp_path / "prog.py"), "--lr", "0.1"],
        "module": ["-m", "prog", "--lr", "0.1"],
        "command": ["-c", program, "--lr", "0.1"],
    }


@pytest.mark.parametrize("form", ["script", "module", "command"])
def test_program_sees_the_same(hasty: Callable[..., Shim], tmp_path: Path, form: str) -> None:
    shim = hasty()
    argv = forms(shim.out, "import threading\n" + HOLD + FACTS)[form]
    warm, cold = Job(shim, *argv, ranks=2, PYTHONHASHSEED="7").both()
    for rank in (0, 1):
        assert plain(warm[rank][1]) == plain(cold[rank][1])
        assert (warm[rank][0], warm[rank][2]) == (cold[rank][0], cold[rank][2])
        assert '"argv"' in warm[rank][1]


def plain(text: str) -> list[str]:
    """Lines without what differs between any two runs."""
    return re.sub("0x[0-9a-f]+", "0x", text).splitlines()


ENDS = {
    "code": "import sys; print('out'); sys.exit(3)",
    "words": "import sys; sys.exit('enough')",
    "exception": "def f(x):\n    return 1 / x\nprint(1)\nf(0)",
    "interrupt": "raise KeyboardInterrupt",
    "crash": "import os, signal; print('unseen', end=''); os.kill(os.getpid(), signal.SIGSEGV)",
    "killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "at once": "import os; os._exit(70)",
    "atexit": "import atexit, sys; atexit.register(print, 'last'); print('first'); sys.exit(0)",
    "thread": "import threading\ndef f():\n    raise OSError('in a thread')\n"
    "t = threading.Thread(target=f, name='t'); t.start(); t.join()",
    "child": "import subprocess, sys\n"
    "subprocess.run([sys.executable, '-c', 'import os, sys; print(sys.path, sorted(os.environ))'], check=True)",
    "pool": "import multiprocessing as mp, sys\nif __name__ == '__main__':\n    sys.stdout.flush()\n"
    "    for how in ('fork', 'spawn'):\n"
    "        with mp.get_context(how).Pool(2) as pool: print(pool.map(abs, [-1, -2]))",
}


@pytest.mark.parametrize("end", ENDS)
def test_program_ends_the_same(hasty: Callable[..., Shim], end: str) -> None:
    shim = hasty()
    program = shim.out / "prog.py"
    program.write_text(HOLD + ENDS[end])
    warm, cold = Job(shim, str(program), PYTHONFAULTHANDLER="1").both()
    assert plain(warm[0][2]) == plain(cold[0][2])
    assert warm[0][:2] == cold[0][:2]


def test_ranks_draw_different_numbers(hasty: Callable[..., Shim]) -> None:
    program = (
        "import random, uuid, tempfile, secrets\n"
        + HOLD
        + "print(random.random(), uuid.uuid4(), secrets.token_hex())"
    )
    warm, _ = Job(hasty(), "-c", program, ranks=3).both()
    drawn = [rank[1].split() for rank in warm.values()]
    assert all(len({each[n] for each in drawn}) == 3 for n in range(3))


# -- what can't be imported ahead


DANGERS = {
    "starts a thread": "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
    "starts a process": "import subprocess\nchild = subprocess.Popen(['sleep', '600'])",
    "leaves socket open": "import socket\nkept = socket.socket()",
    "leaves pipe open": "import os\nkept = os.pipe()",
    "leaves anon_inode open": "import select\nkept = select.epoll()",
    "reads RANK": "import os\nrank = os.environ.get('RANK')",
    "reads MASTER_PORT": "import os\nif 'MASTER_PORT' in os.environ: pass",
    "asks for its pid": "import os\nrun = os.getpid()",
    "raises SystemExit": "import sys, traceback\n"
    "if any(f.f_code.co_name == '_park' for f, _ in traceback.walk_stack(None)): sys.exit(5)",
}


@pytest.mark.parametrize("danger", DANGERS)
def test_a_package_that_a_fork_would_break_is_left_out_and_named(hasty: Callable[..., Shim], danger: str) -> None:
    shim = hasty()
    path = package(shim, "risky", DANGERS[danger])
    package(shim, "sound", "value = 5")
    job = Job(
        shim, "-c", "import json, risky, sound\n" + HOLD + "print(sound.value)", PYTHONPATH=path, MASTER_PORT="7"
    )
    said = job.park()
    assert said["ranks"] == 1
    assert f"left out: risky {danger}" in said["message"]
    job.stop(1, another=True)
    assert job.run(2, warm={})[0][:2] == (0, "5\n")


def test_packages_can_be_left_out_and_named_by_the_job(hasty: Callable[..., Shim]) -> None:
    shim = hasty()
    path = package(shim, "slow", "import os; print('slow', os.getpid())")
    (shim.out / "mine.py").write_text("print('mine', open('/proc/self/stat').read().split()[0])")
    program = shim.out / "prog.py"
    program.write_text("import slow, mine, os\n" + HOLD + "print(os.getpid())")
    job = Job(shim, str(program), PYTHONPATH=path)
    assert job.park({"never": ["slow"], "preload": ["mine"]})["ranks"] == 1
    job.stop(1, another=True)
    (mine, slow, own) = job.run(2, warm={})[0][1].splitlines()
    assert slow.split()[1] == own  # imported by the program
    assert mine.split()[1] != own  # imported ahead: by the process that the rank was forked from


COLD = {
    "is not Python": ["/bin/sh", "-c", "sleep 600"],
    "Python is given no program": [sys.executable],
    "-I leaves out": [sys.executable, "-I", "-c", "import time; time.sleep(600)"],
    "-uE leaves out": [sys.executable, "-uE", "-c", "import time; time.sleep(600)"],
}


@pytest.mark.parametrize("why", COLD)
def test_other_commands_start_cold_and_say_why(hasty: Callable[..., Shim], why: str) -> None:
    shim = hasty()
    shim.launch(1, shim.rank(*COLD[why]), warm={})
    said = shim.until("warm")[-1]
    assert (said["ranks"], said["generation"]) == (0, 1)
    assert why in said["message"]


# -- changed since


@pytest.mark.parametrize("change", ["command", "environment", "package", "generation", "new variable"])
def test_what_has_changed_since_starts_cold_and_is_named(hasty: Callable[..., Shim], change: str) -> None:
    shim = hasty()
    path = package(shim, "sound", "value = 5")
    job = Job(shim, "-c", "import sound\n" + HOLD + "print(sound.value)", PYTHONPATH=path, LR="1")
    assert job.park()["ranks"] == 1
    job.stop(1, another=True)
    generation, why = 2, ""
    match change:
        case "command":
            job.argv, why = (*job.argv, "more"), "its command has changed"
        case "environment":
            job.env, why = {**job.env, "LR": "2"}, "LR has changed"
        case "new variable":
            job.env, why = {**job.env, "SEED": "2"}, "SEED has changed"
        case "package":
            package(shim, "another", "")
            why = f"{path} has changed since"
        case "generation":
            generation, why = 3, "it was prepared for generation 2"
    job.launch(generation, warm={})
    said = shim.until("exited")
    assert [m["message"] for m in said if m["ev"] == "warm"] == [f"started cold: {why}"]
    assert not any(m.get("warm") for m in said if m["ev"] == "started")
    assert said[-1]["status"] == 0
    assert shim.output(generation=generation) == "5\n"


# -- what is parked is no work


def test_a_stop_ends_what_is_parked_before_it_is_answered(hasty: Callable[..., Shim]) -> None:
    shim, job = waiting(hasty)
    keeper, pids = parked(shim, 2)
    job.stop(1, another=False)
    assert children(shim.process.pid) == []
    assert not any(Path(f"/proc/{pid}").exists() for pid in (keeper, *pids))


def test_what_is_parked_is_kept_for_the_next_generation_and_ended_when_it_does_not_come(
    hasty: Callable[..., Shim],
) -> None:
    shim, job = waiting(hasty)
    keeper, pids = parked(shim, 2)
    job.stop(1, another=True)
    assert parked(shim, 2) == (keeper, pids)
    job.stop(1, another=False)
    assert children(shim.process.pid) == []


def test_a_generation_that_ends_by_itself_is_not_called_empty_while_its_successor_may_come(
    hasty: Callable[..., Shim],
) -> None:
    shim, job = waiting(hasty)
    keeper, pids = parked(shim, 2)
    for pid in children(shim.process.pid)[:2]:
        os.kill(pid, signal.SIGKILL)
    assert [shim.until("exited")[-1]["status"] for _ in range(2)] == [9, 9]
    with pytest.raises(TimeoutError):
        shim.receive(0.5)
    job.stop(1, another=True)
    assert parked(shim, 2) == (keeper, pids)


def test_without_an_order_what_is_parked_is_ended_after_a_while(hasty: Callable[..., Shim]) -> None:
    shim = hasty("warm_starts.HELD_S = 0.5")
    job = Job(shim, "-c", HOLD)
    assert job.park()["ranks"] == 1
    _, pids = parked(shim, 1)
    os.kill(children(shim.process.pid)[0], signal.SIGKILL)
    shim.until("empty")
    assert gone(pids)


def test_parked_processes_are_out_of_a_stops_way(hasty: Callable[..., Shim]) -> None:
    shim = hasty()
    program = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + HOLD + "time.sleep(600)"
    job = Job(shim, "-c", program, ranks=2)
    assert job.park()["ranks"] == 2
    keeper, pids = parked(shim, 2)
    shim.send(op="stop", generation=1, grace_s=0.3, reason="STOPPED", another_follows=True)
    assert {m["status"] for m in shim.until("empty") if m["ev"] == "exited"} == {9}
    assert parked(shim, 2) == (keeper, pids)


@pytest.mark.parametrize("which", ["keeper", "rank"])
def test_a_parked_process_that_is_killed_costs_the_warm_start_alone(hasty: Callable[..., Shim], which: str) -> None:
    shim, job = waiting(hasty)
    ranks = children(shim.process.pid)[:2]
    keeper, pids = parked(shim, 2)
    os.kill(keeper if which == "keeper" else pids[0], signal.SIGKILL)
    assert gone(pids[:1])  # killed in the middle of a release it would cost its own rank's warm start alone
    if which == "keeper":
        assert "has ended" in shim.until("warm")[-1]["message"]
        assert gone(pids)
    assert children(shim.process.pid)[:2] == ranks
    job.stop(1, another=True)
    job.launch(2, warm={})
    said = shim.until("started")
    assert not said[-1].get("warm")
    while not any("cold" in m["message"] for m in said if m["ev"] == "warm"):
        said += shim.until("warm")  # after the starts, where some of the parked processes were released
    assert gone(pids)


def test_a_shim_that_is_killed_takes_what_is_parked_with_it(hasty: Callable[..., Shim]) -> None:
    shim, _ = waiting(hasty)
    ranks = children(shim.process.pid)[:2]
    keeper, pids = parked(shim, 2)
    shim.process.kill()
    shim.wait()
    try:
        assert gone([keeper, *pids])
    finally:
        for pid in ranks:
            os.kill(pid, signal.SIGKILL)


def test_a_process_that_imports_is_killed_and_the_rank_does_not_notice(
    hasty: Callable[..., Shim], eventually: Callable[[Callable[[], bool]], None]
) -> None:
    shim = hasty()
    path = package(shim, "slow", "import os, time\nif 'HOLDFAST_RUN' not in os.environ: time.sleep(600)")
    job = Job(shim, "-c", "import slow\n" + HOLD, PYTHONPATH=path, HOLDFAST_RUN="1")
    job.launch(1, warm={})
    rank = shim.until("started")[-1]["pid"]
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        below = [child for each in children(shim.process.pid) if each != rank for child in children(each)]
        if below and b"HOLDFAST_WARM" in Path(f"/proc/{below[0]}/environ").read_bytes():
            break
        time.sleep(0.02)
    os.kill(below[0], signal.SIGKILL)
    said = shim.until("warm")[-1]
    assert said["message"] == "the next start is cold: its imports did not come to an end"
    eventually(lambda: children(shim.process.pid) == [rank])


def test_a_job_that_does_not_ask_has_no_trace_of_it(hasty: Callable[..., Shim]) -> None:
    shim = hasty("def no(*_): raise SystemExit\nimports.Learner.__init__ = parked_ranks.ParkedRanks.__init__ = no")
    shim.launch(
        1, shim.python("import os, sys; print(sorted(os.environ), os.listdir('/proc/self/fd'), sys.meta_path)")
    )
    said = shim.until("empty")
    assert [m["ev"] for m in said] == ["started", "exited", "empty"]
    assert "HOLDFAST_WARM" not in shim.output()
    assert "PYTHONPATH" not in shim.output()


def test_a_new_connection_hears_what_is_prepared(hasty: Callable[..., Shim]) -> None:
    shim, _ = waiting(hasty)
    shim.connect()
    assert shim.until("warm")[-1]["ranks"] == 2


@pytest.mark.require("root", "mount")
def test_parked_ranks_have_the_next_generations_dev_shm(hasty: Callable[..., Shim]) -> None:
    shim = hasty()
    program = "import os; open('/dev/shm/of-' + os.environ['HOLDFAST_GENERATION'], 'w').close()\n" + HOLD
    program += "print(os.listdir('/dev/shm'), os.readlink('/proc/self/ns/ipc'))"
    job = Job(shim, "-c", program)
    assert job.park(private_shm=True)["ranks"] == 1
    first = os.readlink(f"/proc/{children(shim.process.pid)[0]}/ns/ipc")
    _, (pid,) = parked(shim, 1)
    second = os.readlink(f"/proc/{pid}/ns/ipc")
    assert second not in (first, os.readlink("/proc/self/ns/ipc"))
    job.stop(1, another=True)
    job.launch(2, warm={}, private_shm=True)
    assert shim.until("started")[-1]["warm"]
    shim.until("exited")
    assert shim.output(generation=2).split() == ["['of-2']", second]


@pytest.mark.require("root", "mount")
def test_workers_of_a_job_are_parked_in_the_same_dev_shm(hasty: Callable[..., Shim], tmp_path: Path) -> None:
    shims = [hasty(), hasty(directory=tmp_path / "other")]
    jobs = [Job(shim, "-c", HOLD + "time.sleep(600)") for shim in shims]
    for job in jobs:
        assert job.park(private_shm=True)["ranks"] == 1
    pids = [parked(shim, 1)[1][0] for shim in shims]
    assert len({os.readlink(f"/proc/{pid}/ns/{kind}") for pid in pids for kind in ("mnt", "ipc")}) == 2
    for job in jobs:
        job.stop(1, another=True)
    for job, pid in zip(jobs, pids, strict=True):
        job.launch(2, warm={}, private_shm=True)
        started = job.shim.until("started")[-1]
        assert (started["warm"], started["pid"]) == (True, pid)
