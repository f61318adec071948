"""A real Slurm on this machine: munged, slurmctld and several slurmd of its own, in a folder, on loopback.

It outlives no test: a process that waits for the end of ours kills what is left then, should ours not live to do so.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

PROGRAMS = ("munged", "mungekey", "slurmctld", "slurmd", "srun", "scontrol", "scancel", "sinfo")
NODES = 4
READY_S = 60.0
ENDS_S = 10.0

CONFIG = """\
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/{tracking}
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
KillWait=5
SlurmdParameters=config_overrides
InactiveLimit=0
JobRequeue=1
TreeWidth=16
{nodes}
PartitionName=all Nodes={name}[1-{count}] Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
"""

# Told nothing by the time that its stdin ends: who started it was killed. All of the cluster's processes, those of its
# jobs and the commands that wait for them have its folder in their environment, or files in it open: slurmstepd writes
# its title over its environment.
ENDS_ALL = """\
import os, shutil, signal, sys, time
if sys.stdin.read():
    sys.exit()
folder, until = sys.argv[1], time.monotonic() + 30
def belongs(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            if os.fsencode(folder) in file.read():
                return True
        links = [f"/proc/{pid}/cwd", *(f"/proc/{pid}/fd/{each}" for each in os.listdir(f"/proc/{pid}/fd"))]
        return any(os.readlink(link).startswith(folder) for link in links)
    except OSError:
        return False
while time.monotonic() < until:
    found = [int(pid) for pid in os.listdir("/proc") if pid.isdecimal() and belongs(pid)]
    for pid in set(found) - {os.getpid()}:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
    if not found:
        break
    time.sleep(0.1)
shutil.rmtree(folder, ignore_errors=True)
for each, _, _ in [each for top in sys.argv[2:] for each in os.walk(top, topdown=False)]:
    os.rmdir(each)
"""
FREEZER = Path("/sys/fs/cgroup/freezer")
"""Where a Slurm keeps the cgroups by which it knows a step's processes, of cgroups' version 1."""


class Slurm:
    """The cluster; ``environment`` makes Slurm's commands talk to it. ``by_cgroups`` it knows its processes."""

    def __init__(self, folder: Path, *, by_cgroups: bool = False) -> None:
        self.folder = folder
        self._by_cgroups = by_cgroups
        # Cgroups of all Slurms on a machine lie beside each other, by the names of nodes.
        self.name = f"c{os.getpid()}n" if by_cgroups else "n"
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        self._daemons: list[subprocess.Popen[bytes]] = []

    @property
    def cgroups(self) -> list[Path]:
        """The topmost cgroup of each node."""
        return [FREEZER / f"slurm_{self.name}{number}" for number in range(1, NODES + 1) if self._by_cgroups]

    def srun(self, *arguments: str, cwd: Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Start a step."""
        return subprocess.Popen(
            ["srun", *arguments],
            cwd=cwd,
            env={**self.environment, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *command: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
        """What one of Slurm's commands prints."""
        done = subprocess.run(
            command,
            cwd=cwd,
            env={**self.environment, **(env or {})},
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
        return done.stdout

    def start(self) -> None:
        """Return once all nodes take work."""
        self._configure()
        self.start_munged()
        self._daemon("slurmctld", "-D", "-i")
        for number in range(1, NODES + 1):
            self._daemon("slurmd", "-D", "-N", f"{self.name}{number}")
        _wait_until(self._all_idle, "all nodes are idle")

    def bring_up(self) -> None:
        """Return once all nodes take work again.

        A node that was set down while nothing ran on it is back only when slurmctld asks it next, up to 100 s later.
        """
        for number in range(1, NODES + 1):
            if self.node_state(number).startswith("DOWN"):
                self.run("scontrol", "update", f"NodeName={self.name}{number}", "State=RESUME")
        _wait_until(self._all_idle, "all nodes are idle")

    def node_state(self, number: int) -> str:
        """What Slurm calls it, such as ``IDLE+COMPLETING``."""
        return self.run("scontrol", "show", "node", f"{self.name}{number}").partition("State=")[2].split()[0]

    def _all_idle(self) -> bool:
        return self.run("sinfo", "-h", "-o", "%t %D").split() == ["idle", str(NODES)]

    def start_munged(self) -> None:
        """Return once credentials are made and opened, by ``munge.socket`` in its folder."""
        folder = self.folder
        subprocess.run(["mungekey", "--create", f"--keyfile={folder}/munge.key"], check=True)
        self._daemon(
            "munged",
            "--foreground",
            "--force",
            f"--key-file={folder}/munge.key",
            f"--socket={folder}/munge.socket",
            f"--pid-file={folder}/munged.pid",
            f"--seed-file={folder}/munged.seed",
            f"--log-file={folder}/munged.log",
        )
        _wait_until(lambda: (folder / "munge.socket").exists(), "munged listens")

    def _configure(self) -> None:
        free = _free_ports(NODES + 1)
        node = (
            "NodeName={}{} NodeHostname=localhost NodeAddr=127.0.0.1 Port={} CPUs=4 RealMemory=1000 State=UNKNOWN"
        )
        nodes = "\n".join(node.format(self.name, number, port) for number, port in enumerate(free[1:], 1))
        tracking = "cgroup" if self._by_cgroups else "linuxproc"
        text = CONFIG.format(
            controller=free[0], folder=self.folder, nodes=nodes, count=NODES, name=self.name, tracking=tracking
        )
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        (self.folder / "state").mkdir()

    def _daemon(self, *command: str) -> None:
        with (self.folder / "daemons.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._daemons.append(process)

    def stop(self) -> None:
        """End all jobs, then all daemons."""
        with contextlib.suppress(subprocess.SubprocessError, TimeoutError):
            self.run("scancel", "--state=RUNNING", "--signal=KILL", "--full", "--me")
            self.run("scancel", "--me")
            # A slurmstepd that can't tell slurmctld of its step's end stays for good.
            _wait_until(lambda: not self.run("squeue", "-h"), "all jobs have ended")
        self.stop_daemons()

    def stop_daemons(self) -> None:
        """End them all."""
        for process in reversed(self._daemons):
            process.send_signal(signal.SIGTERM)
        for process in reversed(self._daemons):
            try:
                process.wait(ENDS_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.contextmanager
def running(folder: Path, *, by_cgroups: bool = False) -> Iterator[Slurm]:
    """A cluster that lasts as long as the block."""
    slurm = Slurm(folder, by_cgroups=by_cgroups)
    with _ended_with_us(folder, *slurm.cgroups):
        try:
            slurm.start()
            yield slurm
        finally:
            slurm.stop()
            for top in slurm.cgroups:
                _remove(top)


def _remove(cgroup: Path) -> None:
    """Remove a cgroup and those below it, which are empty."""
    for folder, _, _ in os.walk(cgroup, topdown=False):
        os.rmdir(folder)


@contextlib.contextmanager
def munge(folder: Path) -> Iterator[Path]:
    """Munge alone, as long as the block; gives its socket."""
    slurm = Slurm(folder)
    with _ended_with_us(folder):
        try:
            slurm.start_munged()
            yield folder / "munge.socket"
        finally:
            slurm.stop_daemons()


@contextlib.contextmanager
def _ended_with_us(folder: Path, *cgroups: Path) -> Iterator[None]:
    """Have all that belongs to the cluster in the folder killed, should this process be killed within the block."""
    assert folder.is_absolute() and len(folder.parts) > 2, "every process whose environment names it is killed"
    waits = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", ENDS_ALL, str(folder), *map(str, cgroups)],
        stdin=subprocess.PIPE,
        cwd="/",
        start_new_session=True,
        text=True,
    )
    try:
        yield
    finally:
        waits.communicate("over")


def missing() -> str:
    """What this machine lacks for it; empty where it has all."""
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
    lacking = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    return f"no {', '.join(lacking)}" if lacking else "" if os.geteuid() == 0 else "not root"


def no_cgroups() -> str:
    """Why no Slurm can know its processes by cgroups here; empty where one can."""
    tried = FREEZER / f"holdfast-{os.getpid()}"
    try:
        tried.mkdir()
        tried.rmdir()
    except OSError as error:
        return f"no cgroup can be made in {FREEZER}: {error.strerror}"
    return ""


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _wait_until(condition: object, what: str) -> None:
    deadline = time.monotonic() + READY_S
    while True:
        with contextlib.suppress(subprocess.SubprocessError):
            if condition():  # type: ignore[operator]
                return
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {READY_S:.0f} s: {what}")
        time.sleep(0.1)
