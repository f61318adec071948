"""From a launch order to running ranks.

Whatever can fail in the parent is tried before the intent is written: the order is checked and encoded, files are
opened. After that a rank is forked, and what fails in the child (its identity, its directory, its program) comes
back as a sentence through a close-on-exec pipe, so that it never looks like an exit code of the program.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal

from holdfast_agent.shim import build_locks, capabilities, secret_files, terminal, torch_names
from holdfast_agent.shim.process_setup import die_of, hold
from holdfast_agent.shim.processes import printable, read_small
from holdfast_agent.shim.walls.binding import Binding

PR_SET_PDEATHSIG = 1
OOM_SCORE_ADJ = "/proc/self/oom_score_adj"
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    from holdfast_agent.shim.generation import Generation
    from holdfast_agent.shim.terminal import Terminal


class Plan:
    """How to start one rank. Raises ValueError, KeyError, TypeError or AttributeError for a bad order."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.rank = int(order["rank"])
        self.argv = [encode(argument) for argument in order["argv"]]
        self.env = {encode(name): encode(value) for name, value in order["env"].items()}
        self.cwd = encode(order["cwd"])
        self.stdout, self.stderr = encode(order["stdout"]), encode(order["stderr"])
        self.files: list[int] = []
        self.wants_terminal = bool(order.get("terminal", False))
        self.terminal: Terminal | None = None
        self.guarded_by = 0  # the shim's pid, where the rank must not outlive it
        self.clears_locks = False  # one rank of a worker does it for all
        self.before_program: Callable[[], None] | None = None  # the last that its child does
        files = order.get("secret_files", {})
        self.secret_files = {encode(name): encode(path) for name, path in files.items()}
        self.binding = Binding(order["binding"]) if order.get("binding") else None
        if not self.argv or not self.argv[0]:
            raise ValueError("the command is empty")
        if any(not name or b"=" in name for name in self.env):
            raise ValueError("a variable's name is empty or contains '='")

    def open_files(self, uid: int | None, gid: int | None) -> None:
        """Opens where the rank's output goes, as its user's own. Raises OSError."""
        # O_NONBLOCK until it is open: a FIFO that was put there must not hold us up.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        for path in (self.stdout, self.stderr):
            fd = os.open(path, flags, 0o600)
            self.files.append(fd)
            os.set_blocking(fd, True)
            if uid is not None and gid is not None:
                os.fchown(fd, uid, gid)

    def close_files(self) -> None:
        """Close the parent's copies of the rank's files."""
        while self.files:
            os.close(self.files.pop())


def encode(text: str) -> bytes:
    """The bytes that were meant. Raises ValueError where a C string can't hold them."""
    data = text.encode("utf-8", "surrogateescape")
    if b"\0" in data:
        raise ValueError(f"{printable(data[:60])!r} contains a NUL byte")
    return data


class Identity:
    """Account and limits of a generation's ranks. Raises as Plan does."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.uid: int | None = order["uid"]
        self.gid: int | None = order["gid"]
        self.groups: list[int] | None = order["groups"]
        self.umask = int(order["umask"])
        self.core_bytes = int(order["core_bytes"])  # negative: no limit
        self.oom_adjusted = True
        if self.uid is not None and self.gid is None:
            raise ValueError("a uid needs a gid")

    def prepare(self) -> None:
        """Sets what ranks inherit of us: no capability to regain where they are not root, and their core limit, or
        the highest possible below it. Raises OSError.
        """
        if self.uid:
            capabilities.leave_none_to_gain()
        self.oom_adjusted = read_small(OOM_SCORE_ADJ) != b"0\n"
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        wanted = self.core_bytes if self.core_bytes >= 0 else resource.RLIM_INFINITY
        if hard == resource.RLIM_INFINITY or 0 <= wanted <= hard:
            resource.setrlimit(resource.RLIMIT_CORE, (wanted, hard))
            return
        try:
            resource.setrlimit(resource.RLIMIT_CORE, (wanted, wanted))
        except ValueError:
            resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))

    def take(self) -> None:
        """In the child. Raises OSError."""
        os.umask(self.umask)
        if self.groups is not None or self.uid is not None:
            os.setgroups(self.groups or [])
        if self.gid is not None:
            os.setresgid(self.gid, self.gid, self.gid)
        if self.uid is not None:
            os.setresuid(self.uid, self.uid, self.uid)  # the last: with it goes the right to any of this


def spawn(plan: Plan, identity: Identity, generation: Generation, null: int, failures: int) -> int:
    """Forks one rank, leader of its own group, and returns its pid. Raises OSError when there can be no process.

    SIGTERM is to be blocked: one that comes before the child can die of it waits for it there.
    """
    pid = generation.cgroup.fork() if generation.cgroup else os.fork()
    if pid == 0:
        become(plan, identity, generation, null, failures)
    if plan.terminal:
        return pid  # it leads a session of its own soon, which the leader of a group could not
    try:
        os.setpgid(
            pid, pid
        )  # in both parent and child, whichever runs first: killpg must find the group from now on
    except OSError:
        pass  # the child was first
    return pid


def become(plan: Plan, identity: Identity, generation: Generation, null: int, failures: int) -> NoReturn:
    """The child's way to its program; says through `failures` what stopped it."""
    problem, number = "its start failed", 0
    try:
        if plan.terminal:
            terminal.take(plan.terminal.slave)
        else:
            os.setpgid(0, 0)
        die_of(signal.SIGTERM)  # the others go back to it by themselves, in exec
        hold()
        for target, fd in enumerate([plan.terminal.slave] * 3 if plan.terminal else (null, *plan.files)):
            os.dup2(fd, target)
        if identity.oom_adjusted:
            offer_to_oom_killer()
        if plan.secret_files:
            problem = "cannot read its secrets"
            plan.env |= secret_files.read(plan.secret_files, identity)  # before a container hides the host's files
        if generation.room:
            problem = "cannot enter the job's /dev/shm"
            generation.room.enter()
        problem = "cannot take the user's identity"
        identity.take()
        problem = f"cannot change to {printable(plan.cwd)}"
        os.chdir(plan.cwd)
        if plan.clears_locks:
            build_locks.tell(build_locks.remove_dead(plan.env))
        torch_names.leave_out_old(plan.argv, plan.env)
        if plan.guarded_by:
            problem = "its start came too late"
            end_with(plan.guarded_by)
        if plan.before_program:
            problem = "its warm start failed"
            plan.before_program()
        if plan.binding:
            plan.binding.take()
        problem, number = execute(plan.argv, plan.env)
    except secret_files.Unreadable as unreadable:
        problem, number = str(unreadable), unreadable.errno
    except OSError as error:
        number = error.errno or 0
        problem += f": {os.strerror(number)}"
    finally:
        os.write(failures, f"{plan.rank} {number} {' '.join(problem[:1000].splitlines())}\n".encode())
        os._exit(127)


def end_with(shim: int) -> None:
    """Has the kernel kill this process when its parent is gone. Raises OSError where that can't be or has happened."""
    if ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL) or os.getppid() != shim:
        raise OSError(errno.ESRCH, "the shim is gone")


def offer_to_oom_killer(score: bytes = b"0") -> None:
    """Takes back the protection that a rank would inherit from the daemons; at 1000 it is the first to be killed."""
    try:
        fd = os.open(OOM_SCORE_ADJ, os.O_WRONLY | os.O_CLOEXEC)
        os.write(fd, score)
        os.close(fd)
    except OSError:
        pass  # ours is higher and may not be lowered: it stays


def execute(argv: list[bytes], env: dict[bytes, bytes]) -> tuple[str, int]:
    """Becomes the program, found as execvpe finds it; comes back only to say why that can't be done, with the errno."""
    name, problem, number = argv[0], "", 0
    search = [b""] if b"/" in name else env.get(b"PATH", os.defpath.encode()).split(b":")
    for folder in search:
        path = name if b"/" in name else os.path.join(folder or b".", name)
        try:
            os.execve(path, argv, env)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                words = os.strerror(error.errno or 0).lower()
                number = number or error.errno or 0
                problem = problem or f"{printable(path)}: {words}{hint(path, error.errno)}"
            elif error.errno == errno.ENOENT and os.path.exists(path):
                problem = problem or f"{printable(path)}: {no_interpreter(path)}"
    return problem or f"{printable(name)}: no such file{'' if b'/' in name else ' on PATH'}", number


def no_interpreter(path: bytes) -> str:
    """Why the kernel does not find what runs a file that is there: the name is all that a blank or the line ends."""
    line = beginning(path).partition(b"\n")[0]
    named = line[2:].strip(b" \t").replace(b"\t", b" ").split(b" ")[0] if line.startswith(b"#!") else b""
    if named.endswith(b"\r"):
        name = printable(named.removesuffix(b"\r"))
        return f"its lines end as on Windows, so its interpreter is {name} with a carriage return"
    return f"its interpreter {printable(named)}".rstrip() + " does not exist"


def hint(path: bytes, number: int | None) -> str:
    """In brackets, the cause that the kernel's word on a file leaves open; empty where that says all."""
    if number == errno.EACCES and is_noexec(path):
        return " (its file system is mounted noexec)"
    begins = beginning(path)
    if number != errno.ENOEXEC or begins.startswith(b"#!"):
        return ""
    if begins.startswith(b"\x7fELF"):
        return " (it is no program for this machine)"
    if begins.startswith(b"\xef\xbb\xbf#!"):
        return " (it begins with a byte order mark, so it has no #! line)"
    return " (it has no #! line: write one, such as #!/bin/bash)" if begins else " (it is empty)"


def is_noexec(path: bytes) -> bool:
    """Whether a file lies on a file system that runs no programs."""
    try:
        return bool(os.statvfs(path).f_flag & os.ST_NOEXEC)
    except OSError:
        return False


def beginning(path: bytes) -> bytes:
    """The first bytes of a file; none where it can't be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            return os.read(fd, 256)
        finally:
            os.close(fd)
    except OSError:
        return b""
