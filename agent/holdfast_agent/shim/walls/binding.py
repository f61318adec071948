"""A rank's binding: the CPUs that it may run on, and the memory nodes that it is given first.

The child takes it between fork and exec, so that its program's first page is already where it belongs, and all that the
program starts inherits it. Memory is preferred, never demanded: a full node is no reason to be killed. What the kernel
refuses is said in the rank's own output, and the rank starts without it.
"""

from __future__ import annotations

import ctypes
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast_agent.shim.journal import Record

SYS_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}
MPOL_PREFERRED, MPOL_PREFERRED_MANY = 1, 5
MOST_NODES, BITS = 1024, 64


class Binding:
    """Raises ValueError, KeyError, TypeError or AttributeError for a bad order."""

    def __init__(self, order: Record) -> None:
        self.order = order
        self.cpus, self.nodes = _numbers(order["cpus"]), _numbers(order["memory_nodes"])
        if any(node >= MOST_NODES for node in self.nodes):
            raise ValueError("no such NUMA node")

    def take(self) -> None:
        """In the child, as its user. Raises nothing."""
        for what, numbers, bind in (
            ("CPUs", "cpus", self._run_on),
            ("memory of node", "memory_nodes", self._prefer),
        ):
            try:
                bind()
            except OSError as error:
                _warn(2, f"{what} {self.order[numbers]}", error)

    def _run_on(self) -> None:
        if self.cpus:
            os.sched_setaffinity(0, self.cpus)

    def _prefer(self) -> None:
        if not self.nodes:
            return
        mask = (ctypes.c_ulong * (MOST_NODES // BITS))()
        for node in self.nodes:
            mask[node // BITS] |= 1 << node % BITS
        policy = MPOL_PREFERRED if len(self.nodes) == 1 else MPOL_PREFERRED_MANY
        number = SYS_SET_MEMPOLICY.get(os.uname().machine)
        if number is None:
            raise OSError(0, "no such call is known for this processor")
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.syscall(ctypes.c_long(number), ctypes.c_ulong(policy), mask, ctypes.c_ulong(MOST_NODES)) < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def give(self, pid: int, output: int) -> None:
        """Bind a process that waits to become the rank. Its memory comes from the node that it runs on, as by default.

        Raises nothing.
        """
        try:
            for task in os.listdir(f"/proc/{pid}/task") if self.cpus else ():
                os.sched_setaffinity(int(task), self.cpus)
        except OSError as error:
            _warn(output, f"CPUs {self.order['cpus']}", error)


def _numbers(text: str) -> set[int]:
    """The numbers of a list such as 0-15,64-79."""
    found: set[int] = set()
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def _warn(output: int, what: str, error: OSError) -> None:
    try:
        os.write(output, f"holdfast: not bound to {what}: {error.strerror}\n".encode())
    except OSError:
        pass  # it starts all the same
