"""Sets up namespaces and cgroup, then durably records the intent to launch, before the first fork."""

from __future__ import annotations

import os

from holdfast_agent.shim import journal
from holdfast_agent.shim.generation import Generation
from holdfast_agent.shim.lease import ordered, with_peers
from holdfast_agent.shim.processes import boot_id, printable
from holdfast_agent.shim.walls import container_namespace, namespaces
from holdfast_agent.shim.walls.cgroup import Cgroup

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast_agent.shim.journal import Record
    from holdfast_agent.shim.launch import Plan


def begin(number: int, plans: list[Plan], message: Record, directory: int) -> tuple[Generation, int, list[str]]:
    """A new generation, its children's end of the pipe for failures, and what it has to do without.

    Raises OSError, or ValueError or TypeError for a bad order, and then there is none.
    """
    gpus = [str(uuid) for uuid in message.get("gpus", ())]
    bounds = int(message.get("memory_bytes", 0)), int(message.get("pids", 0))
    lacks: list[str] = []
    fence = ordered(message)
    held = _room(number, directory, lacks) if message.get("private_shm") else None
    if message.get("container"):
        held = container_namespace.take(message["container"], held)
    cgroup = _cgroup(str(message["cgroup"]), number, bounds, lacks) if message.get("cgroup") else None
    failures: tuple[int, ...] = ()
    try:
        failures = os.pipe2(os.O_CLOEXEC)
        bindings = {plan.rank: plan.binding.order for plan in plans if plan.binding}
        file = journal.create(number, [plan.rank for plan in plans], gpus, boot_id(), directory, bindings)
    except OSError:
        for fd in failures:
            os.close(fd)
        for taken in (held, cgroup):
            if taken:
                taken.close()
        raise
    os.set_blocking(failures[0], False)
    generation = Generation(number, file, failures[0], held, cgroup)
    if fence and message.get("peers"):
        fence = with_peers(fence, message["peers"], number, lacks)
        generation.peers = fence.peers if fence else None
    generation.fence = fence
    return generation, failures[1], lacks


def _room(number: int, directory: int, lacks: list[str]) -> namespaces.Room | None:
    """The job's namespaces; None where the host doesn't allow them. Any other failure refuses the launch."""
    try:
        return namespaces.take(number, directory)
    except namespaces.NotAllowed as problem:
        lacks.append(f"no {namespaces.SHM} of its own: {problem}")
        return None
    except OSError as error:
        raise OSError(error.errno, error.strerror, f"a {namespaces.SHM} of its own") from None


def _cgroup(worker: str, number: int, bounds: tuple[int, int], lacks: list[str]) -> Cgroup | None:
    """The generation's cgroup; None where it can't be made: the ranks run all the same, without its limits."""
    try:
        return Cgroup(f"{worker}/g{number}", *bounds)
    except OSError as error:
        lacks.append(f"no cgroup: {printable(error.filename or worker)}: {error.strerror}")
        return None
