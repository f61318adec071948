"""Makes a place ready for a launch: checks, the admin's prolog, a shim, directories, ports.

What the program is to blame for fails the job; what the host is to blame for says so, and the work goes elsewhere.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from functools import partial

import anyio
import anyio.to_thread

from holdfast_agent.core.environment import HostFacts
from holdfast_agent.core.events import EpilogEnded, PlacePrepared, PreparationFailed, Prepare, RunEpilog
from holdfast_agent.core.model import Launch, PlaceKey
from holdfast_agent.shell import checks, hooks, log, strays
from holdfast_agent.shell.fitness import Fitness
from holdfast_agent.shell.hooks import Hooks
from holdfast_agent.shell.logs import make_directories, own_directory
from holdfast_agent.shell.ports import NoPortFree, Ports
from holdfast_agent.shell.scopes import Scopes
from holdfast_agent.shell.shims import Shims

BOUND_S = 30.0
"""A file server that doesn't answer for this long fails the preparation."""
HOOKS_AT_ONCE = 16
_HOST_ERRNOS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE}
)
"""No program can help these."""


@dataclass
class Preparation:
    """Answers each ``Prepare`` with one event."""

    shims: Shims
    ports: Ports
    root_allowed: bool
    fitness: Fitness
    hooks: Hooks
    scopes: Scopes = field(default_factory=Scopes)
    _hook_threads: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(HOOKS_AT_ONCE))

    def now(self, action: Prepare, facts: HostFacts) -> PlacePrepared | PreparationFailed | None:
        """At once, without a wait, where the program is known to be good and a shim is there. None otherwise."""
        launch = action.assignment.launch
        if (
            launch is None
            or not action.known_good
            or self.hooks.prolog
            or not self.shims.is_ready(action.assignment.key)
        ):
            return None
        # Its GPUs were proven free of everybody just now, when the generation before left them.
        problem = self.fitness.at_once(launch, facts)
        return _unfit(action, problem) if problem else self._finish(action, facts)

    async def run(self, action: Prepare, facts: HostFacts) -> PlacePrepared | PreparationFailed:
        """With all checks, which may block on file servers and so run in a thread."""
        problem = f"{facts.name}: the checks took longer than {BOUND_S:g} s; a file server may hang."
        with anyio.move_on_after(BOUND_S):
            check = partial(checks.problem, action.assignment, facts, root_allowed=self.root_allowed)
            problem = await anyio.to_thread.run_sync(check, abandon_on_cancel=True)
            problem = problem or await self._left_by_others(action, facts)
        if problem:
            return _failed(action, problem)
        problem = await self._host_problem(action, facts)
        return _unfit(action, problem) if problem else self._finish(action, facts)

    async def run_epilog(self, action: RunEpilog, facts: HostFacts) -> EpilogEnded:
        """The admin's command after a generation; how it failed is the host's problem."""
        about = _about(facts, action.key, action.generation, action.attempt, action.gpus)
        problem = await self._hook("epilog", self.hooks.epilog, about)
        if problem:
            log.warning("epilog.failed", place=str(action.key), generation=action.generation, problem=problem)
        return EpilogEnded(action.key, action.generation, f"{facts.name}: {problem}." if problem else "")

    async def _host_problem(self, action: Prepare, facts: HostFacts) -> str:
        """What the host can be blamed for; empty where nothing is. The shim is ready then."""
        wish, launch = action.assignment, action.assignment.launch
        assert launch is not None, "the reactor prepares only what has a launch"
        problem = f"{facts.name}: the checks of the host took longer than {BOUND_S:g} s."
        with anyio.move_on_after(BOUND_S):
            problem = await anyio.to_thread.run_sync(
                self.fitness.at_once, launch, facts, abandon_on_cancel=True
            ) or await self.fitness.gpus_in_use(launch, facts)
        if problem:
            return problem
        if self.hooks.prolog:
            about = _about(facts, wish.key, wish.generation, wish.attempt, launch.gpus)
            if problem := await self._hook("prolog", self.hooks.prolog, about):
                return f"{facts.name}: {problem}."
        try:
            self.shims.ensure(wish.key)
        except OSError as error:
            return f"{facts.name}: cannot start a shim: {error.strerror}."
        with anyio.move_on_after(BOUND_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.scopes.take_in, wish, self.shims.pid(wish.key))
                refusal = await self.shims.ready(wish.key)
            return f"{facts.name}: {refusal}." if refusal else ""
        return f"{facts.name}: the shim did not answer within {BOUND_S:g} s."

    async def _hook(self, phase: str, command: tuple[str, ...], about: dict[str, str]) -> str:
        if not command:
            return ""
        timeout_s = self.hooks.timeout
        return await anyio.to_thread.run_sync(
            hooks.run, phase, command, about, timeout_s, abandon_on_cancel=True, limiter=self._hook_threads
        )

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
            problem = f"{facts.name}: {error.filename or 'ports'}: {error.strerror}."
            return _unfit(action, problem) if error.errno in _HOST_ERRNOS else _failed(action, problem)
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


def _about(facts: HostFacts, key: PlaceKey, generation: int, attempt: int, gpus: tuple[str, ...]) -> dict[str, str]:
    """What a hook is told, in the names that ranks find theirs under."""
    return {
        "HOLDFAST_HOST": facts.name,
        "HOLDFAST_JOB": key.job,
        "HOLDFAST_WORKER": key.worker,
        "HOLDFAST_ATTEMPT": str(attempt),
        "HOLDFAST_GENERATION": str(generation),
        "HOLDFAST_GPUS": ",".join(gpus),
    }


def _scratch(facts: HostFacts, job: str) -> str:
    return f"{facts.scratch_dir}/{job}"


def _failed(action: Prepare, message: str) -> PreparationFailed:
    return PreparationFailed(action.assignment.key, action.assignment.generation, message)


def _unfit(action: Prepare, message: str) -> PreparationFailed:
    return PreparationFailed(action.assignment.key, action.assignment.generation, message, host_fault=True)
