"""How parked processes become the ranks of a launch.

A rank's child goes the way of a cold one (account, secrets, directory, build locks), and instead of running the program
it hands environment, directory and descriptors to the parked process, which takes them and says so. Only once the
journal names all ranks does each get the last word, and its program begins; without it a parked process ends. So one
that is late, or can't be what a fresh process would be, has run nothing of the program when its rank starts cold.
"""

from __future__ import annotations

import array
import os
import select
import signal
from _socket import SCM_RIGHTS, SOL_SOCKET
from _socket import socket as Socket

from holdfast_agent.shim.failpoints import hit
from holdfast_agent.shim.processes import now_s, printable, read_small

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NoReturn

    from holdfast_agent.shim.launch import Identity, Plan
    from holdfast_agent.shim.walls.cgroup import Cgroup

CAP_SYS_NICE, CAP_SYS_RESOURCE = 23, 24
TAKEN_S = 2.0  # for a parked process to take what its rank gets
ENDED_S = 2.0  # for one that is killed because the launch has no use for it
ANSWER_BYTES = 1024
MEET = b"HOLDFAST_MEET=1\0"  # among what is handed over: wait until the gang's first rank listens
ESTABLISHED = b"01"
STATUS_FIELDS = (
    b"Umask:",
    b"Uid:",
    b"Gid:",
    b"Groups:",
    b"SigBlk:",
    b"SigIgn:",
    b"CapInh:",
    b"CapPrm:",
    b"CapEff:",
    b"CapBnd:",
    b"CapAmb:",
    b"NoNewPrivs:",
    b"Seccomp:",
    b"THP_enabled:",
    b"Cpus_allowed:",
    b"Mems_allowed:",
)
FILES = ("limits", "coredump_filter", "personality", "timerslack_ns", "loginuid")
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts")
FACT = 64  # exit status of a rank's child that finds the first fact changed; the next is one more


def facts(plan: Plan) -> dict[str, bytes]:
    """By name, what a rank's program inherits of this process beside environment and descriptors, and its Python."""
    lines = {line.partition(b"\t")[0]: line for line in _read("status").splitlines()}
    found = {field.decode(): lines.get(field, b"") for field in STATUS_FIELDS}
    found |= {name: _read(name) for name in FILES}
    for name in NAMESPACES:
        try:
            found[f"{name} namespace"] = os.readlink(f"/proc/self/ns/{name}").encode()
        except OSError:
            found[f"{name} namespace"] = b""
    root = os.stat("/")
    found["root directory"] = b"%d %d" % (root.st_dev, root.st_ino)
    return found | {"its directory": plan.cwd, "its Python": b"%d %d %d" % _found(plan)}


def _read(name: str) -> bytes:
    try:
        return read_small(f"/proc/self/{name}")
    except OSError:
        return b""  # not readable after a change of account: then the same for all


def _found(plan: Plan) -> tuple[int, int, int]:
    """The file that the command names, as something that can be compared."""
    name = plan.argv[0]
    folders = [b""] if b"/" in name else plan.env.get(b"PATH", os.defpath.encode()).split(b":")
    for folder in folders:
        try:
            found = os.stat(os.path.join(folder, name) if folder else os.path.join(plan.cwd, name))
        except OSError:
            continue
        return found.st_dev, found.st_ino, found.st_mtime_ns
    return 0, 0, 0


def _may(capability: int) -> bool:
    """Whether this process has an effective capability, by its number."""
    lines = {line.partition(b"\t")[0]: line.split()[1] for line in _read("status").splitlines() if b"Cap" in line}
    return bool(int(lines.get(b"CapEff:", b"0"), 16) >> capability & 1)


def be_idle() -> None:
    """Leave processors and memory to others, as far as that can be taken back."""
    if _may(CAP_SYS_NICE):
        os.setpriority(os.PRIO_PROCESS, 0, 19)
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    if _may(CAP_SYS_RESOURCE):
        _set_oom_score("self", 1000)


def restore(pid: int, identity: Identity) -> None:
    """Give a parked process the priority that a fresh one would have. Raises OSError."""
    if _may(CAP_SYS_NICE):
        os.sched_setscheduler(pid, os.sched_getscheduler(0), os.sched_getparam(0))
        os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, 0))
    if _may(CAP_SYS_RESOURCE):
        own = int(_read("oom_score_adj") or 0)
        _set_oom_score(str(pid), 0 if identity.oom_adjusted else own)


def _set_oom_score(process: str, score: int) -> None:
    fd = os.open(f"/proc/{process}/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, b"%d" % score)
    finally:
        os.close(fd)


def is_met(pid: int, env: dict[bytes, bytes]) -> bool:
    """Whether something in a rank's network is connected to the address at which the gang's first rank is to listen."""
    port = env.get(b"MASTER_PORT", b"")
    if not port.isdigit():
        return False
    wanted = b":%04X" % int(port)
    for name in ("tcp", "tcp6"):
        try:
            with open(f"/proc/{pid}/net/{name}", "rb") as file:
                fields = map(bytes.split, file)
                if any(each[2].endswith(wanted) and each[3] == ESTABLISHED for each in fields):
                    return True
        except OSError:
            pass  # it has ended meanwhile, or there is no such network
    return False


class Parked:
    """A parked process and the rank that it is to become. ``inherits`` is what it inherited when it was prepared."""

    survived = False
    """It was a rank of the last generation: then it keeps what its program has changed."""
    meets = False
    """It begins once the gang's first rank listens at the address that all know."""

    def __init__(self, plan: Plan, pid: int, link: Socket, inherits: dict[str, bytes]) -> None:
        self.plan, self.pid, self.link, self.inherits = plan, pid, link, inherits

    def hand_over(self) -> NoReturn:
        """In the rank's child, in place of its program: give all that differs from rank to rank, and end."""
        status = FACT - 1
        try:
            status = self._hand_over()
        finally:
            os._exit(status)

    def _hand_over(self) -> int:
        for number, (name, fact) in enumerate(() if self.survived else facts(self.plan).items()):
            if fact != self.inherits.get(name):
                return FACT + number
        hit("shim.handover.before")
        data = self.given() + (MEET if self.meets else b"")
        fds = array.array("i", [0, 1, 2, os.open(".", os.O_RDONLY | os.O_DIRECTORY)])
        self.link.sendmsg([len(data).to_bytes(8, "big")], [(SOL_SOCKET, SCM_RIGHTS, fds)])
        self.link.sendall(data)
        hit("shim.handover.after")
        return 0

    def given(self) -> bytes:
        """Its environment, as it takes it."""
        return b"".join(b"%s=%s\0" % item for item in self.plan.env.items())

    def answer(self, child: int, deadline: float) -> str:
        """Wait until all is taken: why it is not, or an empty text. Reaps the rank's child."""
        poll = select.poll()
        poll.register(self.link.fileno(), select.POLLIN)
        watched = os.pidfd_open(child)
        try:
            poll.register(watched, select.POLLIN)
            while ready := dict(poll.poll(max(0.0, 1000 * (deadline - now_s())))):
                if watched in ready:
                    poll.unregister(watched)
                    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                    if code:
                        named = list(self.inherits)[code - FACT : code - FACT + 1] if code >= FACT else []
                        return f"{named[0].rstrip(':')} has changed" if named else "it can't be handed over"
                if self.link.fileno() in ready:
                    said = self.link.recv(ANSWER_BYTES)
                    return "" if said == b"1" else printable(said[1:]) or "a parked process has ended"
        except OSError as error:
            return error.strerror or "its socket fails"
        finally:
            os.close(watched)
        return f"a parked process has not answered within {TAKEN_S:g} s"


def await_end(pids: Sequence[int]) -> None:
    """Wait a little for children that were killed, so that what they hold is free before others start."""
    deadline = now_s() + ENDED_S
    for pid in pids:
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            continue  # no descriptor left: the GPUs say for themselves when they are free
        try:
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            poll.poll(max(0.0, 1000 * (deadline - now_s())))
        finally:
            os.close(fd)


class Release:
    """The parked processes of a launch, by rank, from the hand-over to the last word. They are our children.

    ``cgroup`` is the one that they were parked in, until ``close``.
    """

    def __init__(self, parked: dict[int, Parked], cgroup: Cgroup | None) -> None:
        self.parked, self.cgroup = parked, cgroup
        self.cold = ""  # why a rank is started cold after all
        for each in parked.values():
            each.plan.before_program = each.hand_over

    def prefer(self, survivors: dict[int, Parked]) -> None:
        """Have survivors be their ranks again, in place of what was parked for these."""
        for rank, each in survivors.items():
            if rank in self.parked:
                self._drop(rank)
            self.parked[rank] = each
            each.plan.before_program = each.hand_over

    def ready(
        self, children: Sequence[tuple[Plan, int]], start: Callable[[Plan], int | None]
    ) -> list[tuple[Plan, int]]:
        """Plans and pids of all ranks, once each parked process has taken what it gets, or is ended and its rank
        started cold by ``start``, which returns None where it can't.
        """
        hit("shim.release.before")
        deadline = now_s() + TAKEN_S
        pids = []
        for plan, child in children:
            if (parked := self.parked.get(plan.rank)) is None:
                pids.append((plan, child))
                continue
            pid: int | None = parked.pid
            if why := parked.answer(child, deadline):
                self.cold = why
                self._drop(plan.rank)
                pid = start(plan)
            if pid is not None:
                pids.append((plan, pid))
        for rank in self.parked.keys() - {plan.rank for plan, _ in children}:
            self._drop(rank)  # its child could not be forked
        return pids

    def _drop(self, rank: int) -> None:
        parked = self.parked.pop(rank)
        parked.plan.before_program = None
        parked.link.close()  # without the last word
        os.kill(parked.pid, signal.SIGKILL)  # not reaped, so it is ours
        if parked.survived:
            await_end([parked.pid])

    def cancel(self) -> None:
        """End all of them."""
        for rank in list(self.parked):
            self._drop(rank)

    def have_meet(self) -> None:
        """Have all but the gang's first rank begin when that listens.

        A library that is refused tries again only after half a second or so.
        """
        for each in self.parked.values():
            each.meets = each.plan.env.get(b"RANK") != b"0"

    def go(self) -> None:
        """Give all the last word, the lowest rank first: the others look for it."""
        if self.cgroup:
            self.cgroup.lift()
        for _, parked in sorted(self.parked.items()):
            try:
                parked.link.send(b"e" if parked.plan.guarded_by else b"g")
            except OSError:
                pass  # it has ended: its exit will say how
            parked.link.close()
            parked.plan.before_program = None
        hit("shim.release.after")

    def close(self) -> None:
        """Remove the cgroup that they were in: they have been moved."""
        if self.cgroup:
            self.cgroup.close()
            self.cgroup = None
