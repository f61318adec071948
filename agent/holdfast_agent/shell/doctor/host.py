"""Looks at the host as a whole: accounts, cgroups, clock, limits, memory, tracing, the unit."""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path

from holdfast import __version__
from holdfast.errors import ConfigError, Denied, Unavailable
from holdfast_agent.core.doctor.accounts import AccountFacts, last_setting
from holdfast_agent.core.doctor.cgroups import CgroupFacts
from holdfast_agent.core.doctor.clock import ClockFacts
from holdfast_agent.core.doctor.containers import ContainerFacts
from holdfast_agent.core.doctor.debugging import DebuggingFacts
from holdfast_agent.core.doctor.limits import LimitFacts
from holdfast_agent.core.doctor.memory import MemoryFacts
from holdfast_agent.core.doctor.packages import PackageFacts
from holdfast_agent.core.doctor.service import UNIT, ServiceFacts
from holdfast_agent.core.launch.environment import DEFAULT_PATH
from holdfast_agent.core.launch.pip_config import settings_of
from holdfast_agent.shell import config
from holdfast_agent.shell.cgroups import cgroups
from holdfast_agent.shell.config import Config
from holdfast_agent.shell.containers import containers
from holdfast_agent.shell.doctor import status_client
from holdfast_agent.shell.doctor.reading import drop_ins, number, said, text
from holdfast_agent.shell.packages.installer import Installer
from holdfast_agent.shell.packages.interpreter import Interpreter
from holdfast_agent.shell.packages.settings import CodeProblem
from holdfast_agent.shell.prepare import preflight
from holdfast_agent.shell.prepare.launch_order import why_shm_is_shared
from holdfast_agent.shim.walls.namespaces import SHM

_SYS_PTRACE = 1 << 19
TOOL_S = 10.0
_TIMEX = struct.Struct("=I4xqqqqi164x")
"""struct timex of 64-bit Linux as far as the status: modes, offset, freq, maxerror, esterror, status."""
_UNSYNCHRONISED = 0x40
_UNIT_KEYS = (
    "LoadState,ActiveState,UnitFileState,NeedDaemonReload,KillMode,Delegate,"
    "LimitNOFILESoft,LimitMEMLOCKSoft,LimitSTACKSoft,LimitNPROCSoft,TasksMax"
)
_PROC_LIMITS = {
    "Max open files": "nofile",
    "Max locked memory": "memlock",
    "Max stack size": "stack",
    "Max processes": "nproc",
}


def accounts(settings: Config) -> AccountFacts:
    uid: int | None = os.geteuid()
    if settings.worker_user:
        try:
            uid = pwd.getpwnam(settings.worker_user).pw_uid
        except KeyError:
            uid = None
    return AccountFacts(
        agent_is_root=os.geteuid() == 0,
        worker_user=settings.worker_user,
        uid=uid,
        allows_root=settings.allow_root_workers,
        private_shm=not why_shm_is_shared(settings),
        logind=Path("/run/systemd/system").is_dir() and Path("/run/systemd/seats").is_dir(),
        logind_conf=drop_ins("logind.conf"),
    )


def cgroup_tree(settings: Config) -> CgroupFacts:
    mount = cgroups.top()
    above = str(settings.cgroup_root) if settings.cgroup_root else mount
    held = [line.split("\t") for line in text("/proc/cgroups").splitlines() if not line.startswith("#")]
    kernel = tuple(map(int, os.uname().release.split("-")[0].split(".")[:2])) if above else (0, 0)
    writable = bool(above) and os.access(above, os.W_OK)
    return CgroupFacts(
        wanted=settings.cgroups,
        mount=mount,
        above=above,
        controllers=tuple(text(f"{above}/cgroup.controllers").split()) if above else (),
        writable=writable,
        denied=not writable and os.geteuid() != 0,
        kill=kernel >= (5, 14) or any(Path(above).glob("*/cgroup.kill")),
        version1=tuple(name for name, hierarchy, *_ in held if hierarchy != "0"),
    )


def clock() -> ClockFacts:
    buffer = ctypes.create_string_buffer(_TIMEX.size)
    if struct.calcsize("P") != 8 or ctypes.CDLL(None).adjtimex(buffer) < 0:
        return ClockFacts(None)
    _, _, _, most_us, _, status = _TIMEX.unpack(buffer.raw)
    return ClockFacts(not status & _UNSYNCHRONISED, most_us / 1e6)


def container_engine(settings: Config, gpus: tuple[str, ...]) -> ContainerFacts:
    found = containers.find(settings.containers, settings.name, settings.state_dir)
    return ContainerFacts(
        enabled=settings.containers.enabled,
        root=os.geteuid() == 0,
        problem=found.problem,
        gpu_problem=containers.cdi_problem(gpus) if gpus else None,
    )


def debugging(settings: Config) -> DebuggingFacts:
    pid = agent_pid(settings)
    status = text(f"/proc/{pid or 'self'}/status").splitlines()
    effective = next((line.split()[1] for line in status if line.startswith("CapEff:")), "0")
    uids = next((line.split() for line in status if line.startswith("Uid:")), ["", "0", str(os.geteuid())])
    return DebuggingFacts(
        ptrace_scope=number("/proc/sys/kernel/yama/ptrace_scope", 0),
        capable=bool(int(effective, 16) & _SYS_PTRACE),
        agent_is_root=uids[2] == "0",
        spy=_starts("py-spy"),
        native=_starts("pystack"),
        processor=os.uname().machine,
        core_pattern=text("/proc/sys/kernel/core_pattern", "core"),
    )


def _starts(program: str) -> bool:
    """Whether a stack dump tool can be started: it is there, for this processor and this C library."""
    path = shutil.which(program, path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}")
    if path is None:
        return False
    try:
        return subprocess.run([path, "--version"], capture_output=True, timeout=TOOL_S).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def packages(settings: Config) -> PackageFacts:
    """Sources of installations for the account of workers, by the environment of the agent that runs, else ours.

    Raises ``PermissionError`` where only root can look.
    """
    pid = agent_pid(settings)
    own = dict(pair.partition("=")[::2] for pair in text(f"/proc/{pid}/environ").split("\0")) if pid else os.environ
    try:
        site = config.read_env_file(settings.env_file)
        search_path = site.get("PATH", DEFAULT_PATH)
        installer = Installer(config.worker_user(settings))
        asked = Interpreter(settings.packages, installer, search_path, settings_of(own, site))
        found = asked.look(settings.packages_dir)
    except ConfigError as problem:
        if os.geteuid() != 0:
            raise PermissionError("only root can ask as the account of workers") from problem
        return PackageFacts(problem=problem.message)
    except CodeProblem as problem:
        return PackageFacts(problem=problem.message, installer=_starts("uv"))
    return PackageFacts(found.sources.in_words(), installer=_starts("uv"))


def limits(settings: Config) -> LimitFacts:
    """Limits of the running agent, else of its unit, else our own."""
    pid = agent_pid(settings)
    source, found = f"the agent (pid {pid})", _limits_of(pid) if pid else {}
    if not found:
        source, found = UNIT, _limits_of_unit()
    if not found:
        source, found = "this shell", preflight.own_limits(root=False)
    counted = os.geteuid() != 0 if not settings.worker_user else settings.worker_user != "root"
    return LimitFacts(
        source,
        **{name: found.get(name) for name in ("nofile", "memlock", "stack", "nproc", "tasks")},
        pid_max=number("/proc/sys/kernel/pid_max", 32768),
        default_memlock=last_setting(drop_ins("system.conf"), "DefaultLimitMEMLOCK", ""),
        counted=counted,
        minimums=settings.checks,
    )


def memory(settings: Config) -> MemoryFacts:
    shm = os.statvfs(SHM) if os.path.ismount(SHM) else None
    meminfo = dict(line.split(":", 1) for line in text("/proc/meminfo").splitlines())
    chosen = text("/sys/kernel/mm/transparent_hugepage/defrag")
    return MemoryFacts(
        shm_bytes=shm.f_blocks * shm.f_frsize if shm else None,
        shm_free_bytes=shm.f_bavail * shm.f_frsize if shm else 0,
        private_shm=not why_shm_is_shared(settings),
        shm_least_mb=settings.checks.shm_free_mb,
        swap_bytes=int(meminfo.get("SwapTotal", "0 kB").split()[0]) << 10,
        numa_nodes=len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or 1,
        numa_balancing=text("/proc/sys/kernel/numa_balancing") == "1",
        huge_defrag=chosen.partition("[")[2].partition("]")[0],
    )


def service(settings: Config) -> ServiceFacts:
    running, denied, connected = "", False, False
    try:
        answer = status_client.ask(settings.state_dir)
        running, connected = str(answer["version"]), bool(answer["connected"])
    except Denied:
        denied = True
    except Unavailable:
        pass
    return ServiceFacts(
        systemd=Path("/run/systemd/system").is_dir(),
        installed=__version__,
        unit=_unit(),
        running=running,
        denied=denied,
        connected=connected,
    )


def agent_pid(settings: Config) -> int:
    """Pid of the agent that runs on this state; 0 if none answers."""
    try:
        return int(status_client.ask(settings.state_dir)["pid"])
    except (Denied, Unavailable):
        return 0


def own_name() -> str:
    """This machine's name, for the page's title where the settings name no host."""
    return socket.gethostname()


def _unit() -> dict[str, str]:
    lines = said("systemctl", "show", UNIT, f"--property={_UNIT_KEYS}").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def _limits_of_unit() -> dict[str, int | None]:
    unit = _unit()
    if unit.get("LoadState") != "loaded":
        return {}
    named = {"nofile": "LimitNOFILESoft", "memlock": "LimitMEMLOCKSoft", "stack": "LimitSTACKSoft"}
    named |= {"nproc": "LimitNPROCSoft", "tasks": "TasksMax"}
    return {name: _amount(unit.get(key, "")) for name, key in named.items()}


def _limits_of(pid: int) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    for line in text(f"/proc/{pid}/limits").splitlines():
        for start, name in _PROC_LIMITS.items():
            if line.startswith(start):
                found[name] = _amount(line[len(start) :].split()[0])
    if found:
        found["tasks"] = _tasks_of(pid)
    return found


def _tasks_of(pid: int) -> int | None:
    """The least that any of its cgroups above allows."""
    allowed = []
    for line in text(f"/proc/{pid}/cgroup").splitlines():
        _, names, path = line.split(":", 2)
        tree = cgroups.top() if not names else "/sys/fs/cgroup/pids" if "pids" in names.split(",") else ""
        here = Path(tree + path)
        while tree and len(str(here)) >= len(tree):
            allowed.append(_amount(text(here / "pids.max")))
            here = here.parent
    return min((each for each in allowed if each is not None), default=None)


def _amount(word: str) -> int | None:
    return int(word) if word.isdecimal() and int(word) < 1 << 63 else None
