"""A machine with systemd as its first process: a Debian tree under systemd-nspawn, in a network of its own.

On hosts with the hybrid cgroup layout it gets a pure v2 tree. Whatever happens to the tests, nothing outlives them:
mounts are in a mount namespace of the machine's, its first process dies with systemd-nspawn, and that one with us.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.support.machine_parts import cgroup_mount

from holdfast_agent.shim.walls import cgroup

SUITE = "bookworm"
MIRROR = "http://deb.debian.org/debian"
PACKAGES = (
    "systemd,systemd-sysv,dbus,python3,iproute2,procps,"
    "python3-numpy,"  # the example training needs it
    "openssh-server,python3-apt,"  # Ansible needs them
    "ipmitool,"  # a fence command needs it
    "rsyslog,python3-aiosmtpd,"  # servers of syslog and mail
    "rpm"  # to look at our own
)
TOOLS = ("debootstrap", "systemd-nspawn", "nsenter", "dpkg-deb", "setpriv")
GROUP = "holdfast-machine-"
PATIENCE_S = 180.0
_COUNT = itertools.count()
BOOT = """
set -e
lower=$1 root=$2 name=$3 group=$4
shift 4
mount --make-rprivate /
umount -l /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
mkdir "/sys/fs/cgroup/$group"
echo $$ > "/sys/fs/cgroup/$group/cgroup.procs"
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$root/upper,workdir=$root/work" "$root/root"
exec systemd-nspawn -q -D "$root/root" --register=no --keep-unit --machine="$name" "$@" -b
"""


def lacking() -> list[str]:
    """Programs that machines need and that aren't here."""
    return [tool for tool in TOOLS if shutil.which(tool) is None]


def tree(cache: Path) -> Path:
    """A Debian tree that is made once and then kept, for as long as it is to hold the same: some minutes."""
    done = cache / f"{SUITE}-{hashlib.sha256(PACKAGES.encode()).hexdigest()[:8]}"
    if not done.is_dir():
        fresh = cache / f"{done.name}.{os.getpid()}"
        cache.mkdir(parents=True, exist_ok=True)
        command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(fresh), MIRROR]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(fresh / "var/cache/apt/archives")
        fresh.rename(done)
    return done


class Machine:
    """One that runs, or has run. What is written on it lies in ``upper`` and is there again at its next boot."""

    def __init__(self, name: str, root: Path, group: str, nspawn: subprocess.Popen[bytes]) -> None:
        self.name = name
        self.upper = root / "upper"
        self._console = root / "console.log"
        self.group = Path(cgroup_mount(), group)  # all of its processes
        self._nspawn = nspawn

    @functools.cached_property
    def first(self) -> int:
        """Its first process, as we see it; waits for it."""
        deadline, nspawn = time.monotonic() + PATIENCE_S, self._nspawn.pid
        while time.monotonic() < deadline and self._nspawn.poll() is None:
            with contextlib.suppress(OSError, ValueError, IndexError):
                child = int(Path(f"/proc/{nspawn}/task/{nspawn}/children").read_text().split()[0])
                if Path(f"/proc/{child}/comm").read_text().strip() == "systemd":
                    return child
            time.sleep(0.1)
        raise AssertionError(f"{self.name} does not boot:\n{self._console.read_text()[-2000:]}")

    def inside(self, *command: str) -> list[str]:
        """What runs ``command`` there."""
        return ["nsenter", "-t", str(self.first), "-a", "--", *command]

    def run(self, *command: str, fails: bool = False, env: Mapping[str, str] | None = None) -> str:
        """What a command prints on the machine, with its errors where it fails. Asserts how it ended."""
        words = ["env", *(f"{name}={value}" for name, value in env.items()), *command] if env else command
        done = subprocess.run(
            self.inside(*words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        said = done.stdout + done.stderr
        assert (done.returncode != 0) is fails, f"{self.name}: {command}: {done.returncode}\n{said}"
        return said if fails else done.stdout

    def sh(self, line: str, fails: bool = False) -> str:
        """What a line prints that somebody has typed or pasted."""
        return self.run("sh", "-c", line, fails=fails)

    def until(self, wanted: str, *command: str, within_s: float = PATIENCE_S) -> str:
        """What a command prints, once it prints what is wanted (a regular expression)."""
        deadline, said = time.monotonic() + within_s, ""
        while time.monotonic() < deadline:
            try:
                said = self.run(*command)
            except AssertionError as refused:
                said = str(refused)
            else:
                if re.search(wanted, said):
                    return said
            time.sleep(0.5)
        raise AssertionError(f"{self.name}: {command} never says {wanted!r}, but:\n{said}")

    def put(self, source: Path, target: str) -> None:
        """A file onto the machine."""
        with source.open("rb") as file:
            command = self.inside("sh", "-c", f"cat > {target}")
            subprocess.run(command, stdin=file, check=True, timeout=PATIENCE_S)

    def booted(self) -> None:
        """Wait until nothing is left to be started."""
        self.until("running", "systemctl", "is-system-running")

    def power_off(self) -> None:
        """As an admin does, and wait for it."""
        self.run("systemctl", "poweroff")
        self._nspawn.wait(timeout=PATIENCE_S)

    def cut_power(self) -> None:
        """From now on none of its processes runs. Its network doesn't notice: unplug it before."""
        if self._nspawn.poll() is None:
            # The session's, for sh before it has become nspawn; a first process takes all others with it.
            os.killpg(self._nspawn.pid, signal.SIGKILL)
            self._nspawn.wait(timeout=PATIENCE_S)
        _remove(self.group)


def start(lower: Path, root: Path, name: str, network: str = "", binds: Iterable[str] = ()) -> Machine:
    """Switch a machine on: on a tree that others may use, too. What it writes goes to ``root``.

    ``network`` is the file of its network namespace; without one it has the loopback interface alone.
    """
    for folder in ("upper", "work", "root"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "upper/etc/dpkg/dpkg.cfg.d").mkdir(parents=True, exist_ok=True)
    # Unpacking waits for the disk at each file, and several machines share this one.
    (root / "upper/etc/dpkg/dpkg.cfg.d/unsafe-io").write_text("force-unsafe-io\n")
    (root / "upper/etc/hostname").write_text(f"{name}\n")
    group = f"{GROUP}{os.getpid()}-{next(_COUNT)}-{name}"
    options = [f"--network-namespace-path={network}" if network else "--private-network"]
    options += [f"--bind={bind}" for bind in binds]
    command = ["unshare", "-m", "sh", "-c", BOOT, "boot", str(lower), str(root), name, group, *options]
    # It would die with the thread that has started it.
    assert threading.current_thread() is threading.main_thread()
    with (root / "console.log").open("ab") as console:
        nspawn = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            start_new_session=True,
        )
    return Machine(name, root, group, nspawn)


@contextlib.contextmanager
def booted(lower: Path, root: Path, name: str) -> Iterator[Machine]:
    """A machine by itself, ready."""
    machine = start(lower, root, name)
    try:
        machine.booted()
        yield machine
    finally:
        machine.cut_power()


def together(work: Callable[[Any], object], items: Sequence[Any]) -> None:
    """Do the same for all, at the same time. Raises what the first of them has raised."""
    with ThreadPoolExecutor(len(items)) as pool:
        for done in [pool.submit(work, item) for item in items]:
            done.result()


def sweep() -> None:
    """Remove the cgroups of machines whose tests were killed."""
    for group in Path(cgroup_mount() or os.devnull).glob(f"{GROUP}*"):
        owner = group.name.removeprefix(GROUP).partition("-")[0]
        if not Path("/proc", owner).is_dir():
            _remove(group)


def left_behind() -> list[str]:
    """What is still there of this process's machines: cgroups, network namespaces, processes."""
    groups = Path(cgroup_mount() or os.devnull).glob(f"{GROUP}{os.getpid()}-*")
    namespaces = Path("/run/netns").glob(f"hf{os.getpid()}-*")
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    nspawns = [pid for pid in children if Path(f"/proc/{pid}/comm").read_text().strip() == "systemd-nspawn"]
    return [*map(str, groups), *map(str, namespaces), *nspawns]


def _remove(group: Path) -> None:
    """The machine's cgroups; the last of its processes may take a moment to be gone."""
    deadline = time.monotonic() + PATIENCE_S
    while group.is_dir():
        (group / "cgroup.kill").write_text("1")
        cgroup.remove(str(group))
        assert time.monotonic() < deadline, f"{group} can't be removed"
        time.sleep(0.1)
