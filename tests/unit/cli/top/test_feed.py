"""The feed asks for what is in view and no more, and goes on whatever the controller answers."""

from __future__ import annotations

import itertools
import math
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any, cast

import anyio
import pytest
from tests.unit.cli.top.boards import LARGE, NOW, board, drawn, host, job

from holdfast.cli.top.board import Board, Goodput, Group, Pane
from holdfast.cli.top.feed import LOADS_MOST, RANKS_MOST, Feed, gpus_by_rank, last_launched
from holdfast.cli.top.plan import What
from holdfast.client import Client
from holdfast.errors import DeadlineExceeded, Denied, HoldfastError, Unavailable
from holdfast.v1 import cluster_pb2, host_pb2, job_pb2


class Controller:
    """The calls of a client that ``top`` makes, answered from a board; ``asked`` has each with its main argument."""

    def __init__(self, known: Board) -> None:
        self.known = known
        self.asked: list[tuple[str, Any]] = []
        self.refuses: dict[str, HoldfastError] = {}
        self.links: list[HoldfastError | None] = []
        self.changed: list[cluster_pb2.WatchChangesResponse] = []

    def _called(self, name: str, argument: Any = "") -> None:
        self.asked.append((name, argument))
        if name in self.refuses:
            raise self.refuses[name]

    def count(self, name: str) -> int:
        return sum(each == name for each, _ in self.asked)

    async def status(self) -> cluster_pb2.GetStatusResponse:
        self._called("status")
        assert self.known.status is not None
        return self.known.status

    async def job_rows(
        self, count: int, filter: str = "", *, search: str = "", newest: bool = True
    ) -> tuple[list[job_pb2.CustomJob], bool]:
        self._called("job_rows", (count, filter, search, newest))
        conditions = {Group.RUNNING: (1, 3, 4), Group.WAITING: (2,), Group.ENDED: (5,)}[Group(filter)]
        found = [each for each in self.known.jobs.values() if each.summary.condition in conditions]
        return found[:count], len(found) > count

    async def list_hosts(self) -> list[host_pb2.Host]:
        self._called("list_hosts")
        return [*self.known.hosts.values()]

    async def watch_hosts(
        self, *, on_link: Callable[[HoldfastError | None], None]
    ) -> AsyncGenerator[host_pb2.Host]:
        self._called("watch_hosts")
        for each in self.known.hosts.values():
            yield each
        for problem in self.links:
            on_link(problem)
        await anyio.sleep_forever()

    async def watch_changes(self, cursor: int = 0) -> AsyncGenerator[cluster_pb2.WatchChangesResponse]:
        self._called("watch_changes", cursor)
        while self.changed:
            yield self.changed.pop(0)
        await anyio.sleep_forever()

    async def goodput(self, job_id: str) -> job_pb2.GetGoodputResponse:
        self._called("goodput", job_id)
        lines = [job_pb2.GoodputLine(category=name, ms=ms) for name, ms in (("train", 3), ("lost", 1))]
        return job_pb2.GetGoodputResponse(level="A", lines=lines)

    async def get_job(self, job_id: str) -> job_pb2.CustomJob:
        self._called("get_job", job_id)
        found = job_pb2.CustomJob(id=job_id)
        for each in self.known.hosts.values():
            worker = found.workers.add(host=each.name, gpus=[gpu.uuid for gpu in each.inventory.gpus])
            for local in range(len(worker.gpus)):
                worker.ranks.add(rank=len(found.workers) * 100 + local, local_rank=local)
        return found

    async def series(
        self, job_id: str, *, ranks: Iterable[int], figures: Iterable[str], since: float
    ) -> AsyncGenerator[job_pb2.GetSeriesResponse]:
        asked = [*ranks]
        self._called("series", asked)
        answer = job_pb2.GetSeriesResponse()
        for rank in asked:
            answer.series.add(figure="gpu_util", rank=rank, mean=[10.0, float(rank % 100), math.nan])
        yield answer


def feed_of(controller: Controller, shown: Board, **more: Any) -> Feed:
    return Feed(cast("Client", controller), shown, wall=lambda: NOW, **more)


async def test_a_frame_has_all_that_is_in_view() -> None:
    controller = Controller(board(host("h1", 2, job="run-1"), job("run-1"), job("wait-1", "WAITS")))
    shown = Board()
    feed = feed_of(controller, shown)
    await feed.load()
    await feed.load_hosts()
    drawn(shown, LARGE)
    await feed.load_in_view()
    assert {*shown.jobs} == {"run-1", "wait-1"} and {*shown.hosts} == {"h1"}
    assert shown.goodput == {"run-1": Goodput(0.75, NOW)}
    assert shown.load == {"GPU-h1-0": 0.0}
    text = "\n".join(drawn(shown, LARGE))
    assert "75.0 %" in text and "▁·" in text


async def test_of_ten_thousand_jobs_and_a_thousand_hosts_a_bounded_part_is_asked_for() -> None:
    known = board(
        *(host(f"h{n:04}", 8, job="j0000") for n in range(1000)),
        *(job(f"j{n:04}", "WORKS" if n < 5000 else "WAITS") for n in range(10_000)),
    )
    for each in known.hosts.values():
        for gpu in each.inventory.gpus:
            gpu.job_id = "j0000"
    controller, shown = Controller(known), Board()
    feed = feed_of(controller, shown)
    await feed.load()
    await feed.load_hosts()
    drawn(shown, LARGE)
    await feed.load_in_view()
    assert len(shown.jobs) == 400 and shown.more_jobs
    assert controller.count("job_rows") == 3
    assert controller.count("goodput") == len(shown.in_view(Pane.JOBS, shown.keys(Pane.JOBS, NOW))) < 60
    assert controller.count("get_job") == 1
    assert 1 <= controller.count("series") <= LOADS_MOST
    assert all(len(ranks) <= RANKS_MOST for name, ranks in controller.asked if name == "series")


async def test_a_group_and_a_search_are_the_controllers_work() -> None:
    controller, shown = Controller(board(job("run-1"), job("wait-1", "WAITS"))), Board()
    shown.group, shown.search[Pane.JOBS], shown.limit = Group.WAITING, "ann", 400
    await feed_of(controller, shown).load()
    assert [argument for name, argument in controller.asked if name == "job_rows"] == [
        (400, "state=QUEUED|PAUSED", "ann", False)
    ]
    assert {*shown.jobs} == {"wait-1"} and not shown.more_jobs


async def test_a_controller_that_refuses_at_first_ends_the_command() -> None:
    controller = Controller(board())
    controller.refuses["status"] = Denied("You may not look around.")
    with pytest.raises(Denied):
        await feed_of(controller, Board()).load()


async def following(feed: Feed, until: Callable[[], bool], news: list[anyio.Event]) -> None:
    """Follow until the condition holds, which is looked at whenever there is something new to draw."""
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(feed.follow)
            while not until():
                news[0] = anyio.Event()
                await news[0].wait()
            tasks.cancel_scope.cancel()


def followed(controller: Controller, shown: Board) -> tuple[Feed, list[anyio.Event]]:
    news = [anyio.Event()]
    return feed_of(controller, shown, changed=lambda: news[0].set()), news


async def test_an_outage_is_shown_while_it_lasts() -> None:
    controller, shown = Controller(board(host("h1"))), Board()
    controller.links = [Unavailable("No controller answers.")]
    feed, news = followed(controller, shown)
    await following(feed, lambda: shown.away == ("No controller answers.", NOW), news)
    controller.links = [Unavailable("No controller answers."), None]
    feed, news = followed(controller, shown)
    await following(feed, lambda: shown.away is None and shown.status is not None, news)


async def test_a_controller_that_stands_still_is_shown_with_the_time_before_its_streams_break() -> None:
    controller, shown, late = Controller(board(host("h1"))), Board(), DeadlineExceeded("No answer within 15 s.")
    controller.refuses = {"status": late, "job_rows": late}
    wall, ticks, news = itertools.count(1000.0), itertools.count(0.0, 100.0), [anyio.Event()]
    feed = feed_of(controller, shown, clock=lambda: next(ticks), changed=lambda: news[0].set())
    feed._wall = lambda: next(wall)
    await following(feed, lambda: controller.count("status") > 2, news)
    assert shown.away == ("No answer within 15 s.", 1000.0) and not shown.problem
    controller.refuses = {}
    feed._due(What.STATUS, What.JOBS)
    await following(feed, lambda: shown.away is None and shown.status is not None, news)


async def test_refusals_are_shown_and_everything_else_goes_on() -> None:
    controller, shown = Controller(board(host("h1"), job("run-1"))), Board()
    controller.refuses = {"job_rows": Denied("You may not list jobs."), "watch_changes": Denied("Nor this.")}
    feed, news = followed(controller, shown)
    await following(feed, lambda: shown.problem == "You may not list jobs." and "h1" in shown.hosts, news)


async def test_what_may_not_be_seen_is_asked_for_once() -> None:
    controller, shown = Controller(board(host("h1", job="run-1"), job("run-1"))), Board()
    controller.refuses = {name: Denied("Not yours.") for name in ("goodput", "get_job")}
    feed = feed_of(controller, shown)
    await feed.load()
    await feed.load_hosts()
    drawn(shown, LARGE)
    await feed.load_in_view()
    await feed.load_in_view()
    assert controller.count("goodput") == 1
    assert "?·" in "\n".join(drawn(shown, LARGE)) and not shown.problem


async def test_hosts_that_were_removed_leave_the_list() -> None:
    controller = Controller(board(host("h1")))
    shown = board(host("h1"), host("h2"))
    await feed_of(controller, shown).load()
    assert {*shown.hosts} == {"h1"}


async def test_an_answer_to_an_earlier_question_is_dropped() -> None:
    controller, shown = Controller(board(job("run-1"), job("wait-1", "WAITS"))), board(job("kept"))
    feed = feed_of(controller, shown)
    rows = controller.job_rows

    async def slowly(*args: Any, **more: Any) -> Any:
        shown.group = Group.WAITING  # the user presses a key meanwhile
        return await rows(*args, **more)

    controller.job_rows = slowly  # type: ignore[method-assign]
    await feed.load()
    assert {*shown.jobs} == {"kept"}


def test_gpus_are_shared_out_to_ranks_as_agents_do() -> None:
    found = job_pb2.CustomJob()
    pairs = found.workers.add(gpus=["a", "b", "c", "d"])
    for rank in range(2):
        pairs.ranks.add(rank=rank, local_rank=rank)
    crowd = found.workers.add(gpus=["e"])
    for rank in range(2):
        crowd.ranks.add(rank=2 + rank, local_rank=rank)
    found.workers.add(gpus=["f"])
    wanted = {"b", "c", "d", "e", "f"}
    assert gpus_by_rank(found, wanted) == {0: ["b"], 1: ["c", "d"], 2: ["e"], 3: ["e"]}
    assert gpus_by_rank(job_pb2.CustomJob(), wanted) == {}
    assert last_launched(found) is None and last_launched(job_pb2.CustomJob()) is None


def test_ranks_of_launchers_have_a_gpu_each() -> None:
    found = job_pb2.CustomJob()
    for number in range(2):
        worker = found.workers.add(gpus=[f"{number}{letter}" for letter in "ab"])
        worker.ranks.add(rank=number)
    assert last_launched(found) == 3
    assert gpus_by_rank(found, {"0b", "1a"}, launched=True) == {1: ["0b"], 2: ["1a"]}
    assert gpus_by_rank(found, {"0b", "1a"}) == {0: ["0b"], 1: ["1a"]}


async def test_the_load_below_a_launcher_is_that_of_each_rank() -> None:
    known = board(host("h1", 2, job="run-1"), job("run-1"))
    known.hosts["h1"].inventory.gpus[1].job_id = "run-1"
    controller = Controller(known)

    async def get_job(job_id: str) -> job_pb2.CustomJob:
        found = job_pb2.CustomJob(id=job_id)
        worker = found.workers.add(host="h1", gpus=["GPU-h1-0", "GPU-h1-1"])
        worker.ranks.add(rank=0)
        return found

    controller.get_job = get_job  # type: ignore[method-assign]
    shown = Board()
    feed = feed_of(controller, shown)
    await feed.load()
    await feed.load_hosts()
    drawn(shown, LARGE)
    await feed.load_in_view()
    assert shown.load == {"GPU-h1-0": 0.0, "GPU-h1-1": 1.0}
