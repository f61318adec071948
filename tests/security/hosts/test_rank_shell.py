"""What a hostile owner of a job can do with a shell beside its rank: nothing that the rank can't."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.shim.conftest import Shim, start_shim
from tests.integration.shim.test_rank_shell import Shell

__all__ = ["start_shim"]
NOBODY = 65534
PYTHON = "/usr/bin/python3"
WALLS = ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Umask")
SHOWS = (
    "import os, resource, time\n"
    "for line in open('/proc/self/status'):\n"
    f"    if line.split(':')[0] in {WALLS!r}: print(line.strip())\n"
    "print('limits', [resource.getrlimit(each) for each in range(16)])\n"
    "print('places', [os.readlink('/proc/self/ns/' + each) for each in ('mnt', 'ipc', 'pid', 'user')])\n"
    "print('descriptors', sorted(os.listdir('/proc/self/fd'))[:-1])\n"
    "print('environment', sorted(os.environ.items()), flush=True)\n"
)
TRIES = """
import ctypes, os, signal, sys
keeper = os.getppid()
status = dict(line.split(":", 1) for line in open(f"/proc/{keeper}/status"))
shim = int(status["PPid"])
for pid in (keeper, shim):
    for name in ("environ", "mem", "fd/0", "maps"):
        try:
            open(f"/proc/{pid}/{name}", "rb").read(1)
            print("read", pid, name)
        except OSError:
            pass
    try:
        os.kill(pid, signal.SIGKILL)
        print("killed", pid)
    except PermissionError:
        pass
    if ctypes.CDLL(None).ptrace(16, pid, 0, 0) == 0:
        print("traced", pid)
for what in (lambda: os.setuid(0), lambda: os.setgroups([0]), lambda: os.chroot("/")):
    try:
        what()
        print("became more")
    except PermissionError:
        pass
for line in open("/proc/self/cgroup"):
    path = "/sys/fs/cgroup/unified" if os.path.isdir("/sys/fs/cgroup/unified") else "/sys/fs/cgroup"
    for file in ("cgroup.procs", "memory.max", "pids.max"):
        if os.access(path + line.strip().split(":", 2)[2] + "/" + file, os.W_OK):
            print("changes its limits")
print("tried", os.getuid())
"""


@pytest.fixture
def nobodys(start_shim: Callable[..., Shim]) -> Shim:
    """A root shim whose rank is another account's, and shows its walls."""
    shim = start_shim()
    shim.directory.parent.chmod(0o755)
    shim.assign()
    rank = {**shim.rank(PYTHON, "-I", "-S", "-c", SHOWS + "time.sleep(600)"), "cwd": "/"}
    order: dict[str, Any] = shim.order(1, rank, private_shm=True)
    shim.send(**{**order, "uid": NOBODY, "gid": NOBODY, "groups": [NOBODY], "umask": 0o27})
    shim.until("started")
    shim.await_output()
    return shim


def walls(text: str) -> dict[str, str]:
    return {line.split()[0]: " ".join(line.split()[1:]) for line in text.splitlines()}


@pytest.mark.require("root")
@pytest.mark.parametrize("terminal", [False, True])
def test_it_stands_behind_the_walls_of_its_rank(nobodys: Shim, terminal: bool) -> None:
    shell = Shell(nobodys, PYTHON, "-I", "-S", "-c", SHOWS, terminal=terminal, term="")
    found, wanted = walls(shell.ends()["o"].decode()), walls(nobodys.output())
    assert found == wanted
    assert found["Uid:"] == " ".join([str(NOBODY)] * 4) and found["NoNewPrivs:"] == "1"
    assert found["CapBnd:"] == "0" * 16 and found["descriptors"] == "['0', '1', '2']"


@pytest.mark.require("root")
def test_it_reaches_neither_its_keeper_nor_the_shim_and_becomes_no_more(nobodys: Shim) -> None:
    said = Shell(nobodys, PYTHON, "-I", "-S", "-c", TRIES).ends()
    assert (said["o"].decode(), said["x"]) == (f"tried {NOBODY}\n", b"0"), said["r"]
    assert nobodys.process.poll() is None


@pytest.mark.require("root")
def test_a_program_with_the_set_uid_bit_gives_it_nothing(nobodys: Shim) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        copy = Path(folder) / "id"
        copy.write_bytes(Path("/usr/bin/id").read_bytes())
        os.chmod(copy, 0o4755)
        assert Shell(nobodys, str(copy), "-u").ends()["o"] == f"{NOBODY}\n".encode()


@pytest.mark.require("root")
def test_another_users_process_opens_no_shell_at_the_shim(nobodys: Shim) -> None:
    tries = (
        "import os, socket; s = socket.socket(socket.AF_UNIX)\n"
        f"try: s.connect({str(nobodys.directory / 'sock')!r}); print('open')\n"
        "except OSError: print('closed')"
    )
    os.chmod(nobodys.directory, 0o700)
    assert Shell(nobodys, PYTHON, "-I", "-S", "-c", tries).ends()["o"] == b"closed\n"
