"""Packages whose installation tries to outlive it, to gain privileges, to flood, or to change what others run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support import wheels
from tests.support.machine_parts import cgroup_mount

from holdfast_agent.core.launch.environment import WorkerUser
from holdfast_agent.shell.base import programs
from holdfast_agent.shell.base.programs import NO_LIMITS, Limits, Program
from holdfast_agent.shell.packages.as_user import EnvironmentsByUser
from holdfast_agent.shell.packages.environments import Environments, Wanted
from holdfast_agent.shell.packages.installer import uv
from holdfast_agent.shell.packages.settings import CodeProblem, Packages

pytestmark = pytest.mark.require("root")

NOBODY = WorkerUser("nobody", "/", "/bin/sh", 65534, 65534, ())
DAEMON = """
import subprocess, time
def tell(name, text):
    with open({told!r} + "/" + name + ".new", "w") as file:
        file.write(str(text))
    os.rename({told!r} + "/" + name + ".new", {told!r} + "/" + name)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 256)
        tell("daemon", os.getpid())
        os.execve("/bin/sleep", ["sleep", "600"], {{}})
    os._exit(0)
while not os.path.exists({told!r} + "/daemon"):
    time.sleep(0.01)
"""
SETUID = """
import json
done = subprocess.run([{told!r} + "/id", "-u"], capture_output=True, text=True)
status = open("/proc/self/status").read()
tell("setuid", done.stdout.strip())
tell("status", status)
tell("cgroup", open("/proc/self/cgroup").read())
"""


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Path]:
    """A directory that all may write to, with a setuid ``id`` of root's; what is said to run there is ended."""
    for parent in (tmp_path, *tmp_path.parents):
        if parent.name.startswith(("pytest-", "popen-")) or parent == tmp_path:
            parent.chmod(parent.stat().st_mode | 0o055)
    if programs.run(Program([uv(), "--version"], 20, user=NOBODY)).code != 0:
        pytest.skip("the uv of the tests is not there for others")
    folder = tmp_path / "told"
    folder.mkdir()
    folder.chmod(0o777)
    shutil.copy("/usr/bin/id", folder / "id")
    (folder / "id").chmod(0o4755)
    yield folder
    if (folder / "daemon").exists() and not dead(int((folder / "daemon").read_text())):
        os.kill(int((folder / "daemon").read_text()), signal.SIGKILL)


def environments(tmp_path: Path, **settings: Any) -> Environments:
    values = {"python": "/usr/bin/python3", "no_index": True, **settings}
    return EnvironmentsByUser(tmp_path / "cache", Packages(**values), {}, "/usr/bin").of(NOBODY)


def get(
    made: Environments, wanted: Wanted, job: str, on_build: Callable[[], None], limits: Limits = NO_LIMITS
) -> Path:
    return anyio.run(made.get, wanted, job, on_build, limits)


def package(tmp_path: Path, told: Path, body: str) -> Wanted:
    file = wheels.source(tmp_path / "sent", "hostile", body.format(told=str(told)))
    return Wanted((), files=((file, "digest"),))


def dead(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def appears(path: Path) -> None:
    for _ in range(1200):
        if path.exists():
            return
        time.sleep(0.05)
    raise AssertionError(f"{path} never appeared")


def test_a_daemon_that_an_installation_starts_does_not_outlive_it(tmp_path: Path, told: Path) -> None:
    get(environments(tmp_path), package(tmp_path, told, DAEMON), "job", lambda: None)
    assert dead(int((told / "daemon").read_text()))


def test_nor_one_that_takes_too_long_or_is_called_off(tmp_path: Path, told: Path) -> None:
    wanted = package(tmp_path, told, DAEMON + "time.sleep(600)\n")
    with pytest.raises(CodeProblem, match="did not end within"):
        get(environments(tmp_path, install_timeout=8.0), wanted, "job", lambda: None)
    assert dead(int((told / "daemon").read_text()))
    (told / "daemon").unlink()
    anyio.run(called_off, environments(tmp_path), wanted, told / "daemon")
    assert dead(int((told / "daemon").read_text()))


async def called_off(made: Environments, wanted: Wanted, once: Path) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.get, wanted, "job", lambda: None)
        await anyio.to_thread.run_sync(appears, once)
        tasks.cancel_scope.cancel()


AGENT = """
import anyio, os, sys
sys.path[:0] = {path!r}
from pathlib import Path
from tests.security.hosts import test_installations as t
anyio.run(t.environments(Path({tmp!r})).get, t.package(Path({tmp!r}), Path({told!r}), {body!r}), "job", lambda: None)
"""


def test_nor_its_agent(tmp_path: Path, told: Path) -> None:
    code = AGENT.format(path=sys.path, tmp=str(tmp_path), told=str(told), body=DAEMON + "time.sleep(600)\n")
    agent = subprocess.Popen([sys.executable, "-c", code])
    try:
        appears(told / "daemon")
    finally:
        agent.kill()
        agent.wait()
    pid = int((told / "daemon").read_text())
    for _ in range(400):
        if dead(pid):
            return
        time.sleep(0.05)
    raise AssertionError("it outlives the agent")


def test_an_installation_gains_nothing_by_setuid(tmp_path: Path, told: Path) -> None:
    if os.statvfs(told).f_flag & os.ST_NOSUID:
        pytest.skip("this file system ignores setuid")
    as_user = subprocess.run([told / "id", "-u"], user=65534, group=65534, capture_output=True, text=True)
    assert as_user.stdout.strip() == "0", "elsewhere it does gain"
    get(environments(tmp_path), package(tmp_path, told, DAEMON + SETUID), "job", lambda: None)
    assert (told / "setuid").read_text() == "65534"
    status = dict(line.split(":\t", 1) for line in (told / "status").read_text().splitlines())
    assert (status["NoNewPrivs"], int(status["CapBnd"], 16), status["Uid"].split()) == ("1", 0, ["65534"] * 4)


@pytest.mark.require("cgroup")
def test_an_installation_is_in_a_cgroup_of_its_own_that_goes_with_it(tmp_path: Path, told: Path) -> None:
    place = f"holdfast-test-{os.getpid()}/worker/install"
    try:
        limits = Limits(f"{cgroup_mount()}/{place}")
        get(environments(tmp_path), package(tmp_path, told, DAEMON + SETUID), "job", lambda: None, limits)
        assert f"0::/{place}\n" in (told / "cgroup").read_text()
        assert not Path(cgroup_mount(), place).exists()
    finally:
        for part in (Path(cgroup_mount(), place), *Path(cgroup_mount(), place).parents[:2]):
            if part.exists():
                part.rmdir()


def test_an_installation_that_floods_its_output_is_ended(tmp_path: Path, told: Path) -> None:
    body = "import sys\nfor _ in range(100): sys.stderr.write('x' * (1 << 20))\nsys.exit(1)\n"
    with pytest.raises(CodeProblem, match="printed more than 64 MiB") as caught:
        get(environments(tmp_path), package(tmp_path, told, body), "job", lambda: None)
    assert len(caught.value.log) < 2 << 20


WRITE = """
import os, sys
top, found = sys.argv[1], []
def tried(what, call):
    try:
        call()
    except OSError:
        return
    found.append(what)
for folder, folders, files in os.walk(top):
    tried(folder, lambda: os.mkdir(folder + "/planted"))
    tried(folder, lambda: os.chmod(folder, 0o777))
    for name in files:
        path = os.path.join(folder, name)
        if not os.path.islink(path):
            tried(path, lambda: open(path, "ab"))
            tried(path, lambda: os.chmod(path, 0o777))
            tried(path, lambda: os.unlink(path))
tried(top, lambda: os.rename(top, top + ".old"))
print(found)
"""


def test_a_job_can_not_change_the_environment_of_the_next(tmp_path: Path, told: Path) -> None:
    links = tmp_path / "links"
    wheels.wheel(links, "tiny")
    made = environments(tmp_path, find_links=(str(links),))
    path = get(made, Wanted(("tiny",)), "job-1", lambda: None)
    tried = subprocess.run(
        ["/usr/bin/python3", "-c", WRITE, path],
        user=65534,
        group=65534,
        extra_groups=(),
        capture_output=True,
        text=True,
    )
    assert tried.stdout == "[]\n", tried
    runs = [str(path / "bin/python"), "-c", "import tiny; print(tiny.VERSION, bool(tiny.__cached__))"]
    ran = subprocess.run(runs, user=65534, group=65534, extra_groups=(), capture_output=True, text=True)
    assert ran.stdout == "1.0 True\n", ran.stderr
    for file in path.rglob("*"):
        assert file.is_symlink() or file.is_dir() or file.stat().st_nlink == 1, f"{file} is linked to the cache"


def test_an_environment_that_was_changed_is_built_anew_beside_the_one_in_use(tmp_path: Path, told: Path) -> None:
    links = tmp_path / "links"
    wheels.wheel(links, "tiny")
    made = environments(tmp_path, find_links=(str(links),))
    first = get(made, Wanted(("tiny",)), "job-1", lambda: None)
    module = next(first.rglob("tiny.py"))
    before = module.stat()
    module.write_text("VERSION = '6.6'\n")
    os.utime(module, ns=(before.st_atime_ns, before.st_mtime_ns))
    second = get(made, Wanted(("tiny",)), "job-2", lambda: None)
    assert second != first
    assert next(second.rglob("tiny.py")).read_text() == "VERSION = '1.0'\n"
    assert get(made, Wanted(("tiny",)), "job-3", lambda: pytest.fail("it is there")) == second


SECOND_NAME = """
import glob
for site in glob.glob("CACHE/environments/*/*/lib/python*/site-packages"):
    open({told!r} + "/mine", "w").close()
    if not os.path.exists(site + "/mine.py"):
        os.link({told!r} + "/mine", site + "/mine.py")
"""


def test_a_second_name_of_a_file_in_it_is_refused(tmp_path: Path, told: Path) -> None:
    wanted = package(tmp_path, told, SECOND_NAME.replace("CACHE", str(tmp_path / "cache")))
    places = tmp_path / "cache/environments"
    places.mkdir(parents=True)
    (places / "65534").mkdir()
    for place in (places, places / "65534"):
        place.chmod(0o755)  # so that the package finds it
    with pytest.raises(CodeProblem, match=r"linked mine\.py to a file of another place"):
        get(environments(tmp_path), wanted, "job", lambda: None)
