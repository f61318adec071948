"""Which modules a worker's program imports, and whether its commands may be started warm at all.

The first rank of a cold generation runs with a hook (``hook/sitecustomize.py``) that writes the names of the modules it
imports into a memory that the shim holds. The rank may write anything there; only dotted names are taken from it.
"""

from __future__ import annotations

import os

from holdfast_agent.shim.processes import now_s, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from holdfast_agent.shim.journal import Record
    from holdfast_agent.shim.launch import Plan

HOOK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hook").encode()
VARIABLE = b"HOLDFAST_WARM"
HEADER_BYTES, LEARNED_BYTES = 32, 512 << 10
READ_AT_START = (
    *(b"PYTHON", b"LD_", b"GLIBC_", b"MALLOC_", b"LANG", b"LC_", b"TZ"),
    *(b"OMP_", b"GOMP_", b"KMP_", b"MKL_", b"OPENBLAS_"),
)
"""Variables that the interpreter or a library takes in before any of its Python asks for them."""
QUIET_S = 8.0  # how long nothing was added before the names are taken


class Warm:
    """Modules that the job names, and whether its ranks may go on in process. Raises as Plan does."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.preload = [str(name) for name in order.get("preload", ())]
        self.never = [str(name) for name in order.get("never", ())]
        self.in_process = bool(order.get("in_process"))


def obstacle(plans: Sequence[Plan], order: Record) -> str:
    """The reason for which ranks of such an order can't be started warm; empty where they can."""
    argv = plans[0].argv
    name = os.path.basename(argv[0])
    if any(plan.argv != argv for plan in plans):
        return "its ranks have different commands"
    if not name.startswith(b"python") or name[6:].strip(b"0123456789."):
        return f"{printable(name)} is not Python"
    if len(argv) < 2:
        return "Python is given no program"
    words = iter(argv[1:])
    for word in words:
        if not word.startswith(b"-") or word.startswith(b"--"):
            break
        valued, value = option(word)
        flags = set(word[1 : len(word) - len(valued + value)])
        if flags & set(b"IES"):
            return f"{printable(word)} leaves out what prepares it"
        if flags & set(b"i"):
            return f"{printable(word)} waits for a person"
        if valued in (b"c", b"m"):
            break
        if valued and not value:
            next(words, b"")  # what -X or -W is given
    if order.get("container"):
        return "it runs in a container"
    if any(plan.wants_terminal for plan in plans):
        return "it has a terminal"
    for name, value in plans[0].env.items():
        if name.startswith(READ_AT_START) and any(plan.env.get(name) != value for plan in plans):
            return f"{printable(name)} differs between its ranks"
    if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        return "the kernel does not list the children of a process"
    return ""


def module_run(argv: Sequence[bytes]) -> str:
    """The module that a command of Python's runs by ``-m``; empty for none."""
    words = iter(argv[1:])
    for word in words:
        if not word.startswith(b"-") or word.startswith(b"--"):
            break
        valued, value = option(word)
        if valued == b"c":
            break
        value = value or (next(words, b"") if valued else b"")
        if valued == b"m":
            return value.decode("utf-8", "surrogateescape")
    return ""


def option(word: bytes) -> tuple[bytes, bytes]:
    """The option that takes a value, among those that are written as one word, and what of the value is in it."""
    ends = min((at for at in map(word.find, (b"c", b"m", b"X", b"W")) if at > 0), default=len(word))
    return word[ends : ends + 1], word[ends + 1 :]


class Learner:
    """A memory into which a rank's hook writes the names of the modules that it imports."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("holdfast-warm", os.MFD_CLOEXEC)
        os.ftruncate(self.fd, LEARNED_BYTES)
        self._length, self._taken, self._since = 0, 0, now_s()

    def pid(self) -> int:
        """Pid of the process that has written it; 0 for none."""
        head = os.pread(self.fd, 16, 0).strip()
        return int(head) if head.isdigit() else 0

    def has_news(self) -> bool:
        """Whether names were added since they were last taken, and none for a while."""
        digits = os.pread(self.fd, 16, 16).strip()
        length = int(digits) if digits.isdigit() else 0
        if length != self._length:
            self._length, self._since = length, now_s()
        return length > self._taken and now_s() - self._since >= QUIET_S

    def names(self) -> list[tuple[str, str]]:
        """The modules and their places in the order in which they were looked for, each once; between them ``=NAME``
        for a variable that had changed by then.
        """
        self._taken = self._length
        data = os.pread(self.fd, min(self._length, LEARNED_BYTES), HEADER_BYTES)
        found: dict[str, str] = {}
        for line in data.decode("utf-8", "surrogateescape").split("\n")[:-1]:
            name, _, place = line.partition("\t")
            if name.startswith("=") or all(part.isidentifier() for part in name.split(".")):
                found[name] = place or found.get(name, "")  # it may be found at the second try
        return list(found.items())

    def close(self) -> None:
        """Forget what was learned."""
        os.close(self.fd)


def learn(plan: Plan, memory: int) -> None:
    """In a rank's child, before its program: have its imports written into the memory."""
    os.set_inheritable(memory, True)
    add_hook(plan.env, f"learn {memory}")


def add_hook(env: dict[bytes, bytes], order: str) -> None:
    """Have the Python that this process becomes run the hook first."""
    path = env.get(b"PYTHONPATH")
    env[b"PYTHONPATH"] = HOOK + b":" + path if path else HOOK  # after the colon, nothing would be a directory too
    env[VARIABLE] = f"{os.getpid()} {order}".encode()
