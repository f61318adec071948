"""Makes a place ready for a launch: checks, a shim, directories, ports."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial

import anyio
import anyio.to_thread

from holdfast_agent.core.environment import HostFacts
from holdfast_agent.core.events import PlacePrepared, PreparationFailed, Prepare
from holdfast_agent.core.model import Launch
from holdfast_agent.shell import checks, strays
from holdfast_agent.shell.logs import make_directories, own_directory
from holdfast_agent.shell.ports import NoPortFree, Ports
from holdfast_agent.shell.shims import Shims

BOUND_S = 30.0
"""A file server that doesn't answer for this long fails the preparation."""


@dataclass
class Preparation:
    """Answers each ``Prepare`` with one event."""

    shims: Shims
    ports: Ports
    root_allowed: bool

    def now(self, action: Prepare, facts: HostFacts) -> PlacePrepared | PreparationFailed | None:
        """At once, without a wait, where the program is known to be good and a shim is there. None otherwise."""
        if not action.known_good or not self.shims.is_ready(action.assignment.key):
            return None
        return self._finish(action, facts)

    async def run(self, action: Prepare, facts: HostFacts) -> PlacePrepared | PreparationFailed:
        """With all checks, which may block on file servers and so run in a thread."""
        key = action.assignment.key
        problem = f"{facts.name}: the checks took longer than {BOUND_S:g} s; a file server may hang."
        with anyio.move_on_after(BOUND_S):
            check = partial(checks.problem, action.assignment, facts, root_allowed=self.root_allowed)
            problem = await anyio.to_thread.run_sync(check, abandon_on_cancel=True)
            problem = problem or await self._left_by_others(action, facts)
            if not problem:
                try:
                    self.shims.ensure(key)
                except OSError as error:
                    return _failed(action, f"{facts.name}: cannot start a shim: {error.strerror}.")
                problem = f"{facts.name}: the shim did not answer within {BOUND_S:g} s."
                refusal = await self.shims.ready(key)
                problem = f"{facts.name}: {refusal}." if refusal else ""
        return _failed(action, problem) if problem else self._finish(action, facts)

    async def _left_by_others(self, action: Prepare, facts: HostFacts) -> str:
        """A later generation at a place without a shim: an agent that lost its files may have left the earlier one.

        Empty once that is proven gone, else what is left of it.
        """
        wish = action.assignment
        if wish.generation == 1 or self.shims.pid(wish.key):
            return ""
        mark = strays.Mark(wish.key, facts.name, wish.generation - 1)
        _, left = await anyio.to_thread.run_sync(strays.clear, mark, abandon_on_cancel=True)
        return f"{facts.name}: an earlier generation is still here: {left}." if left else ""

    def _finish(self, action: Prepare, facts: HostFacts) -> PlacePrepared | PreparationFailed:
        wish = action.assignment
        launch = wish.launch
        assert launch is not None, "the reactor prepares only what has a launch"
        try:
            make_directories(facts, wish.key, wish.generation)
            if not launch.process.working_directory:
                os.makedirs(facts.scratch_dir, mode=0o711, exist_ok=True)
                own_directory(_scratch(facts, wish.key.job), facts, mode=0o700)
            own, master = self._bind(action, launch)
        except OSError as error:
            return _failed(action, f"{facts.name}: {error.filename or 'ports'}: {error.strerror}.")
        except NoPortFree as error:
            return _failed(action, f"{facts.name}: {error}.")
        return PlacePrepared(wish.key, wish.generation, own, master, self.shims.pid(wish.key))

    def _bind(self, action: Prepare, launch: Launch) -> tuple[int, int]:
        """(this worker's port, MASTER_PORT or 0)."""
        key = action.assignment.key
        if action.ports:
            taken = self.ports.hold_these(key, [port for port in action.ports if port])
            if taken is not None:
                raise NoPortFree(f"port {taken} is taken")
            return action.ports[0], action.ports[1] if len(action.ports) > 1 else 0
        self.ports.free(key)
        own, *master = self.ports.hold(key, 2 if launch.first_rank == 0 else 1)
        return own, master[0] if master else 0


def _scratch(facts: HostFacts, job: str) -> str:
    return f"{facts.scratch_dir}/{job}"


def _failed(action: Prepare, message: str) -> PreparationFailed:
    return PreparationFailed(action.assignment.key, action.assignment.generation, message)
