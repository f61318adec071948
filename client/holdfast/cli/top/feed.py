"""Keeps the board up to date: two streams say what has changed, and what is in view is asked for.

Hosts come by their own stream. Of jobs the stream says only which have changed, so their list is asked for again. The
goodput of jobs and the load of GPUs is asked for as far as they are in view. So the work is bounded, whatever the
cluster holds; ``plan`` bounds how often.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import anyio

from holdfast._sdk import json_view
from holdfast._sdk.reconnect import Outage, is_away
from holdfast._sdk.transport import ended_early
from holdfast.cli.top.board import ROWS, Board, Goodput, Group, Pane
from holdfast.cli.top.plan import MOST_S, Plan, What
from holdfast.client import TERMINAL
from holdfast.errors import HoldfastError
from holdfast.v1 import job_pb2

if TYPE_CHECKING:
    from holdfast.client import Client

ENDED_ROWS = 20
"""Ended jobs below all active ones, as many as ``ps`` shows."""
LOADS_MOST = 8
"""Questions for series in one go; a job on many hosts takes several."""
RANKS_MOST = 64
"""Of one question; of more the controller has bands alone."""
RECENT_S = 300.0
"""A figure that is older says nothing of now."""
REFUSED_WAIT_S = 30.0


class Feed:
    """Asks on behalf of one board. ``changed`` is called when there is something new to draw."""

    def __init__(
        self,
        client: Client,
        board: Board,
        *,
        changed: Callable[[], None] = lambda: None,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._board = board
        self._changed = changed
        self._wall = wall
        self._clock = clock
        self._plan = Plan()
        self._wake = anyio.Event()
        self._problems: dict[What, tuple[HoldfastError, float]] = {}
        """Why a question got no answer, and since when."""
        self._broken: tuple[HoldfastError, float] | None = None
        """Why the stream of hosts broke, and when. Where a controller stands still it does so last."""
        self._in_view: tuple[list[str], list[str]] = ([], [])

    async def load(self) -> None:
        """Ask for the status and the jobs once. Raises ``HoldfastError``."""
        for what in (What.STATUS, What.JOBS):
            self._plan.asked(what, self._clock())
            await self._ask(what)

    async def load_hosts(self) -> None:
        """Ask for all hosts once. Raises ``HoldfastError``."""
        self._board.hosts = {host.name: host for host in await self._client.list_hosts()}

    async def load_in_view(self) -> None:
        """Ask once for the goodput and the load of what is in view."""
        await self._load()
        while await self._goodput():
            pass

    async def follow(self) -> None:
        """Keep the board up to date until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._hosts)
            tasks.start_soon(self._changes)
            tasks.start_soon(self._questions)

    def looked(self) -> None:
        """Note that a frame was drawn: other rows may be in view."""
        board = self._board
        in_view = (self._jobs_in_view(), self._hosts_in_view())
        if in_view != self._in_view:
            self._in_view = in_view
            self._due(What.GOODPUT, What.LOAD)
        self._plan.pages = max(1, board.limit // ROWS)

    def ask_for_jobs(self) -> None:
        """Ask for the list of jobs at once: the user wants others."""
        self._plan.now(What.JOBS)
        self._wake.set()

    # --- streams --------------------------------------------------------------------------------------------------

    async def _hosts(self) -> None:
        while True:
            with contextlib.suppress(HoldfastError):
                async with contextlib.aclosing(self._client.watch_hosts(on_link=self._link)) as hosts:
                    async for host in hosts:
                        self._board.hosts[host.name] = host
                        self._changed()
            await anyio.sleep(REFUSED_WAIT_S)  # it was refused, as the status is then, which says why

    def _link(self, problem: HoldfastError | None) -> None:
        self._broken = None if problem is None else (problem, self._wall())
        if problem is None:
            self._due(What.STATUS, What.JOBS)
        self._tell()

    def _tell(self) -> None:
        """Show why the controller does not answer, or what it refuses."""
        told = [self._broken] if self._broken is not None else [*self._problems.values()]
        away = min(((since, error.message) for error, since in told if is_away(error)), default=None)
        self._board.away = None if away is None else (away[1], away[0])
        self._board.problem = next((e.message for e, _ in self._problems.values() if not is_away(e)), "")
        self._changed()

    async def _changes(self) -> None:
        outage, cursor = Outage(), 0
        while True:
            try:
                async with contextlib.aclosing(self._client.watch_changes(cursor)) as answers:
                    async for answer in answers:
                        outage.settled()
                        cursor = answer.cursor
                        jobs = answer.all or answer.jobs
                        if jobs or answer.hosts:
                            self._due(What.STATUS, *[What.JOBS] * bool(jobs))
                wait_s = outage.failed(ended_early())
            except HoldfastError as error:
                wait_s = outage.failed(error) if is_away(error) else REFUSED_WAIT_S
            await anyio.sleep(wait_s)

    def _due(self, *what: What) -> None:
        self._plan.changed(*what)
        self._wake.set()

    # --- questions ------------------------------------------------------------------------------------------------

    async def _questions(self) -> None:
        while True:
            for what in self._plan.due(self._clock()):
                self._plan.asked(what, self._clock())
                try:
                    await self._ask(what)
                    self._problems.pop(what, None)
                except HoldfastError as error:
                    before = self._problems.get(what)
                    since = before[1] if before and is_away(before[0]) else self._wall()
                    self._problems[what] = error, since
                self._tell()
            self._wake = anyio.Event()
            with anyio.move_on_after(self._plan.next(self._clock())):
                await self._wake.wait()

    async def _ask(self, what: What) -> None:
        match what:
            case What.STATUS:
                status = await self._client.status()
                self._board.status = status
                if len(self._board.hosts) > sum(status.hosts.values()):
                    await self.load_hosts()  # no stream says which hosts were removed
            case What.JOBS:
                await self._jobs()
            case What.GOODPUT:
                if await self._goodput():
                    self._plan.changed(What.GOODPUT)
            case What.LOAD:
                await self._load()

    async def _jobs(self) -> None:
        """Load the list: of each group that is asked for, no more than the limit."""
        board = self._board
        group, limit, search = board.group, board.limit, board.search[Pane.JOBS]
        found: dict[str, job_pb2.CustomJob] = {}
        more = False
        # Of those that wait the oldest: they start first.
        for each, newest in ((Group.RUNNING, True), (Group.WAITING, False), (Group.ENDED, True)):
            if group not in (Group.ALL, each):
                continue
            count = ENDED_ROWS if group is Group.ALL and each is Group.ENDED else limit
            rows, cut = await self._client.job_rows(count, each.value, search=search, newest=newest)
            found |= {job.id: job for job in rows}
            more |= cut and count == limit
        if (group, limit, search) == (board.group, board.limit, board.search[Pane.JOBS]):
            board.jobs, board.more_jobs = found, more
            board.goodput = {job: known for job, known in board.goodput.items() if job in found}

    def _jobs_in_view(self) -> list[str]:
        return self._board.in_view(Pane.JOBS, self._board.keys(Pane.JOBS, self._wall()))

    def _hosts_in_view(self) -> list[str]:
        return self._board.in_view(Pane.HOSTS, self._board.keys(Pane.HOSTS, self._wall()))

    async def _goodput(self) -> bool:
        """Ask for the goodput of one job in view; whether there are more to ask for."""
        board, now = self._board, self._wall()
        old = [job for job in self._jobs_in_view() if self._is_old(board.jobs[job], now)]
        if not old:
            return False
        # Known by then, as nothing, even where it may not be seen or an older controller keeps none.
        board.goodput[old[0]] = Goodput(None, now)
        with contextlib.suppress(HoldfastError):
            found = await self._client.goodput(old[0])
            board.goodput[old[0]] = Goodput(json_view.goodput_share(found), now)
        return len(old) > 1

    def _is_old(self, job: job_pb2.CustomJob, now: float) -> bool:
        if not job.generation:
            return False
        known = self._board.goodput.get(job.id)
        return known is None or (job.state not in TERMINAL and now - known.at >= MOST_S[What.GOODPUT])

    async def _load(self) -> None:
        """Ask for the load of the GPUs in view, as far as the caller may see the jobs on them."""
        held: dict[str, set[str]] = {}
        for name in self._hosts_in_view():
            for gpu in self._board.hosts[name].inventory.gpus:
                if gpu.job_id:
                    held.setdefault(gpu.job_id, set()).add(gpu.uuid)
        found: dict[str, float] = {}
        left = LOADS_MOST
        for job_id, gpus in held.items():
            with contextlib.suppress(HoldfastError):
                job = await self._client.get_job(job_id)
                last = last_launched(job)
                launched = last is not None and bool(await self._busy(job_id, [last]))
                by_rank = gpus_by_rank(job, gpus, launched=launched)
                ranks = sorted(by_rank)
                for start in range(0, min(len(ranks), left * RANKS_MOST), RANKS_MOST):
                    left -= 1
                    known = await self._busy(job_id, ranks[start : start + RANKS_MOST])
                    found |= {gpu: load for rank, load in known.items() for gpu in by_rank.get(rank, ())}
            if left <= 0:
                break
        self._board.load = found

    async def _busy(self, job_id: str, ranks: Iterable[int]) -> dict[int, float]:
        """Utilisation by rank in percent, of the newest minute that is known."""
        found: dict[int, float] = {}
        since = self._wall() - RECENT_S
        answers = self._client.series(job_id, ranks=ranks, figures=("gpu_util",), since=since)
        async with contextlib.aclosing(answers):
            async for answer in answers:
                for one in answer.series:
                    values = [value for value in one.mean if math.isfinite(value)]
                    if one.HasField("rank") and values:
                        found[one.rank] = values[-1]
        return found


def last_launched(job: job_pb2.CustomJob) -> int | None:
    """The last rank if each worker runs a launcher that starts a rank per GPU; ``None`` where none can be.

    Agents alone know those ranks. The number is beyond those that the job itself has, so it tells who starts them.
    """
    gpus = sum(len(worker.gpus) for worker in job.workers)
    lone = all(len(worker.ranks) == 1 for worker in job.workers)
    return gpus - 1 if lone and gpus > len(job.workers) else None


def gpus_by_rank(job: job_pb2.CustomJob, wanted: set[str], *, launched: bool = False) -> dict[int, list[str]]:
    """The wanted GPUs of each rank, by UUID. Several ranks may share one; a lone rank has all of its worker's.

    ``launched``: the ranks are those of launchers, one for each GPU of all workers in order.
    """
    if launched:
        every = enumerate(gpu for worker in job.workers for gpu in worker.gpus)
        return {rank: [gpu] for rank, gpu in every if gpu in wanted}
    found: dict[int, list[str]] = {}
    for worker in job.workers:
        if not wanted.intersection(worker.gpus):
            continue
        count = len(worker.ranks)
        each = len(worker.gpus) // count if count else 0
        for rank in worker.ranks:
            at = rank.local_rank
            given = worker.gpus[at * each : (at + 1) * each] or [worker.gpus[at % len(worker.gpus)]]
            found[rank.rank] = [gpu for gpu in given if gpu in wanted]
    return {rank: gpus for rank, gpus in found.items() if gpus}
