"""The next generation's ranks, parked: forked from a process that has imported what the program imports.

Theory of operation. A program's own imports are most of a restart's time. The first rank of a worker that starts cold
runs with a hook (``hook/sitecustomize.py``) that writes the names of the modules it imports into a memory that the shim
holds. Once nothing has been added to it for a while, the shim forks a *keeper*; below it the program's own command line
is started with the same hook, which imports those modules, forks one process for each rank, and ends. These are parked:
they wait at a socket each, and have read nothing of the program. At the launch the keeper is ended, so the parked
processes become the shim's own children, and each gets its environment, directory and descriptors. Until then:

- *They are below the keeper, and nothing else is.* So "the keeper is the only child" proves that the generation is
  empty, as "no child" does without one; the kernel's list of our children is exact, since only we reap.
- *They end with us.* The keeper is killed with the shim, and a parked process ends when its socket is closed.
- *They are for one generation*, its namespaces included. What differs from what was prepared is started cold.
- *They are no work:* in a cgroup of their own, at the lowest priority, within a share of the memory.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import time
from _socket import AF_UNIX, SOCK_CLOEXEC, SOCK_STREAM, socketpair
from _socket import socket as Socket

from holdfast_agent.shim import launch, process_setup, torch_names
from holdfast_agent.shim.failpoints import hit
from holdfast_agent.shim.processes import Process, children, descendants, now_s, printable, read_small
from holdfast_agent.shim.walls.cgroup import Cgroup
from holdfast_agent.shim.warm import release
from holdfast_agent.shim.warm.imports import VARIABLE, add_hook, module_run
from holdfast_agent.shim.warm.release import Parked, Release

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn

    from holdfast_agent.shim.launch import Identity, Plan
    from holdfast_agent.shim.walls.namespaces import Room
    from holdfast_agent.shim.warm.imports import Warm

HOST_SHARE, WORKER_SHARE = 20, 10  # parts of the host's memory, and of the worker's, that they may take
PIDS = 4096
SPACE, MOST_SPACE = 2048, 100 << 10  # bytes kept in /proc/PID/environ for what comes at the release, and at most
REPORT_BYTES = 1 << 20
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
CONTRACT = (b"HOLDFAST_", b"MASTER_", b"PET_", b"JAX_", b"OMPI_", b"TORCHELASTIC_", b"MA_", b"TORCH_FR_DUMP_")
CONTRACT_NAMES = frozenset(
    b"RANK LOCAL_RANK GROUP_RANK WORLD_SIZE LOCAL_WORLD_SIZE TF_CONFIG CLUSTER_SPEC NCCL_RAS_ADDR"
    b" TORCH_NCCL_DEBUG_INFO_TEMP_FILE TORCH_NCCL_DEBUG_INFO_PIPE_FILE".split()
)
"""Variables that may differ from generation to generation."""
MARKS = frozenset((b"HOLDFAST_JOB", b"HOLDFAST_WORKER", b"HOLDFAST_HOST"))
"""Variables by which a dead shim's processes are found; they never differ."""
GENERATION = b"HOLDFAST_GENERATION"


def varies(name: bytes) -> bool:
    """Whether a variable may have another value in the next generation."""
    return name not in MARKS and (name in CONTRACT_NAMES or name.startswith(CONTRACT))


class ParkedRanks:
    """The parked ranks of one generation, or what is on its way to them. Raises OSError where there can be none.

    ``fd`` is to be watched, and ``hear`` called when it is readable.
    """

    def __init__(
        self,
        number: int,
        plans: Sequence[Plan],
        identity: Identity,
        warm: Warm,
        names: list[tuple[str, str]],
        room: Room | None,
        cgroup: str,
        memory_bytes: int,
    ) -> None:
        self.number, self.identity, self.names, self.room = number, identity, names, room
        self.argv, self.ranks = plans[0].argv, [plan.rank for plan in plans]
        self.limit_bytes = min(_memory_bytes() // HOST_SHARE, (memory_bytes or _memory_bytes()) // WORKER_SHARE)
        self.pids: list[int] = []  # once they are parked
        self.bytes = self.modules = 0
        self.unsafe = ""  # the package for which there is none
        self._starts: list[int] = []
        self.inherits: dict[str, bytes] = {}  # by what their Python was started with
        self._said = b""
        self.fd = -1
        everywhere = set.intersection(*(set(plan.env.items()) for plan in plans))
        self.env = dict(sorted((name, value) for name, value in everywhere if not varies(name)))
        self.known = {name for plan in plans for name in (*plan.env, *plan.secret_files)}
        others = (self.known - self.env.keys()) | CONTRACT_NAMES
        varying = [name.decode("utf-8", "surrogateescape") for name in sorted(others)]
        given = [name.decode("utf-8", "surrogateescape") for name in (*self.env, b"PYTHONPATH")]
        order: dict[str, Any] = {
            "names": names,
            "preload": warm.preload,
            "never": warm.never,
            "varying": varying,
            "given": given,
            "bound": any(plan.binding for plan in plans),
        }
        order["main"] = module_run(self.argv)
        order["contract"] = [prefix.decode() for prefix in CONTRACT]
        largest = max(sum(len(name) + len(value) + 2 for name, value in plan.env.items()) for plan in plans)
        self._space = min(
            largest - sum(len(name) + len(self.env[name]) + 2 for name in self.env) + SPACE, MOST_SPACE
        )
        self._cgroup = Cgroup(cgroup, self.limit_bytes, PIDS) if cgroup else None
        self._sockets: list[Socket] = []
        held: list[int] = []
        theirs: list[Socket] = []
        try:
            held += os.pipe2(os.O_CLOEXEC)
            held.append(os.memfd_create("holdfast-warm", os.MFD_CLOEXEC))
            os.write(held[2], json.dumps(order).encode())
            for _ in plans:
                ours, other = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC)
                self._sockets.append(ours)
                theirs.append(other)
            self.keeper = os.fork()
            if self.keeper == 0:
                self._keep(plans[0], room, held, [each.fileno() for each in theirs])
            self.fd = held.pop(0)
            os.set_blocking(self.fd, False)
        except OSError:
            self.close()
            raise
        finally:
            for fd in held:
                os.close(fd)
            for each in theirs:
                each.close()

    # -- in the children

    def _keep(self, plan: Plan, room: Room | None, held: list[int], sockets: list[int]) -> NoReturn:
        """Be the parent of what is parked, until nothing of it is left."""
        try:
            parent = os.getppid()
            libc = ctypes.CDLL(None)
            for option, value in ((PR_SET_CHILD_SUBREAPER, 1), (PR_SET_PDEATHSIG, signal.SIGKILL)):
                libc.prctl(option, ctypes.c_ulong(value), *[ctypes.c_ulong(0)] * 3)
            if os.getppid() != parent:
                os._exit(0)
            signal.set_wakeup_fd(-1)
            process_setup.take_signals()
            if self._cgroup:
                self._cgroup.enter()
            if self.identity.oom_adjusted:
                launch.offer_to_oom_killer()
            release.be_idle()
            keep = {0, 1, 2, held[1], held[2], *sockets}
            if room:
                keep |= {room.ipc, room.mounts}
            me = os.getpid()
            if os.fork() == 0:
                self._become(plan, room, me, held[1], held[2], sockets, keep)
            _close_all_but({0, 1, 2})
            while True:
                os.wait()
        except ChildProcessError:
            pass
        finally:
            os._exit(0)

    def _become(
        self,
        plan: Plan,
        room: Room | None,
        parent: int,
        control: int,
        spec: int,
        sockets: list[int],
        keep: set[int],
    ) -> NoReturn:
        """Become the program's Python, with the hook; of what goes wrong only the end of ``control`` tells."""
        try:
            _close_all_but(keep)
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 0)
            for target in (1, 2):
                os.dup2(os.memfd_create("holdfast-warm", 0), target)  # what an import prints, each rank prints
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            if room:
                room.enter()
            self.identity.take()
            libc = ctypes.CDLL(None)
            libc.prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), *[ctypes.c_ulong(0)] * 3)
            os.chdir(plan.cwd)
            env = dict(self.env)
            torch_names.leave_out_old(plan.argv, env)
            said = {name: fact.decode("latin-1") for name, fact in release.facts(plan).items()}
            os.write(control, json.dumps(said).encode() + b"\n")
            _close_all_but({0, 1, 2, control, spec, *sockets})
            for fd in (control, spec, *sockets):
                os.set_inheritable(fd, True)
            numbers = ",".join(map(str, sockets))
            add_hook(env, f"park {control} {spec} {numbers}")
            env[GENERATION] = b"%d" % (self.number - 1)  # with the marks, should the shim be gone
            env[VARIABLE + b"_SPACE"] = b"-" * self._space  # the last, behind what it is to replace
            hit("shim.park.before")
            if os.getppid() == parent:
                launch.execute(plan.argv, env)
        finally:
            os._exit(127)

    # -- what it says

    def hear(self) -> str | None:
        """None while nothing is decided; empty once all are parked; else why there will be none.

        A reason that names a package ends with it: ``unsafe`` is then set to it.
        """
        try:
            data = os.read(self.fd, REPORT_BYTES)
        except BlockingIOError:
            return None
        self._said += data
        if data and len(self._said) >= REPORT_BYTES:
            return "its report is too long"
        *lines, rest = self._said.split(b"\n")
        if data and (rest or len(lines) < 2):
            return None
        try:
            inherits, said = (json.loads(line) for line in lines)
            if "unsafe" in said:
                self.unsafe = str(said["unsafe"])
                return f"{printable(self.unsafe)} {printable(str(said['why']))}"[:200]
            self.inherits = {name: str(fact).encode("latin-1") for name, fact in inherits.items()}
            self.pids = [int(pid) for pid in said["pids"]]
            self.modules = int(said["modules"])
            if self.inherits["its Python"].split()[:2] != [b"%d" % number for number in said["python"]]:
                return "its Python is started by another program of that name"
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            return "its imports did not come to an end"
        return ""

    def settle(self) -> str:
        """Once all are parked: why they can't be used after all; empty where they can."""
        deadline = now_s() + 1
        for pid in set(children(self.keeper)) - set(self.pids):  # beside busy ranks it might not get to its end
            try:
                release.restore(pid, self.identity)
            except OSError:
                pass  # it has ended
        while sorted(children(self.keeper)) != sorted(self.pids) and now_s() < deadline:
            time.sleep(0.002)  # the process that has forked them is about to end
        try:
            self._starts = [Process(pid).start_ticks for pid in self.pids]
            self.bytes = sum(map(_proportional_bytes, self.pids))
        except OSError:
            return "a parked process has ended"
        return self._too_much() or self.changed()

    def grows_too_large(self) -> str:
        """While nothing is parked: that the imports hold more memory than they may, or an empty text."""
        try:
            self.bytes = sum(_proportional_bytes(process.pid) for process in descendants(self.keeper))
        except OSError:
            return ""  # one has ended meanwhile
        return self._too_much()

    def _too_much(self) -> str:
        if self.bytes <= self.limit_bytes:
            return ""
        return f"they would hold {self.bytes >> 20} MiB, above the {self.limit_bytes >> 20} MiB that they may"

    def changed(self) -> str:
        """Why they can't be used any more; empty where all is as it was when they were parked."""
        if sorted(children(self.keeper)) != sorted(self.pids) or len(self.pids) != len(self.ranks):
            return "not all processes that it has left are parked ranks"
        for pid, start_ticks in zip(self.pids, self._starts, strict=True):
            try:
                process = Process(pid)
                if process.dead or process.start_ticks != start_ticks:
                    return "a parked process has ended"
                if children(pid) or _threads(pid) != 1:
                    return "a parked process has started something"
            except OSError:
                return "a parked process has ended"
        return ""

    def fits(self, number: int, plans: Sequence[Plan], identity: Identity, room: Room | None) -> str:
        """Why the ranks of this launch can't be these; empty where they can."""
        if number != self.number:
            return f"it was prepared for generation {self.number}"
        if not self.pids:
            return "the preparation was under way"
        if [plan.rank for plan in plans] != self.ranks or any(plan.argv != self.argv for plan in plans):
            return "its command has changed"
        if vars(identity) != vars(self.identity):
            return "its account has changed"
        if not room.is_same(self.room) if room else self.room:
            return "its /dev/shm has changed"
        for plan in plans:
            for name in sorted(plan.env.keys() | self.env.keys()):
                if (
                    not varies(name)
                    and (name in self.env or name not in self.known)
                    and (plan.env.get(name) != self.env.get(name))
                ):
                    return f"{printable(name)} has changed"
        return self.changed()

    # -- its end

    def let_go(self, plans: Sequence[Plan]) -> Release:
        """End the keeper, so that the parked processes are this process's children. Raises OSError."""
        hit("shim.keeper.before")
        os.kill(self.keeper, signal.SIGKILL)
        os.waitpid(self.keeper, 0)
        self.keeper = 0
        hit("shim.keeper.after")
        parked = {}
        links, self._sockets = self._sockets, []
        for plan, pid, link in zip(plans, self.pids, links, strict=True):
            parked[plan.rank] = Parked(plan, pid, link, self.inherits)
        released = Release(parked, self._cgroup)
        try:
            for pid in self.pids:
                release.restore(pid, self.identity)
        except OSError:
            released.cancel()
            raise
        self._cgroup = None
        return released

    def end(self) -> None:
        """Kill what is parked and close everything; whatever is left is a child of this process's from now on."""
        if self._cgroup:
            self._cgroup.kill()
        if self.keeper:  # not reaped, so it is ours
            try:
                for process in descendants(self.keeper):
                    process.send(signal.SIGKILL)
            except OSError:
                pass  # they end by their sockets
            os.kill(self.keeper, signal.SIGKILL)
            self.keeper = 0
        self.close()

    def close(self) -> None:
        """Close all descriptors."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        for each in self._sockets:
            each.close()
        self._sockets = []
        for held in (self._cgroup, self.room):
            if held:
                held.close()
        self._cgroup = self.room = None


def are_children(pids: Sequence[int]) -> bool:
    """Whether these, in order, are all children of this process."""
    return sorted(children(os.getpid())) == pids


def _close_all_but(kept: set[int]) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            try:
                os.close(int(name))
            except OSError:
                pass  # the listing's own


def _threads(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def _proportional_bytes(pid: int) -> int:
    for line in read_small(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) << 10
    return 0


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
