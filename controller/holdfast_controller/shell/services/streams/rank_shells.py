"""Users' shells beside ranks: from ``OpenShell`` to the rank's host, and back, for as long as that call lasts.

A shell has no life of its own: it is one stream of output (``Transfers``), and ends with the call, with the host's
connection, or with the controller. What is typed comes by calls that name the shell.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncGenerator

from holdfast._base.dataclass import dataclass
from holdfast.errors import InvalidInput, NotFound, TooMany, Violation, WrongState
from holdfast.v1 import agent_pb2, job_pb2
from holdfast_controller.core.model.job import Job
from holdfast_controller.shell.calls.committed_views import find_job, spec_of
from holdfast_controller.shell.driver import Driver
from holdfast_controller.shell.services.streams.reading import End, Reading
from holdfast_controller.shell.services.streams.transfers import Transfers

COMMAND_BYTES = 128 << 10
FOLLOWS_WITHIN_S = 5.0
"""A host with a session dials the connection of its shells at once; where it is busy that takes seconds."""
_TERM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")


@dataclass(frozen=True)
class _Opened:
    """A shell that is open now."""

    job: str
    user: str
    reading: Reading


class RankShells:
    """The shells of all jobs that are open through this controller."""

    def __init__(self, driver: Driver, transfers: Transfers) -> None:
        self._driver = driver
        self._transfers = transfers
        self._opened: dict[str, _Opened] = {}

    async def open(
        self, request: job_pb2.OpenShellRequest, user: str
    ) -> AsyncGenerator[job_pb2.OpenShellResponse, None]:
        """Start a shell and yield what it writes. Raises ``WrongState`` where there can be none now."""
        _check(request)
        job = await find_job(self._driver, request.id)
        if not (await spec_of(job)).enable_web_access:
            fix = "Set jobSpec.enableWebAccess: true in its file, or submit it with --enable-web-access"
            raise WrongState(f"The job {job.id} allows no shells beside its ranks.", fix=fix)
        order, host = _order(job, request)
        presence = self._driver.cluster.presence.get(host)
        within_s = 0.0 if presence is None or presence.session is None else FOLLOWS_WITHIN_S
        if not await self._transfers.connects(host, within_s):
            raise WrongState(f"The host of rank {request.rank}, {host}, is not connected; try again once it is.")
        reading = self._transfers.open_shell(host, order, user)
        if reading is None:
            raise TooMany(f"Too much is being read on {host} already; try again later.")
        name = secrets.token_urlsafe(18)
        try:
            await self._begun(reading, request, host)
            self._opened[name] = _Opened(job.id, user, reading)
            yield job_pb2.OpenShellResponse(shell=name, worker=order.worker, host=host)
            while not isinstance(item := await reading.items.get(), End):
                yield job_pb2.OpenShellResponse(data=item.data, stderr=item.stderr)
                self._transfers.credit(reading, len(item.data))
            yield _ending(item, host)
        finally:
            self._opened.pop(name, None)
            self._transfers.close(reading)

    async def _begun(self, reading: Reading, request: job_pb2.OpenShellRequest, host: str) -> None:
        """Return once the shell takes input. Raises ``WrongState`` with the host's reason where it does not."""
        window = agent_pb2.GiveInput(shell=reading.id, rows=request.rows, columns=request.columns)
        answer = await self._transfers.give_input(host, window)
        if not answer.problem:
            return
        # The host says more about a shell that it could not start when it ends the reading.
        said = answer.problem
        try:
            async with asyncio.timeout(1.0):
                item = await reading.items.get()
                said = item.problem if isinstance(item, End) and item.problem else said
        except TimeoutError:
            pass
        raise WrongState(f"No shell beside rank {request.rank} of the job {request.id}: {said.rstrip('.')}.")

    async def write(self, request: job_pb2.WriteShellRequest, user: str) -> job_pb2.WriteShellResponse:
        """Give a shell of the user's what was typed. Raises ``NotFound`` once it has ended."""
        opened = self._opened.get(request.shell)
        if opened is None or (opened.job, opened.user) != (request.id, user):
            raise NotFound(f"No such shell is open beside a rank of the job {request.id}; it may have ended.")
        order = agent_pb2.GiveInput(
            shell=opened.reading.id,
            data=request.data,
            rows=request.rows,
            columns=request.columns,
            end_of_input=request.end_of_input,
        )
        answer = await self._transfers.give_input(opened.reading.host, order)
        if answer.problem:
            raise WrongState(f"The shell can't be typed into: {answer.problem}")
        return job_pb2.WriteShellResponse(taken=min(answer.bytes, len(request.data)))


def _check(request: job_pb2.OpenShellRequest) -> None:
    wrong = []
    if request.command and not request.command[0]:
        wrong.append(Violation("command", "begins with an empty word", "begin it with a program"))
    if any("\0" in word for word in request.command):
        wrong.append(Violation("command", "holds a NUL character", "leave it out"))
    if sum(map(len, request.command)) > COMMAND_BYTES:
        fix = "put it into a file that the rank can read"
        wrong.append(Violation("command", f"is longer than {COMMAND_BYTES >> 10} KiB", fix))
    if request.term and not _TERM.fullmatch(request.term):
        wrong.append(Violation("term", "is no name of a terminal", "for example xterm-256color"))
    if wrong:
        raise InvalidInput(wrong)


def _order(job: Job, request: job_pb2.OpenShellRequest) -> tuple[agent_pb2.OpenShell, str]:
    """The order, and the host that it is for."""
    member = next((each for each in job.gang.members if request.rank in each.ranks), None)
    if member is None:
        problem = f"the job has no rank {request.rank}"
        raise InvalidInput([Violation("rank", problem, f"ranks are 0 to {job.gang.rank_count - 1}")])
    if job.terminal or not job.launched:
        raise WrongState(f"The job {job.id} has no running ranks.", fix=f"See: holdfast job show {job.id}")
    order = agent_pb2.OpenShell(
        job_id=job.id,
        generation=job.generation_of(member.index),
        worker=member.name,
        rank=request.rank,
        command=request.command,
        terminal=request.terminal,
        rows=request.rows,
        columns=request.columns,
        term=request.term,
    )
    return order, job.places[member.index].host


def _ending(end: End, host: str) -> job_pb2.OpenShellResponse:
    """The last answer of a shell's call."""
    if end.exit_status is not None:
        return job_pb2.OpenShellResponse(exit_status=min(end.exit_status, 255))
    lost = f"the connection to {host} broke, which ends it there too"
    return job_pb2.OpenShellResponse(problem=lost if end.lost else end.problem or "its host does not say why")
