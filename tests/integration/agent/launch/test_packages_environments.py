"""Environments are built once, kept, and never half there. The real uv, wheels of the tests, no index."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support import wheels

from holdfast_agent.core.launch.environment import WorkerUser
from holdfast_agent.shell.packages.as_user import EnvironmentsByUser
from holdfast_agent.shell.packages.environments import Environments, Wanted
from holdfast_agent.shell.packages.installer import tail
from holdfast_agent.shell.packages.settings import CodeProblem, Packages

USER = WorkerUser("root", "/", "/bin/sh")
PYTHON = os.path.realpath(sys.executable)


@pytest.fixture
def links(tmp_path: Path) -> Path:
    made = tmp_path / "links"
    wheels.wheel(made, "tiny")
    wheels.wheel(made, "tiny", "2.0")
    wheels.wheel(made, "other")
    return made


def environments(tmp_path: Path, user: WorkerUser = USER, **settings: Any) -> Environments:
    return of_all(tmp_path, **settings).of(user)


def of_all(tmp_path: Path, **settings: Any) -> EnvironmentsByUser:
    values = {"python": PYTHON, "find_links": (str(tmp_path / "links"),), "no_index": True, **settings}
    return EnvironmentsByUser(tmp_path / "cache", Packages(**values), {}, "/usr/bin")


def ask(environment: Path, expression: str, *modules: str) -> Any:
    code = f"import json, {', '.join(modules)}; print(json.dumps({expression}))"
    return json.loads(subprocess.check_output([environment / "bin/python", "-I", "-c", code]))


def nothing() -> None:
    raise AssertionError("it was to be there already")


def built() -> tuple[list[int], Callable[[], None]]:
    times: list[int] = []
    return times, lambda: times.append(1)


async def refusal(made: Environments, wanted: Wanted, job: str = "job") -> CodeProblem:
    with pytest.raises(CodeProblem) as caught:
        await made.get(wanted, job, lambda: None)
    return caught.value


def leftovers(tmp_path: Path) -> list[str]:
    cache = tmp_path / "cache"
    names = [path.name for path in (*cache.glob("environments/*/*"), *cache.glob("work/*"))]
    return [name for name in names if not name.endswith(".jobs")]


async def test_what_was_built_is_there_the_second_time(tmp_path: Path, links: Path) -> None:
    made, wanted = environments(tmp_path), Wanted(("tiny==1.0", "other"))
    path = await made.get(wanted, "a", lambda: None)
    assert ask(path, "[tiny.VERSION, other.VERSION]", "tiny", "other") == ["1.0", "1.0"]
    assert await made.get(wanted, "b", nothing) == path
    of_all(tmp_path).clean(["a", "b"])
    again = environments(tmp_path)
    assert await again.get(wanted, "b", nothing) == path
    assert await made.get(Wanted(("tiny==2.0",)), "b", lambda: None) != path


async def test_workers_that_come_together_build_it_once(tmp_path: Path, links: Path) -> None:
    made, (times, on_build) = environments(tmp_path), built()
    found = await asyncio.gather(*(made.get(Wanted(("tiny",)), "job", on_build) for _ in range(4)))
    assert len(set(found)) == 1
    assert times == [1]


async def test_files_count_by_what_is_in_them(tmp_path: Path, links: Path) -> None:
    file = wheels.wheel(tmp_path / "sent", "sent", extra="A = 1\n")
    made = environments(tmp_path)
    path = await made.get(Wanted((), files=((file, "digest-1"),)), "job", lambda: None)
    assert ask(path, "extra.A", "extra", "sent") == 1
    file.unlink()
    assert await made.get(Wanted((), files=((file, "digest-1"),)), "job", nothing) == path


async def test_a_file_of_the_host_is_installed_anew_when_it_has_changed(tmp_path: Path, links: Path) -> None:
    file = wheels.wheel(tmp_path / "host", "hosted", extra="A = 1\n")
    made = environments(tmp_path)
    first = await made.get(Wanted((), (file.as_uri(),)), "job", lambda: None)
    assert await made.get(Wanted((), (file.as_uri(),)), "job", nothing) == first
    wheels.wheel(tmp_path / "host", "hosted", extra="A = 22\n")
    second = await made.get(Wanted((), (file.as_uri(),)), "job", lambda: None)
    assert (ask(first, "extra.A", "extra"), ask(second, "extra.A", "extra")) == (1, 22)


async def test_requirements_that_do_not_resolve_say_so_and_leave_nothing(tmp_path: Path, links: Path) -> None:
    made = environments(tmp_path)
    problem = await refusal(made, Wanted(("tiny==3.0",)))
    assert "tiny==3.0" in problem.message
    assert "\n" not in problem.message
    assert not problem.host_fault
    assert b"No solution found" in problem.log
    assert leftovers(tmp_path) == []


async def test_a_wheel_for_another_python_is_named(tmp_path: Path, links: Path) -> None:
    file = wheels.wheel(tmp_path / "sent", "old", tag="cp27-cp27m-manylinux1_x86_64")
    problem = await refusal(environments(tmp_path), Wanted((), files=((file, "d"),)))
    assert "old" in problem.message
    assert not problem.host_fault
    assert leftovers(tmp_path) == []


async def test_one_failure_is_told_to_all_who_wait_for_it(tmp_path: Path, links: Path) -> None:
    made, (times, on_build) = environments(tmp_path), built()

    async def fails() -> None:
        with pytest.raises(CodeProblem):
            await made.get(Wanted(("nowhere",)), "job", on_build)

    await asyncio.gather(*(fails() for _ in range(4)))
    assert times == [1]


async def test_an_installation_that_takes_too_long_is_ended(tmp_path: Path, links: Path) -> None:
    file = wheels.source(
        tmp_path / "sent", "slow", f"import time; open({str(tmp_path / 'began')!r}, 'w'); time.sleep(600)"
    )
    made = environments(tmp_path, install_timeout=2.0)
    problem = await refusal(made, Wanted((), files=((file, "d"),)))
    assert "did not end within" in problem.message
    assert leftovers(tmp_path) == []


async def test_an_installation_that_is_called_off_ends_with_all_it_has_started(tmp_path: Path, links: Path) -> None:
    pid_file = tmp_path / "pid"
    body = f"import time; open({str(pid_file)!r}, 'w').write(f'{{os.getpid()}}\\n'); time.sleep(600)"
    file = wheels.source(tmp_path / "sent", "slow", body)
    made = environments(tmp_path)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.get, Wanted((), files=((file, "d"),)), "job", lambda: None)
        await until(lambda: pid_file.exists() and pid_file.read_text().endswith("\n"))
        tasks.cancel_scope.cancel()
    pid = int(pid_file.read_text())
    await until(lambda: dead(pid))
    assert leftovers(tmp_path) == []


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(1200):
        if condition():
            return
        await anyio.sleep(0.05)
    raise AssertionError("waited in vain")


def dead(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


async def test_what_an_agent_that_died_had_begun_is_built_anew(tmp_path: Path, links: Path) -> None:
    made, wanted = environments(tmp_path), Wanted(("tiny==1.0",))
    path = await made.get(wanted, "job", lambda: None)
    path.with_suffix(".ready").unlink()
    (path / "bin/python").unlink()
    (tmp_path / "cache/work/install-x").mkdir()
    again, (times, on_build) = environments(tmp_path), built()
    of_all(tmp_path).clean(["job"])
    assert leftovers(tmp_path) == []
    assert ask(await again.get(wanted, "job", on_build), "tiny.VERSION", "tiny") == "1.0"
    assert times == [1]


@pytest.mark.parametrize("left", ["", '{"byt', "[]"])
async def test_a_note_that_was_not_written_whole_has_its_environment_built_again(
    tmp_path: Path, links: Path, left: str
) -> None:
    made, wanted = environments(tmp_path), Wanted(("tiny==1.0",))
    path = await made.get(wanted, "job", lambda: None)
    path.with_suffix(".ready").write_text(left)
    again, (times, on_build) = environments(tmp_path), built()
    assert ask(await again.get(wanted, "job", on_build), "tiny.VERSION", "tiny") == "1.0"
    assert times == [1]


async def test_the_longest_unused_goes_and_what_a_job_uses_stays(tmp_path: Path, links: Path) -> None:
    all_of_them = of_all(tmp_path, environments_mb=1)
    made = all_of_them.of(USER)
    wheels.wheel(links, "big", data=f"X = {'y' * (2 << 20)!r}\n")
    used = await made.get(Wanted(("big",)), "a", lambda: None)
    loose = await made.get(Wanted(("big", "tiny")), "b", lambda: None)
    all_of_them.release("b")
    assert used.exists() and loose.exists()
    last = await made.get(Wanted(("tiny",)), "c", lambda: None)
    assert used.exists() and last.exists()
    assert not loose.exists()
    all_of_them.release("a")
    await made.get(Wanted(("other",)), "c", lambda: None)
    assert not used.exists()


async def test_the_bound_is_that_of_all_users_together(tmp_path: Path, links: Path) -> None:
    others = tmp_path / "cache/environments/4242"
    (others / "big").mkdir(parents=True)
    (others / "big.ready").write_text(json.dumps({"bytes": 5 << 20}))
    downloads = tmp_path / "cache/downloads/4242"
    downloads.mkdir(parents=True)
    (downloads / "wheel").write_bytes(b"x" * (5 << 20))
    path = await environments(tmp_path, environments_mb=1, downloads_mb=1).get(Wanted(("tiny",)), "a", lambda: None)
    assert path.parent.name != "4242"
    assert list(others.iterdir()) == [], "the longest unused is another user's, and goes"
    assert not downloads.exists()


async def test_jobs_that_are_gone_hold_nothing_after_a_restart(tmp_path: Path, links: Path) -> None:
    path = await environments(tmp_path).get(Wanted(("tiny",)), "gone", lambda: None)
    of_all(tmp_path).clean(["other"])
    assert list(path.with_suffix(".jobs").iterdir()) == []


async def test_a_python_that_is_not_there_is_the_hosts_fault(tmp_path: Path, links: Path) -> None:
    problem = await refusal(environments(tmp_path, python="/no/python"), Wanted(("tiny",)))
    assert problem.host_fault
    assert "/no/python" in problem.message


@pytest.mark.require("root")
async def test_a_build_runs_as_the_workers_user_and_finds_nothing_of_ours(tmp_path: Path, links: Path) -> None:
    for parent in (tmp_path, *tmp_path.parents):
        if parent.name.startswith(("pytest-", "popen-")) or parent == tmp_path:
            parent.chmod(parent.stat().st_mode | 0o055)
    user = WorkerUser("nobody", "/", "/bin/sh", 65534, 65534, ())
    body = "assert 'SECRET' not in os.environ; assert os.getgroups() == [], os.getgroups()"
    file = wheels.source(tmp_path / "sent", "built", body)
    os.environ["SECRET"] = "x"
    try:
        path = await environments(tmp_path, user, python="/usr/bin/python3").get(
            Wanted((), files=((file, "d"),)), "job", lambda: None
        )
    finally:
        del os.environ["SECRET"]
    assert ask(path, "built.BUILT_BY", "built") == 65534
    for entry in (path, path / "pyvenv.cfg", path / "bin"):
        found = entry.stat()
        assert (found.st_uid, found.st_gid, found.st_mode & 0o227) == (0, 65534, 0), (
            "its account may read it, no more"
        )


@pytest.mark.require("mount")
async def test_a_full_cache_disk_is_the_hosts_fault_and_keeps_nothing(tmp_path: Path, links: Path) -> None:
    wheels.wheel(links, "big", data=f"X = {'y' * (4 << 20)!r}\n")
    cache = tmp_path / "cache"
    cache.mkdir()
    await anyio.run_process(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(cache)])
    try:
        problem = await refusal(environments(tmp_path), Wanted(("big",)))
        assert problem.host_fault
        assert leftovers(tmp_path) == []
    finally:
        await anyio.run_process(["umount", str(cache)])


def test_the_end_of_a_log_is_one_line() -> None:
    log = "Using Python 3.11\n  × No solution found:\n  ╰─▶ Because x\n      was not found.\n"
    assert tail(log.encode()) == "No solution found: Because x was not found"
    assert len(tail(b"a b\n" * 10_000)) == 701


async def test_a_package_whose_file_server_hangs_holds_up_nothing_else(
    tmp_path: Path, links: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, answers = threading.Event(), threading.Event()

    def hangs(_: str) -> list[int]:
        began.set()
        assert answers.wait(20), "the event loop waits for it, and so nothing lets go of it"
        return []

    monkeypatch.setattr("holdfast_agent.shell.packages.environments._changed", hangs)
    package = Wanted((), uris=(wheels.wheel(links, "tiny").as_uri(),))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(environments(tmp_path).get, package, "job", lambda: None)
        await until(began.is_set)
        answers.set()
