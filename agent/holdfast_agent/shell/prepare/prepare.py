"""Makes a worker ready for a launch: checks, the admin's prolog, a shim, directories, ports.

A fault of the program fails the job; a fault of the host is reported as such, and the work goes elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import anyio
import anyio.to_thread

from holdfast._daemon import log
from holdfast._session.assignment import Assignment, Launch
from holdfast._session.reports import WorkerId
from holdfast_agent.core.launch.environment import HostFacts, WorkerUser, scratch_directory
from holdfast_agent.core.model.launch import Container, PreparedCode
from holdfast_agent.core.worker.actions import Prepare, RunEpilog
from holdfast_agent.core.worker.events import EpilogEnded, PreparationFailed, WorkerPrepared
from holdfast_agent.shell.base import host_errors
from holdfast_agent.shell.base.programs import Limits
from holdfast_agent.shell.cgroups.cgroups import Cgroups, most_pids
from holdfast_agent.shell.cgroups.scopes import Scopes
from holdfast_agent.shell.config import Hooks
from holdfast_agent.shell.containers.containers import CannotHave, Containers
from holdfast_agent.shell.output.archive import Archive
from holdfast_agent.shell.output.log_index import make_directories, own_directory
from holdfast_agent.shell.packages.code import Code
from holdfast_agent.shell.packages.failures import write_log
from holdfast_agent.shell.packages.settings import CodeProblem
from holdfast_agent.shell.prepare import checks, hooks
from holdfast_agent.shell.prepare.ports import NoPortFree, Ports, PortTaken
from holdfast_agent.shell.prepare.preflight import Fitness
from holdfast_agent.shell.shims import orphans
from holdfast_agent.shell.shims.shims import Shims
from holdfast_agent.shell.shims.worker_files import WorkerFiles
from holdfast_agent.shell.users.accounts import Accounts, NoAccount

BOUND_S = 30.0
"""A file server that doesn't answer for this long fails the preparation."""
LOOK_UP_AGAIN_S = 1.0
SHIM_TRIES = 2
"""A shim that was killed says nothing of its host; two in a row do."""
HOOKS_AT_ONCE = 16


@dataclass
class Preparation:
    """Answers each ``Prepare`` with one event."""

    files: WorkerFiles
    shims: Shims
    ports: Ports
    accounts: Accounts
    root_allowed: bool
    fitness: Fitness
    hooks: Hooks
    containers: Containers
    archive: Archive
    code: Code
    say: Callable[[WorkerId, int, str], None] = lambda key, generation, doing: None
    """Called with each step that takes long."""
    scopes: Scopes = field(default_factory=Scopes)
    cgroups: Cgroups = field(default_factory=lambda: Cgroups(""))
    _prepared: dict[WorkerId, PreparedCode] = field(default_factory=dict)
    _scopes: dict[WorkerId, anyio.CancelScope] = field(default_factory=dict)
    """Of code that is being fetched or installed, and containers that are being made, which a pull may hold up."""
    _hook_threads: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(HOOKS_AT_ONCE))

    def now(self, action: Prepare, facts: HostFacts) -> WorkerPrepared | PreparationFailed | None:
        """The answer without a wait, where the program was checked before and a shim is there; else None."""
        launch = action.assignment.launch
        if (
            launch is None
            or not action.known_good
            or self.hooks.prolog
            or not self.shims.is_ready(action.assignment.key)
        ):
            return None
        wanted, before = launch.task.code, self._prepared.get(action.assignment.key, PreparedCode())
        if wanted is not None and not self.code.known(wanted, before):
            return None
        container = self.containers.at_hand(action.assignment)
        if launch.task.image and container is None:
            return None
        user = self.accounts.at_hand(launch.task.account)
        if user is None:
            return None
        facts = facts.running_as(user)
        # Its GPUs were proven free of all processes just now, when the generation before left them.
        problem = self.fitness.at_once(launch, facts)
        return _unfit(action, problem) if problem else self._finish(action, facts, container)

    async def run(self, action: Prepare, facts: HostFacts) -> WorkerPrepared | PreparationFailed:
        """The answer after all checks, which may block on file servers and so run in a thread."""
        if action.assignment.launch is not None and action.assignment.launch.task.account:
            user = await self._user(action, facts)
            if isinstance(user, PreparationFailed):
                return user
            facts = facts.running_as(user)
        code = None
        if action.assignment.launch is not None and action.assignment.launch.task.code is not None:
            got = await self._bring_code(action, facts)
            if isinstance(got, PreparationFailed):
                return got
            code = got
        unanswered = f"{facts.name}: the checks took longer than {BOUND_S:g} s; a file server may hang."
        with anyio.move_on_after(BOUND_S):
            check = partial(checks.problem, action.assignment, facts, root_allowed=self.root_allowed, code=code)
            try:
                problem = await anyio.to_thread.run_sync(check, abandon_on_cancel=True)
            except OSError as error:
                return _unfit(action, f"{facts.name}: {_told(error)}.")
            if problem:
                return _failed(action, problem)
            unanswered = ""
        if unanswered:
            return _unfit(action, unanswered)
        problem = f"{facts.name}: what an earlier generation may have left was not found out within {BOUND_S:g} s."
        with anyio.move_on_after(BOUND_S):
            problem = await self._left_by_others(action, facts)
        if problem := problem or await self._host_problem(action, facts):
            return _unfit(action, problem)
        if (launch := action.assignment.launch) is not None:
            await self.archive.make_directories(action.assignment.key, launch, facts.user)
        if launch is None or not launch.task.image:
            return self._finish(action, facts)
        try:
            container = await self._container(action, facts)
        except CannotHave as error:
            found = f"{facts.name}: {error}."
            return _unfit(action, found) if error.host_fault else _failed(action, found)
        return self._finish(action, facts, container)

    async def _user(self, action: Prepare, facts: HostFacts) -> WorkerUser | PreparationFailed:
        """The account that the job names. A missing account is the job's fault, a look-up without answer the host's.

        A directory service that is being restarted is waited for.
        """
        launch = action.assignment.launch
        assert launch is not None, "the reactor prepares only what has a launch"
        unknown = f"the account {launch.task.account} was not found out within {BOUND_S:g} s"
        with anyio.move_on_after(BOUND_S):
            while True:
                try:
                    return await anyio.to_thread.run_sync(
                        self.accounts.look_up, launch.task.account, abandon_on_cancel=True
                    )
                except NoAccount as problem:
                    if not problem.host_fault:
                        return _failed(action, f"{facts.name}: {problem}.")
                    unknown = str(problem)
                self.say(action.assignment.key, action.assignment.generation, unknown)
                await anyio.sleep(LOOK_UP_AGAIN_S)
        return _unfit(action, f"{facts.name}: {unknown}.")

    def abandon(self, key: WorkerId) -> None:
        """Cancel the fetching, installing and container of a worker's preparation."""
        if (scope := self._scopes.get(key)) is not None:
            scope.cancel()

    def release(self, job: str) -> None:
        """Forget the code of a job that has left this host."""
        self.code.release(job)
        for key in [key for key in self._prepared if key.job == job]:
            del self._prepared[key]

    async def _bring_code(self, action: Prepare, facts: HostFacts) -> PreparedCode | PreparationFailed:
        desired, launch = action.assignment, action.assignment.launch
        assert launch is not None, "the reactor prepares only what has a launch"
        assert launch.task.code is not None, "there is none to bring"
        if refusal := checks.root_problem(facts, root_allowed=self.root_allowed):
            return _failed(action, refusal)
        say = partial(self.say, desired.key, desired.generation)
        with anyio.CancelScope() as scope:
            self._scopes[desired.key] = scope
            try:
                limits = self._install_limits(desired.key, launch)
                code = await self.code.prepare(desired.key.job, launch.task.code, facts, say, limits)
                self._prepared[desired.key] = code
                return code
            except CodeProblem as problem:
                if problem.log:
                    write_log(problem.log, facts, desired.key, desired.generation, launch.first_rank)
                message = f"{facts.name}: {problem.message}."
                return _unfit(action, message) if problem.host_fault else _failed(action, message)
            finally:
                del self._scopes[desired.key]
        return _failed(action, f"{facts.name}: the preparation was called off.")

    def _install_limits(self, key: WorkerId, launch: Launch) -> Limits:
        """The limits of a generation of the worker, for a cgroup beside it."""
        worker = self.cgroups.directory(key)
        return Limits(worker and f"{worker}/install", launch.memory_mb << 20, most_pids())

    async def run_epilog(self, action: RunEpilog, facts: HostFacts) -> EpilogEnded:
        """Run the admin's command after a generation; a failure is the host's fault."""
        about = _about(facts, action.key, action.generation, action.attempt, action.gpus)
        about |= {"HOLDFAST_ACCOUNT": "", "HOLDFAST_OWNER": "", **self.files.hook_variables(action.key)}
        problem = await self._hook("epilog", self.hooks.epilog, about)
        if problem:
            log.warning("epilog.failed", worker=str(action.key), generation=action.generation, error=problem)
        return EpilogEnded(action.key, action.generation, f"{facts.name}: {problem}." if problem else "")

    async def _host_problem(self, action: Prepare, facts: HostFacts) -> str:
        """The first problem that is the host's fault; empty where there is none, and then the shim is ready."""
        desired, launch = action.assignment, action.assignment.launch
        assert launch is not None, "the reactor prepares only what has a launch"
        problem = f"{facts.name}: the checks of the host took longer than {BOUND_S:g} s."
        with anyio.move_on_after(BOUND_S):
            problem = await anyio.to_thread.run_sync(
                self.fitness.at_once, launch, facts, abandon_on_cancel=True
            ) or await self.fitness.gpus_in_use(launch, facts, action.survivors)
        if problem:
            return problem
        if self.hooks.prolog or self.hooks.epilog:
            whose = {"HOLDFAST_ACCOUNT": facts.user.name, "HOLDFAST_OWNER": launch.owner}
            try:
                self.files.note_hook_variables(desired.key, whose)
            except OSError as error:
                return f"{facts.name}: cannot keep whose worker it is: {error.strerror}."
            about = _about(facts, desired.key, desired.generation, desired.attempt, launch.gpus) | whose
            if problem := await self._hook("prolog", self.hooks.prolog, about):
                return f"{facts.name}: {problem}."
        problem = ""
        for _ in range(SHIM_TRIES):
            problem = await self._shim_problem(desired)
            if not problem:
                return ""
        return f"{facts.name}: {problem}."

    async def _shim_problem(self, desired: Assignment) -> str:
        """Why the worker has no shim; empty once it has one that can launch."""
        try:
            self.shims.ensure(desired.key)
        except OSError as error:
            return f"cannot start a shim: {error.strerror}"
        with anyio.move_on_after(BOUND_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.scopes.take_in, desired, self.shims.pid(desired.key))
                return await self.shims.ready(desired.key)
        return f"the shim did not answer within {BOUND_S:g} s"

    async def _hook(self, phase: str, command: tuple[str, ...], about: dict[str, str]) -> str:
        if not command:
            return ""
        timeout_s = self.hooks.timeout
        return await anyio.to_thread.run_sync(
            hooks.run, phase, command, about, timeout_s, abandon_on_cancel=True, limiter=self._hook_threads
        )

    async def _left_by_others(self, action: Prepare, facts: HostFacts) -> str:
        """A later generation of a worker without a shim: an agent that lost its files may have left the earlier one.

        Empty once that is proven gone, else what is left of it.
        """
        desired = action.assignment
        if desired.generation == 1 or self.shims.pid(desired.key):
            return ""
        # All of the worker's: this generation is in none yet.
        cgroup = self.scopes.left(desired.key) or self.cgroups.directory(desired.key)
        uid = facts.user.uid if facts.user else None
        mark = orphans.Mark(desired.key, facts.name, desired.generation - 1, cgroup=cgroup, uid=uid)
        _, left = await anyio.to_thread.run_sync(orphans.clear, mark, abandon_on_cancel=True)
        return f"{facts.name}: an earlier generation is still here: {left}." if left else ""

    async def _container(self, action: Prepare, facts: HostFacts) -> Container:
        """The worker's container, made if need be. Raises ``CannotHave``, also where it was cancelled."""
        desired = action.assignment
        try:
            _directories(action, facts)  # those that it shall see
        except OSError as error:
            raise CannotHave(_told(error), host_fault=error.errno in host_errors.ERRNOS) from error
        with anyio.CancelScope() as scope:
            self._scopes[desired.key] = scope
            try:
                return await self.containers.ensure(desired, facts)
            finally:
                del self._scopes[desired.key]
        raise CannotHave("its container is not needed any more")

    def _finish(
        self, action: Prepare, facts: HostFacts, container: Container | None = None
    ) -> WorkerPrepared | PreparationFailed:
        desired = action.assignment
        launch = desired.launch
        assert launch is not None, "the reactor prepares only what has a launch"
        try:
            _directories(action, facts)
            self.archive.keep(desired.key, launch)
            own, master = self._bind(action, launch)
        except OSError as error:
            problem = f"{facts.name}: {_told(error)}."
            return _unfit(action, problem) if error.errno in host_errors.ERRNOS else _failed(action, problem)
        except PortTaken as error:
            return _failed(action, f"{facts.name}: {error}.")
        except NoPortFree as error:
            return _unfit(action, f"{facts.name}: {error}.")
        code = self._prepared.get(desired.key) if launch.task.code is not None else None
        user = facts.user if launch.task.account else None
        shim_pid = self.shims.pid(desired.key)
        binds = self.shims.binds(desired.key)
        return WorkerPrepared(desired.key, desired.generation, own, master, shim_pid, container, code, user, binds)

    def _bind(self, action: Prepare, launch: Launch) -> tuple[int, int]:
        """This worker's port, and MASTER_PORT or 0."""
        key = action.assignment.key
        if action.ports:
            taken = self.ports.hold_these(key, [port for port in action.ports if port])
            if taken is not None:
                raise PortTaken(f"port {taken} is taken")
            return action.ports[0], action.ports[1] if len(action.ports) > 1 else 0
        self.ports.free(key)
        own, *master = self.ports.hold(key, 2 if launch.first_rank == 0 else 1)
        return own, master[0] if master else 0


def _about(facts: HostFacts, key: WorkerId, generation: int, attempt: int, gpus: tuple[str, ...]) -> dict[str, str]:
    """A hook's environment variables, named as in a rank's environment."""
    return {
        "HOLDFAST_HOST": facts.name,
        "HOLDFAST_JOB": key.job,
        "HOLDFAST_WORKER": key.worker,
        "HOLDFAST_ATTEMPT": str(attempt),
        "HOLDFAST_GENERATION": str(generation),
        "HOLDFAST_GPUS": ",".join(gpus),
    }


def _directories(action: Prepare, facts: HostFacts) -> None:
    """Make the directories of a generation's output, and the job's scratch directory. Raises ``OSError``."""
    desired, launch = action.assignment, action.assignment.launch
    make_directories(facts, desired.key, desired.generation)
    if launch is None or not launch.task.working_directory:
        os.makedirs(facts.scratch_dir, mode=0o711, exist_ok=True)
        own_directory(scratch_directory(facts, desired.key), facts, mode=0o700)


def _told(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}" if error.filename else f"{error.strerror}"


def _failed(action: Prepare, message: str) -> PreparationFailed:
    return PreparationFailed(action.assignment.key, action.assignment.generation, message)


def _unfit(action: Prepare, message: str) -> PreparationFailed:
    return PreparationFailed(action.assignment.key, action.assignment.generation, message, host_fault=True)
