"""A user's shell beside a rank: with its account, environment, directory, namespaces or container, and nothing more.

The shim connects to a socket of the agent's and forks a *keeper*, which starts the program on a terminal or on pipes
and copies what goes in and out (`shell_keeper`). The keeper never runs a program and keeps the shim's identity, so the
shell can neither signal nor trace it.

- *It ends with its connection*: when the agent or its controller goes away, when the user leaves, when the shim dies.
- *It ends with its generation.* The shim sends the keeper TERM as soon as that is being stopped, and the keeper kills
  all that the shell has started, without a grace. So no shell delays a restart.
- *Emptiness is proven as for ranks.* The keeper is a child of the shim and a subreaper: what is left of a shell has to
  be gone before the keeper ends, and the keeper before the generation is empty.
- *It is no rank's work.* Its processes are in no rank's process tree, have a cgroup of their own beside the ranks', and
  are the first that the kernel kills for lack of memory.

Frames, both ways: a byte for the kind, two for the length of the rest (big-endian), the rest. To the keeper: ``d``
input, ``w`` rows and columns of the window, ``e`` end of the input. From it: ``o`` and ``r`` what it wrote to stdout
and stderr, and at last ``x`` with its exit status, or ``p`` with the reason why there is none.
"""

from __future__ import annotations

import os
import signal

from holdfast_agent.shim import error_file, secret_files, terminal
from holdfast_agent.shim.keepers import fork
from holdfast_agent.shim.launch import encode, execute, offer_to_oom_killer
from holdfast_agent.shim.processes import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from holdfast_agent.shim.generation import Generation
    from holdfast_agent.shim.journal import Record
    from holdfast_agent.shim.launch import Identity, Plan
    from holdfast_agent.shim.walls.cgroup import Cgroup
    from holdfast_agent.shim.walls.namespaces import Room

SHELLS = (b"/bin/bash", b"/bin/sh")
PROGRESS = b"HOLDFAST_PROGRESS_DIR"
FIRST_TO_KILL = b"1000"


class Order:
    """A program to be run beside a rank. Raises as Plan does for a bad order."""

    def __init__(self, message: Record) -> None:
        self.rank = int(message["rank"])
        self.socket = str(message["socket"])
        self.argv = [encode(word) for word in message["argv"]]
        self.on_terminal = bool(message["terminal"])
        self.term = encode(message["term"])
        self.rows, self.columns = int(message["rows"]), int(message["columns"])
        if "/" in self.socket or (self.argv and not self.argv[0]):
            raise ValueError("its socket or its command")

    def fork(self, generation: Generation, connection: int) -> str:
        """Fork its keeper, which has the connection; why there is none, or nothing. Raises OSError."""
        if self.rank not in generation.plans:
            return f"rank {self.rank} is not there"
        from holdfast_agent.shim.shells import shell_keeper

        plan, identity = generation.plans[self.rank]
        surroundings = Surroundings(plan, identity, generation.room, generation.shells_cgroup())
        fork(generation, lambda: shell_keeper.keep(connection, self, surroundings))
        return ""


class Surroundings:
    """The parts of a rank's place that a shell beside it gets."""

    def __init__(self, plan: Plan, identity: Identity, room: Room | None, cgroup: Cgroup | None) -> None:
        self.plan, self.identity, self.room, self.cgroup = plan, identity, room, cgroup


def become(order: Order, surroundings: Surroundings, theirs: list[int], failures: int) -> NoReturn:
    """The way of the keeper's child to the program; says through `failures` what stopped it."""
    problem = "its start failed"
    plan, identity = surroundings.plan, surroundings.identity
    try:
        if order.on_terminal:
            terminal.take(theirs[0])
        else:
            os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for target, fd in enumerate(theirs):
            os.dup2(fd, target)
        if surroundings.cgroup:
            surroundings.cgroup.enter()
        offer_to_oom_killer(FIRST_TO_KILL)
        env = dict(plan.env)
        if plan.secret_files:
            problem = "cannot read its secrets"
            env |= secret_files.read(plan.secret_files, identity)
        for name in (error_file.VARIABLE, PROGRESS):
            env.pop(name, None)  # what a rank says of itself there, a program in a shell must not say for it
        if order.on_terminal and order.term:
            env[b"TERM"] = order.term
        if surroundings.room:
            problem = "cannot enter the job's /dev/shm or container"
            surroundings.room.enter()
        problem = "cannot take the user's identity"
        identity.take()
        problem = f"cannot change to {printable(plan.cwd)}"
        os.chdir(plan.cwd)
        problem, _ = execute(order.argv or [_shell()], env)
    except secret_files.Unreadable as unreadable:
        problem = str(unreadable)
    except OSError as error:
        problem += f": {os.strerror(error.errno or 0)}"
    finally:
        os.write(failures, problem[:1000].encode("utf-8", "replace"))
        os._exit(127)


def _shell() -> bytes:
    """The first shell that is there: in a container, one of its own."""
    return next((path for path in SHELLS if os.access(path, os.X_OK)), SHELLS[-1])
