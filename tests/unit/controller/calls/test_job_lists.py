"""Lists of jobs by blocks: the same jobs as by a look at each, however they change between two lists."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import cast

import pytest
from tests.support.work import calls_of
from tests.unit.controller.examples import job

from holdfast.v1 import job_pb2
from holdfast_controller.core.model import job_blocks
from holdfast_controller.core.model.arrays import Element
from holdfast_controller.core.model.hosts.host import Place
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.job_blocks import BETWEEN_WORDS
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.jobs import Jobs, Known, head_of
from holdfast_controller.shell.calls.job_filter import read_filter
from holdfast_controller.shell.calls.slices import Slices
from holdfast_controller.shell.driver import Driver
from holdfast_controller.shell.services import job_lists
from holdfast_controller.shell.store import codec

WORDS = ("ann", "Ann", "STRASSE", "straße", "İstanbul", "ﬁne", "FINE", "Σίσυφος", "vision", "visionary", "", "a b")
STATES = (JobState.QUEUED, JobState.RUNNING, JobState.SUCCEEDED, JobState.FAILED, JobState.EXPIRED)
SEARCHES = ("", "ann", "strasse", "ﬁ", "fi", "i̇s", "ΣΥΦΟς", "host-3", "job-1", "nothing", "n\0v", "a b", " vis ")
TERMS = (
    "owner=Ann",
    'owner="straße"',
    'owner=""',
    "project=vision",
    "labels.team=FINE",
    'labels.team:* AND NOT labels."team"=ann',
    "state=FAILED",
    "state=EXPIRED|QUEUED",
    "active=true",
    "active=false",
    "owner=ann OR project=vision",
    "NOT owner=ann",
    "(owner=ann AND state=RUNNING) OR labels.team=visionary",
    "array=many",
    "id:job-1",
)


class World:
    """Jobs that change, and what a list needs of a driver."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.shelf: dict[str, str] = {}
        self.jobs = Jobs((), lambda names: [codec.load_entity("job", self.shelf[name]) for name in names])
        self.cluster = self
        self.number = 0

    async def bring(self, names: Iterable[str]) -> None:
        self.jobs.bring(names)

    async def rest(self) -> None:
        """As a list does between two pieces."""

    def word(self) -> str:
        return self.dice.choice(WORDS)

    def places(self) -> tuple[Place, ...]:
        return tuple(Place(f"Host-{self.dice.randrange(9)}") for _ in range(self.dice.randrange(3)))

    def submit(self) -> Job:
        self.number += self.dice.randrange(1, 9)
        made = job()
        array = Element("many", self.number, 99, 0) if self.dice.random() < 0.3 else None
        made.id, made.number, made.cursor = f"job-{self.number}", self.number, self.number
        made.owner, made.display_name, made.labels = self.word(), self.word(), {"team": self.word()}
        made.gang = replace(made.gang, project=self.word(), array=array)
        made.placement.places, made.state = (), JobState.QUEUED
        self.jobs[made.id] = made
        return made

    def change(self) -> None:
        """Something happens to some job, or there is a new one."""
        what = self.dice.choice(
            (self.submit, self.move, self.turn, self.delete, self.purge, self.let_go, self.look)
        )
        if what == self.submit or len(self.jobs):
            what()

    def any(self, *, ended: bool = False) -> Job | None:
        names = [each.id for each in self.jobs.heads() if each.terminal or not ended]
        return self.jobs[self.dice.choice(names)] if names else None

    def changed(self, known: Job) -> None:
        known.cursor += 1
        self.jobs.note(known)

    def move(self) -> None:
        if (known := self.any()) is not None and not known.terminal:
            known.placement = replace(known.placement, places=self.places())
            self.changed(known)

    def turn(self) -> None:
        if (known := self.any()) is not None and not known.terminal:
            known.state = self.dice.choice(STATES)
            self.changed(known)

    def delete(self) -> None:
        if (known := self.any(ended=True)) is not None:
            known.deleted = True
            self.changed(known)

    def purge(self) -> None:
        if (known := self.any(ended=True)) is not None:
            del self.jobs[known.id]

    def look(self) -> None:
        self.any()

    def let_go(self) -> None:
        self.shelf = self.shelf | {each.id: codec.dump_entity(each) for each in self.jobs.whole.values()}
        self.jobs.let_go(1_000_000, keep=self.dice.randrange(3))

    async def listed(self, request: job_pb2.ListJobsRequest, sees: Callable[[str], bool]) -> list[str]:
        found = job_lists.matching(cast(Driver, self), request, sees, cast(Slices, self))
        return [each.id async for each in found]

    def looked_at(self, request: job_pb2.ListJobsRequest, sees: Callable[[str], bool]) -> list[str]:
        """The same by a look at each job."""
        wanted, arrays = read_filter(request.filter).found, set[str]()
        search = request.search.strip().casefold()
        known: Sequence[Known] = sorted(self.jobs.heads(), key=lambda each: each.number)
        if request.newest:
            before = int(request.page_token.removeprefix("<") or 0) or 1_000_000
            known = [each for each in known if each.number < before][::-1]
        found = []
        for each in known:
            words = (each.id, each.display_name, each.owner, each.project, *each.labels.values(), *each.hosts)
            if not request.newest and each.number <= int(request.page_token or 0):
                continue
            if each.deleted or not sees(each.project) or not wanted([each]):
                continue
            if not any(search in word.casefold() for word in words):
                continue
            if request.one_per_array and each.element is not None:
                if each.element.array in arrays:
                    continue
                arrays.add(each.element.array)
            found.append(each.id)
        return found

    def question(self) -> job_pb2.ListJobsRequest:
        newest, token = self.dice.random() < 0.6, ""
        if self.dice.random() < 0.3:
            token = f"{'<' * newest}{self.dice.randrange(self.number + 5)}"
        return job_pb2.ListJobsRequest(
            filter=" AND ".join(self.dice.sample(TERMS, self.dice.choice((0, 0, 1, 1, 2)))),
            search=self.dice.choice(SEARCHES),
            newest=newest,
            page_token=token,
            one_per_array=self.dice.random() < 0.3,
        )


@pytest.mark.parametrize("seed", range(20))
async def test_a_list_has_the_jobs_that_a_look_at_each_finds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_blocks, "IN_BLOCK", 6)
    world = World(seed)
    some = 0
    for _ in range(30):
        world.submit()
    for _ in range(60):
        for _ in range(world.dice.randrange(10)):
            world.change()
        hidden = world.dice.choice(("vision", "none"))
        for _ in range(4):
            question = world.question()
            expected = world.looked_at(question, lambda project: project != hidden)  # noqa: B023
            found = await world.listed(question, lambda project: project != hidden)  # noqa: B023
            assert found == expected, question
            some += bool(found)
    assert some > 30


@pytest.mark.parametrize(("newest", "first", "then"), [(True, "8765", "4"), (False, "1234", "5")])
def test_a_list_has_no_job_twice_and_lacks_none_where_blocks_become_one_meanwhile(
    newest: bool, first: str, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_blocks, "IN_BLOCK", 4)
    jobs = Jobs((str(n), replace(job(), id=str(n), number=n)) for n in range(1, 9))
    found = job_lists._listed(jobs, job_pb2.ListJobsRequest(newest=newest), read_filter(""))
    assert [each.id for each in next(found)] == list(first)
    for name in "123678":
        del jobs[name]
    assert len(jobs.blocks.oldest_first()) == 1
    assert [each.id for some in found for each in some] == list(then)


async def test_no_call_is_made_for_each_job_of_which_none_is_wanted() -> None:
    """Of a hundred thousand jobs, each costs a quarter of a microsecond, and twice that as memory is far."""
    ended = replace(job(), state=JobState.SUCCEEDED, owner="bob", labels={"team": "nlp"})
    heads = [replace(head_of(ended), id=f"job-{n}", number=n) for n in range(1, 20_001)]
    world = World(1)
    world.jobs = Jobs((each.id, each) for each in heads)
    await world.listed(job_pb2.ListJobsRequest(search="nothing"), lambda _: True)

    def calls(**asked: str) -> int:
        request = job_pb2.ListJobsRequest(newest=True, **asked)  # type: ignore[arg-type]
        found = job_lists._listed(world.jobs, request, read_filter(request.filter))
        return calls_of(lambda: [each for some in found for each in some])

    for text in ("labels.team=vision", "owner=ann", "project=bob", "state=FAILED", "active=true"):
        assert calls(filter=text) < 2_000, text


def test_the_text_of_a_block_has_each_word_once_and_stays_small_however_often_its_jobs_move() -> None:
    jobs = Jobs()
    made = [replace(job(), id=f"job-{n}", number=n) for n in range(1, 101)]
    for each in made:
        jobs[each.id] = each
    [block] = jobs.blocks.oldest_first()
    first = jobs.words_in(block)
    assert first.count(f"{BETWEEN_WORDS}{made[0].owner}{BETWEEN_WORDS}") == 1
    for n in range(1_000):
        each = made[n % 100]
        each.placement = replace(each.placement, places=(Place(f"host-{n:04}"),))
        jobs.note(each)
        assert f"host-{n:04}" in jobs.words_in(block)
    assert len(jobs.words_in(block)) < 20 * len(first)


def test_blocks_of_which_most_jobs_are_gone_become_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_blocks, "IN_BLOCK", 8)
    jobs = Jobs((str(n), replace(job(), id=str(n), number=n)) for n in range(1, 65))
    assert len([jobs.words_in(block) for block in jobs.blocks.oldest_first()]) == 8
    for n in range(1, 65):
        if n % 8:
            del jobs[str(n)]
    left = jobs.blocks.oldest_first()
    assert len(left) <= 3 and [name for block in left for name in block.names] == list(jobs)
    assert all(
        f"{BETWEEN_WORDS}{name}{BETWEEN_WORDS}" in jobs.words_in(block) for block in left for name in block.names
    )
    assert sum(block.by_state.total() for block in left) == 8
    for name in list(jobs):
        del jobs[name]
    assert not [name for block in jobs.blocks.oldest_first() for name in block.names]
