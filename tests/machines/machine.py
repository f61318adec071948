"""A machine with systemd as its first process: a Debian tree under systemd-nspawn, in a network of its own.

It has the loopback interface alone. On hosts with the hybrid cgroup layout it gets a pure v2 tree of its own.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tests.machine_parts import cgroup_mount

from holdfast_agent.shim_parts import cgroup

SUITE = "bookworm"
PACKAGES = "systemd,systemd-sysv,dbus,python3,iproute2,procps"
PATIENCE_S = 120.0
_COUNT = itertools.count()
BOOT = """
set -e
mount --make-rprivate /
umount -l /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
mkdir "/sys/fs/cgroup/$4"
echo $$ > "/sys/fs/cgroup/$4/cgroup.procs"
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/root"
exec systemd-nspawn -q -D "$2/root" --register=no --keep-unit --machine="$3" --private-network -b
"""


def tree(cache: Path) -> Path:
    """A Debian tree that is made once and then kept: some minutes."""
    done = cache / SUITE
    if not done.is_dir():
        fresh = cache / f"{SUITE}.{os.getpid()}"
        cache.mkdir(parents=True, exist_ok=True)
        command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(fresh)]
        subprocess.run([*command, "http://deb.debian.org/debian"], check=True, stdout=subprocess.DEVNULL)
        fresh.rename(done)
    return done


class Machine:
    """One that has booted."""

    def __init__(self, root: Path, nspawn: subprocess.Popen[bytes], first: int) -> None:
        self.upper = root / "upper"
        self._nspawn = nspawn
        self._first = first

    def run(self, *command: str, fails: bool = False) -> str:
        """What a command prints on the machine. Asserts how it ended."""
        done = subprocess.run(
            ["nsenter", "-t", str(self._first), "-a", "--", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
        )
        assert (done.returncode != 0) is fails, f"{command}: {done.returncode}\n{done.stdout}"
        return done.stdout

    def until(self, wanted: str, *command: str) -> str:
        """What a command prints, once it prints what is wanted."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(AssertionError):
                said = self.run(*command)
                if wanted in said:
                    return said
            assert time.monotonic() < deadline, f"{command} never says {wanted!r}"
            time.sleep(0.5)

    def put(self, source: Path, target: str) -> None:
        """A file onto the machine."""
        with source.open("rb") as file:
            command = ["nsenter", "-t", str(self._first), "-a", "--", "sh", "-c", f"cat > {target}"]
            subprocess.run(command, stdin=file, check=True, timeout=PATIENCE_S)

    def power_off(self) -> None:
        """As an admin does, and wait for it."""
        self.run("systemctl", "poweroff")
        self._nspawn.wait(timeout=PATIENCE_S)


@contextlib.contextmanager
def booted(lower: Path, root: Path, name: str) -> Iterator[Machine]:
    """A machine on a tree that others may use, too. What it writes goes to ``root``, for the next boot to find."""
    for folder in ("upper", "work", "root"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    group = f"holdfast-machine-{name}-{os.getpid()}-{next(_COUNT)}"
    command = ["unshare", "-m", "sh", "-c", BOOT, "boot", str(lower), str(root), name, group]
    with (root / "console.log").open("ab") as console:
        nspawn = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=console, stderr=console, start_new_session=True
        )
    try:
        machine = Machine(root, nspawn, _first_child(nspawn, root))
        machine.until("running", "systemctl", "is-system-running")
        yield machine
    finally:
        if nspawn.poll() is None:
            os.killpg(nspawn.pid, signal.SIGKILL)
            nspawn.wait()
        _remove(Path(cgroup_mount(), group))


def _remove(group: Path) -> None:
    """The machine's cgroups; the last of its processes may take a moment to be gone."""
    deadline = time.monotonic() + PATIENCE_S
    while group.is_dir():
        (group / "cgroup.kill").write_text("1")
        cgroup.remove(str(group))
        assert time.monotonic() < deadline, f"{group} can't be removed"
        time.sleep(0.1)


def _first_child(nspawn: subprocess.Popen[bytes], root: Path) -> int:
    """The machine's first process, as we see it."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and nspawn.poll() is None:
        with contextlib.suppress(OSError, ValueError, IndexError):
            child = int(Path(f"/proc/{nspawn.pid}/task/{nspawn.pid}/children").read_text().split()[0])
            if Path(f"/proc/{child}/comm").read_text().strip() == "systemd":
                return child
        time.sleep(0.1)
    raise AssertionError("the machine does not boot:\n" + (root / "console.log").read_text()[-2000:])
