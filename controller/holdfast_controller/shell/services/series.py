"""Series of ranks: takes what agents report, and answers what users ask for."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable

from holdfast._base.dataclass import dataclass
from holdfast._base.proto_values import seconds
from holdfast._daemon import log
from holdfast._series.block import Block, Head, Track, head, shifted, unpack
from holdfast._series.figures import ASKED_FOR, BY_NAME, Figure, Join
from holdfast._series.joining import Joining, bands, outliers
from holdfast.errors import InvalidInput, NotFound, StoreError, Unavailable, Violation
from holdfast.v1 import agent_pb2, job_pb2
from holdfast_controller.core.model.accounts.token_buckets import Buckets
from holdfast_controller.core.model.hosts.throttling import HOSTS_MOST
from holdfast_controller.core.model.job import Job
from holdfast_controller.shell.convert.job_to_proto import timestamp
from holdfast_controller.shell.driver import Driver, now
from holdfast_controller.shell.store.ended_jobs import read_beside
from holdfast_controller.shell.store.series.file import EARLIER_S, HOUR, MINUTE, QUARTER, Piece, SeriesFile
from holdfast_controller.shell.store.series.store import SeriesStore

LATER_S = HOUR
"""How far a host's time may be ahead of ours, and ``EARLIER_S`` behind it."""
BURST_BYTES, BYTES_PER_S = 4 << 20, 16 << 10
"""Of one host's reports: 64 workers of eight ranks send a hundredth of it."""
POINTS, POINTS_MOST = 300, 2_000
COARSE_S = 2 * QUARTER
"""Points that are as long are whole quarters of an hour, which take a tenth of the time to read."""
RANKS_MOST = 64
CELLS_MOST, BAND_CELLS_MOST = 100_000, 1_000_000
"""Points of all series of an answer; of all ranks from which bands are made."""
PAGE_BYTES, PAGE_S = 4 << 20, 2.0
"""Packed blocks that are read for one answer, and for how long: the reader asks again for what comes later."""
READ_MOST_BYTES, READ_MOST_S = 64 << 20, 9.0
"""Of what one point may need: nothing else is read or kept on the thread until it is done, and who asked waits 10 s."""
NAMED_AFTER_S = 30.0
"""A recording comes with the evidence for a suspicion; by then it is known which hang that was, if any."""
FORGET_EVERY_S = 600.0
SILENT_S = 240.0


class SeriesIntake:
    """Takes the reports of all hosts, each only of its own workers."""

    def __init__(self, driver: Driver, store: SeriesStore) -> None:
        self._driver = driver
        self._store = store
        self._spent = Buckets(BURST_BYTES, BYTES_PER_S, HOSTS_MOST)
        self._reading: asyncio.Future[list[Job]] | None = None
        self._read_last = ""
        self.dropped = 0
        """Minutes that agents had to drop because they were not taken for too long."""

    def take(self, host: str, report: agent_pb2.SeriesReport) -> bool:
        """Have a report kept, or refuse it for good; False where it can't be taken now."""
        if self._store.full or self._is_read(report.job_id):
            return False
        self._spent.charge(host, len(report.block), time.monotonic())
        self.dropped += max(0, report.dropped)
        try:
            piece = self._piece(host, report)
        except (ValueError, StoreError) as error:
            log.warning("series.refused", host=host, job=report.job_id, worker=report.worker, error=str(error))
            return True
        return self._store.put(piece)

    def _is_read(self, job_id: str) -> bool:
        """Whether the job, which has ended, is only being read, one at a time. The report is handed in again then."""
        if self._reading is not None and not self._reading.done():
            return bool(self._driver.cluster.jobs.missing((job_id,)))
        if self._read_last == job_id:
            return False  # one that the store lacks, or of which it has something else, is refused
        self._reading = read_beside(self._driver.store, self._driver.cluster.jobs, (job_id,))
        self._read_last = job_id if self._reading is not None else ""
        return self._reading is not None

    def owed_s(self, host: str) -> float:
        """Seconds until the host may send more."""
        return self._spent.owed_s(host, time.monotonic())

    def take_of_hang(self, job_id: str, worker: str, generation: int, content: bytes) -> None:
        """Keep a recording that came with evidence, if it turns out to be that of a hang."""
        if content:
            asked_at = now().wall
            asyncio.get_running_loop().call_later(
                NAMED_AFTER_S, self._keep_of_hang, asked_at, job_id, worker, generation, content
            )

    def _keep_of_hang(self, asked_at: float, job_id: str, worker: str, generation: int, content: bytes) -> None:
        job = self._driver.cluster.jobs.get(job_id)
        hang = job.hangs[-1] if job is not None and job.hangs else None
        if job is None or hang is None or hang.generation != generation:
            return
        if hang.over_at is not None and hang.over_at < asked_at:
            return
        try:
            place = job.place_at(generation, job.gang.index_by_name[worker])
            content = self._on_our_clock(place.host, content) if place is not None else content
            block = _checked(job, worker, content, step=2)
        except ValueError as error:
            log.warning("series.refused", job=job_id, worker=worker, error=str(error))
            return
        name = f"hang-{hang.number}"
        self._store.put(Piece(job_id, worker, generation, block.start, block.end, content, name))

    def _piece(self, host: str, report: agent_pb2.SeriesReport) -> Piece:
        """The report as it is kept. Raises ``ValueError`` where it is no business of this host, or no series."""
        job = self._driver.cluster.jobs.get(report.job_id)
        index = job.gang.index_by_name.get(report.worker) if job is not None and not job.deleted else None
        if job is None or index is None:
            raise ValueError("there is no such worker")
        place = job.place_at(report.generation, index)
        if place is None or place.host != host:
            raise ValueError("it is another host's worker")
        recorded = report.HasField("exited_rank")
        content = self._on_our_clock(host, report.block, 1 if recorded else MINUTE)
        block = _checked(job, report.worker, content, step=2 if recorded else MINUTE)
        if not recorded and (block.slots != 1 or block.start % MINUTE):
            raise ValueError("it is no minute")
        name = f"exit-{report.generation}-{report.worker}" if recorded else ""
        rank = report.exited_rank if recorded else None
        return Piece(report.job_id, report.worker, report.generation, block.start, block.end, content, name, rank)

    def _on_our_clock(self, host: str, content: bytes, whole_s: int = 1) -> bytes:
        """A packed block with its time by our clock, as far as that of its host is known to be wrong.

        It moves by a multiple of ``whole_s`` seconds. Raises ``ValueError`` for what is no packed block.
        """
        behind_s = whole_s * round(self._driver.cluster.presence_of(host).wrong_s / whole_s)
        return shifted(content, behind_s) if behind_s else content


def _checked(job: Job, worker: str, content: bytes, step: int) -> Head:
    """Time and ranks of a worker's block. Raises ``ValueError`` for one that can't be.

    Its numbers are looked at by who reads them: a thousand hosts send a block a minute for each of their workers.
    """
    block = head(content)
    if block.step != step:
        raise ValueError("its slots are of another length")
    wall = now().wall
    if not wall - EARLIER_S < block.start < wall + LATER_S:
        raise ValueError("its time is too far from the controller's")
    member = job.gang.members[job.gang.index_by_name[worker]]
    # Ranks below a launcher are known to the agent alone.
    if len(member.ranks) > 1 and not set(block.ranks) <= set(member.ranks):
        raise ValueError("it has ranks of other workers")
    return block


async def forget_deleted(driver: Driver, store: SeriesStore) -> None:
    """Drop the series of jobs that were deleted, every ten minutes, until cancelled."""

    def known(job_id: str) -> bool:
        job = driver.cluster.jobs.head(job_id)
        return job is not None and not job.deleted

    while True:
        await asyncio.sleep(FORGET_EVERY_S)
        try:
            await store.forget_all_but(known)
        except Unavailable as error:
            log.info("series.not_forgotten", error=str(error))


# --- questions ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Question:
    """A request as it is worked on beside the event loop. ``ranks`` None: bands of all."""

    job: str
    recording: str
    ranks: frozenset[int] | None
    figures: tuple[Figure, ...]
    workers: tuple[str, ...] | None
    since: int | None
    until: int
    points: int
    expected: int
    """Ranks that there may be."""
    bands: bool
    """Bands are asked for."""
    banded: bool
    """The answer has bands, or may have."""


@dataclass(frozen=True)
class _Found:
    block: Block
    following: int | None
    recordings: list[Piece]
    kept_since: int | None


async def job_series(
    store: SeriesStore, job: Job, request: job_pb2.GetSeriesRequest, reader: str
) -> job_pb2.GetSeriesResponse:
    """Answer a user's question. Raises ``InvalidInput``, ``NotFound`` or ``Unavailable``."""
    question = _question(job, request)
    found = await store.ask(lambda file: _read(file, question), reader)
    answer = job_pb2.GetSeriesResponse(points=found.block.slots)
    answer.since.CopyFrom(timestamp(float(found.block.start)))
    answer.step.FromSeconds(found.block.step)
    if found.kept_since is not None:
        answer.kept_since.CopyFrom(timestamp(float(found.kept_since)))
    if found.following is not None:
        answer.next_page_token = str(found.following)
    for one in found.recordings:
        told = answer.recordings.add(name=one.name, worker=one.worker, generation=one.generation)
        if one.rank is not None:
            told.rank = one.rank
        told.since.CopyFrom(timestamp(float(one.start)))
        told.until.CopyFrom(timestamp(float(one.until)))
    ranks = found.block.ranks
    for figure in question.figures:
        if len(ranks) <= RANKS_MOST and not request.bands:
            _add_ranks(answer, found.block, figure, ranks)
        else:
            _add_bands(answer, found.block, figure)
    answer.problem = store.problem and f"Nothing newer is kept at present: {store.problem}."
    runs_s = now().wall - job.started_at if job.started_at is not None and job.ended_at is None else 0.0
    if not answer.problem and found.kept_since is None and runs_s > SILENT_S:
        answer.problem = "None of its hosts has sent anything: agents of an earlier release send no series."
    return answer


def _add_ranks(answer: job_pb2.GetSeriesResponse, block: Block, figure: Figure, ranks: Iterable[int]) -> None:
    for rank in ranks:
        track = block.tracks.get((rank, figure))
        if track is None or all(math.isnan(value) for value in track.mean):
            continue
        series = answer.series.add(figure=figure.form.name, unit=figure.form.unit, rank=rank, mean=track.mean)
        if figure.form.join is Join.MEAN:
            series.least.extend(track.least)
            series.most.extend(track.most)


def _add_bands(answer: job_pb2.GetSeriesResponse, block: Block, figure: Figure) -> None:
    for band in bands(block, figure):
        answer.series.add(figure=figure.form.name, unit=figure.form.unit, quantile=band.quantile, mean=band.values)
    _add_ranks(answer, block, figure, outliers(block, figure))


def _question(job: Job, request: job_pb2.GetSeriesRequest) -> _Question:
    names = dict.fromkeys(request.figures)
    unknown = [name for name in names if name not in BY_NAME]
    if unknown:
        known = ", ".join(figure.form.name for figure in ASKED_FOR)
        raise InvalidInput([Violation("figures", f"names {unknown[0]!r}", f"use some of {known}")])
    if not 0 <= request.points <= POINTS_MOST:
        raise InvalidInput([Violation("points", "is out of range", f"use 1 to {POINTS_MOST}")])
    ended = job.ended_at
    until = seconds(request.until) if request.HasField("until") else min(ended or math.inf, now().wall) + MINUTE
    since = seconds(request.since) if request.HasField("since") else None
    token = request.page_token
    if token:
        if not (token.isascii() and token.isdecimal() and len(token) < 13):
            raise InvalidInput([Violation("page_token", "is none of ours", "ask again without")])
        since = float(token)
    if since is not None and since >= until:
        raise InvalidInput([Violation("since", "lies after the end of the time asked for", "give an earlier time")])
    ranks = frozenset(request.ranks)
    if ranks and request.bands:
        raise InvalidInput([Violation("bands", "are of all ranks", "leave it or ranks out")])
    members = [one for one in job.gang.members if not ranks or len(one.ranks) == 1 or ranks & set(one.ranks)]
    expected = len(ranks) if ranks else max(1, sum(len(one.ranks) for one in job.gang.members))
    return _Question(
        job=job.id,
        recording=request.recording,
        ranks=ranks or None,
        figures=tuple(BY_NAME[name] for name in names) or ASKED_FOR,
        workers=tuple(one.name for one in members) if ranks and len(members) <= RANKS_MOST else None,
        since=None if since is None else int(since),
        until=math.ceil(until),
        points=request.points or POINTS,
        expected=expected,
        bands=request.bands,
        banded=request.bands or expected > RANKS_MOST,
    )


def _read(file: SeriesFile, question: _Question) -> _Found:
    """Read and put together what is asked for; on the thread of the store."""
    kept_since, recordings = file.since(question.job), file.recordings(question.job)
    base, since, until = MINUTE, question.since, question.until
    if question.recording:
        rows = file.recording(question.job, question.recording)
        if not rows:
            known = ", ".join(dict.fromkeys(one.name for one in recordings)) or "none"
            raise NotFound(f"{question.job} has no recording {question.recording!r}.", fix=f"There are: {known}.")
        base = 2
        since = min(row[0] for row in rows)
        until = max(row[0] + row[1] for row in rows)
        read: Iterable[tuple[int, int, bytes]] = rows
    else:
        if since is None:
            since = kept_since if kept_since is not None else until - HOUR
        since = min(since, until - MINUTE) // MINUTE * MINUTE
        if coarse := _slots(question, MINUTE, until - since)[0] >= COARSE_S:
            base, since = QUARTER, since // QUARTER * QUARTER
        read = file.blocks(question.job, since, until, question.workers, coarse=coarse)
    step, slots = _slots(question, base, until - since)
    # Of bands only the means are looked at, and the extremes only of the ranks that are shown beside.
    joining = Joining(since, step, slots, extremes=not question.banded)
    wanted = {*question.figures, Figure.SAMPLES}
    size, following, began_s = 0, None, time.monotonic()
    taken: list[tuple[bytes, list[int]]] = []
    too_much = False
    for start, _, data in read:
        size += len(data)
        took_s = time.monotonic() - began_s
        # A recording is there as a whole, however large.
        if too_much := (size > READ_MOST_BYTES and not question.recording) or took_s >= READ_MOST_S:
            break
        # What begins later is for the next answer; each has at least one point.
        enough = size > PAGE_BYTES or took_s >= PAGE_S
        if enough and not question.recording and start >= since + step:
            following = since + (start - since) // step * step
            break
        try:
            found = unpack(data, wanted, question.ranks, extremes=not question.banded)
        except ValueError as error:
            log.warning("series.block_damaged", job=question.job, error=str(error))
            continue
        joining.add(found)
        if question.banded:
            taken.append((data, found.ranks))
    del read  # with it its statement ends, here and not wherever an error is let go
    if too_much:
        raise InvalidInput([Violation("since", "begins a time of which too much is kept", _LESS)])
    block = joining.block()
    if following is not None:  # before it is said whose extremes are shown
        block = _cut(block, (following - since) // step)
    if shown := _shown(block, question):
        block = _with_extremes(block, shown, taken)
    return _Found(block, following, recordings, kept_since)


def _shown(block: Block, question: _Question) -> set[tuple[int, Figure]]:
    """The tracks of a block of means whose extremes are part of the answer."""
    if not question.banded:
        return set()
    if len(block.ranks) <= RANKS_MOST and not question.bands:
        return {(rank, figure) for rank, figure in block.tracks if figure in question.figures}
    return {(rank, figure) for figure in question.figures for rank in outliers(block, figure)}


def _with_extremes(block: Block, shown: set[tuple[int, Figure]], taken: Iterable[tuple[bytes, list[int]]]) -> Block:
    """The block, with extremes of the tracks that are shown; ``taken`` is what it was made of, with its ranks."""
    ranks, figures = {rank for rank, _ in shown}, {figure for _, figure in shown}
    joining = Joining(block.start, block.step, block.slots)
    for data, there in taken:
        if not ranks.isdisjoint(there):
            joining.add(unpack(data, {*figures, Figure.SAMPLES}, ranks))
    whole = joining.block().tracks
    tracks = {key: whole[key] if key in shown else track for key, track in block.tracks.items()}
    return Block(block.start, block.step, block.slots, tracks)


def _slots(question: _Question, base: int, length: int) -> tuple[int, int]:
    """(Seconds, number) of the points: as many as were asked for, or as an answer holds."""
    most = BAND_CELLS_MOST if question.banded else CELLS_MOST
    points = max(1, min(question.points, most // (question.expected * len(question.figures))))
    step = base * max(1, math.ceil(length / (points * base)))
    return step, max(1, math.ceil(length / step))


def _cut(block: Block, slots: int) -> Block:
    def first(track: Track) -> Track:
        return Track(track.mean[:slots], track.least[:slots], track.most[:slots])

    return Block(block.start, block.step, slots, {key: first(track) for key, track in block.tracks.items()})


_LESS = "ask for a shorter time, for more points, or for some ranks and figures"
