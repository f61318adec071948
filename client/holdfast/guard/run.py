"""Starts one task of a guarded command: its daemons first, which load while this process waits for others.

What is slow to import is in ``task``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast._base import extras
from holdfast._base.dataclass import dataclass
from holdfast.errors import HoldfastError, Unavailable
from holdfast.guard import allocation, batch_hosts, scratch, spares, tied
from holdfast.guard.allocation import Allocation
from holdfast.guard.certificates import Issuer
from holdfast.guard.parts import Daemon, Folder

if TYPE_CHECKING:
    from holdfast._session.hang_wire import WorkerEvidence
    from holdfast.v1 import job_pb2

OUR_FAILURE = 125
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
ALL_SIGNALS = {*ENDING_SIGNALS, signal.SIGUSR1, signal.SIGUSR2}
"""The last two are the ranks'."""
MAY_BE_IGNORED = (signal.SIGINT, signal.SIGHUP)
"""What ``nohup`` or a script's ``&`` has this process ignore stays ignored."""


@dataclass(frozen=True, slots=True)
class Words:
    """Puts events, jobs and evidence into words for people: functions of the command line."""

    note: Callable[[str], None]
    """One line on stderr."""
    sentence: Callable[[job_pb2.WatchJobResponse], str]
    """An event in words; empty for what is no news."""
    page: Callable[[job_pb2.CustomJob], Iterable[str]]
    """Lines of ``job show``."""
    evidence: Callable[[Sequence[WorkerEvidence]], str]
    """Text of the evidence of one hang."""


@dataclass(frozen=True, slots=True)
class Request:
    """A command to guard, as the user asked for it. Times in seconds."""

    command: tuple[str, ...]
    job: Callable[[int, float | None], job_pb2.CustomJob]
    """The job for a number of workers, with the time between TERM and KILL; None is the usual one."""
    status: Callable[[job_pb2.CustomJob], int]
    """The exit status of a job that has ended."""
    words: Words
    grace_s: float | None = None
    time_limit_s: float | None = None
    """Time from the start of the guard until the scheduler ends it, where the scheduler doesn't say."""
    warning: tuple[str, float] | None = None
    """The signal that the ranks get so long before the time limit."""
    ranks_per_task: int = 1
    spares: int = 0
    """Tasks that start no ranks until they take the place of one that is gone."""
    or_run: bool = False
    record: Path | None = None
    start_timeout_s: float = 120.0


def answered() -> set[signal.Signals]:
    """The signals that a guard answers: not those that its caller has it ignore."""
    ignored = {each for each in MAY_BE_IGNORED if signal.getsignal(each) is signal.SIG_IGN}
    return ALL_SIGNALS - ignored


def run(request: Request) -> int:
    """Guard the command in this task; returns its exit status. See ``not_started`` for a guard that can't start."""
    try:
        return guarded(request)
    except NotStarted as error:
        return not_started(request, error.problem)


def not_started(request: Request, problem: HoldfastError) -> int:
    """Say on stderr why the guard can't start; returns the exit status.

    With ``or_run`` this process becomes the bare command.
    """
    request.words.note(_of_host(problem.message) + (f" {problem.fix}" if problem.fix else ""))
    if not request.or_run:
        return OUR_FAILURE
    request.words.note("the command runs without a guard: nothing is restarted, and no hang is seen")
    return _bare(request)


def guarded(request: Request, place: Allocation | None = None) -> int:
    """Guard the command as the task at ``place``, or as the one that the environment describes; returns its status.

    Raises ``NotStarted``, before anything of the user's has run.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its own words about a link that ends would stand beside ours
    try:
        extras.require("holdfast guard", "controller", "agent")
        place = place or allocation.read(os.environ, os.uname().nodename)
        spares.check(place.tasks, request.spares)
        if place.kind in ("slurm", "alone"):
            from holdfast.guard import slurm

            if place.kind == "alone":
                ranks = request.ranks_per_task
                said = slurm.beside_script(os.environ, ranks)
                said = said or batch_hosts.beside_flux_script(os.environ, ranks, slurm.size_of_flux)
            else:
                said = slurm.hidden_gpus(os.environ, os.listdir("/dev"), place.host)
                tied.end_with_parent(signal.SIGTERM)
            if said:
                request.words.note(said)
        # Before the daemons are started: they have in memory what is loaded here.
        import anyio

        from holdfast.guard.task import Task

        with _scratch() as folder, Daemon(folder, "controller") as controller, Daemon(folder, "agent") as agent:
            if place.task == 0:
                controller.start()
            agent.start()
            with Issuer(folder.path, place.name, controller=place.task == 0) as issuer:
                task = Task(request, place, folder, controller, agent, issuer)
                status = anyio.run(task.run)
        if task.leaves_step_open:
            slurm.end_step()
        return status
    except (HoldfastError, OSError, ImportError) as error:
        raise NotStarted(foreseen(error)) from error


def _of_host(text: str) -> str:
    """The text, with the host that it is about where it doesn't say so, and there may be several."""
    host = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
    try:
        alone = allocation.read(os.environ, host).tasks == 1
    except HoldfastError:
        alone = False
    return text if alone or host in text else f"{host}: {text}"


def _bare(request: Request) -> int:
    """Become the command. Returns only where there is none."""
    os.environ.pop(allocation.SEED_VARIABLE, None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ALL_SIGNALS)
    sys.stdout.flush()
    try:
        os.execvp(request.command[0], request.command)
    except OSError as error:
        request.words.note(f"{request.command[0]}: {error.strerror}")
        return 127 if isinstance(error, FileNotFoundError) else 126


def foreseen(error: BaseException) -> HoldfastError:
    """The error in words, or a group's first, where it is one that a guard may meet; raises it where it is none."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return Unavailable(f"The guard can't start: {where}{error.strerror or error}.")
    ours = tied.unloadable(f"{type(error).__name__}: {error}") if isinstance(error, ImportError) else error
    if not isinstance(ours, HoldfastError):
        raise error
    return ours


@contextlib.contextmanager
def _scratch() -> Iterator[Folder]:
    """A folder that is gone afterwards, also when this process is killed."""
    path = scratch.make()
    held = scratch.watch(path)
    try:
        yield Folder(Path(path))
    finally:
        if not scratch.has_shims(path):
            shutil.rmtree(path, ignore_errors=True)
        os.close(held)


class NotStarted(Exception):
    """The guard has started nothing of the user's, and can't."""

    def __init__(self, problem: HoldfastError) -> None:
        self.problem = problem
