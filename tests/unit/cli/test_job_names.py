"""Jobs by id, by the beginning of an id, and by display name; and the filters that choose several."""

from __future__ import annotations

import datetime
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from holdfast.cli.kit.job_filters import job_filter
from holdfast.cli.kit.job_names import SHOWN, job_of, jobs_of, name_dependencies, on_job
from holdfast.errors import InvalidInput, NotFound, Violation
from holdfast.v1 import job_pb2

pytestmark = pytest.mark.anyio


class Jobs:
    """As much of a client as names are looked up with; counts the calls."""

    def __init__(self, *jobs: tuple[str, str], old: bool = False) -> None:
        self.jobs = {id: job_pb2.CustomJob(id=id, display_name=name) for id, name in jobs}
        for job in self.jobs.values():
            if job.display_name == "sweep":
                job.array.id, _, index = job.id.rpartition("-")
                job.array.index = int(index)
        self.calls: list[str] = []
        self.old = old

    async def get_job(self, job_id: str) -> job_pb2.CustomJob:
        self.calls.append(f"get {job_id}")
        if job_id not in self.jobs:
            raise NotFound(f"There is no job {job_id!r}.", fix="See: holdfast ps --all")
        return self.jobs[job_id]

    async def list_jobs(self, filter: str) -> AsyncGenerator[job_pb2.CustomJob]:
        for job in self.jobs.values():
            if filter == f"array={job.array.id}":
                yield job

    async def newest_jobs(
        self, count: int, filter: str = "", *, one_per_array: bool = False
    ) -> list[job_pb2.CustomJob]:
        self.calls.append(filter)
        if self.old and filter.startswith("id"):
            raise InvalidInput([Violation("filter", "'id' can't be asked for")])
        if filter.startswith("name="):
            name = filter.removeprefix("name=")
            name = name[1:-1].replace("\\", "") if name.startswith('"') else name
            found = [job for job in self.jobs.values() if job.display_name == name]
        elif filter.startswith("array="):
            found = [job for job in self.jobs.values() if job.array.id == filter.removeprefix("array=")]
        else:
            found = [job for job in self.jobs.values() if job.id.startswith(filter[3:].rstrip("*"))]
        return list({(one_per_array and job.array.id) or job.id: job for job in found}.values())[-count:]


async def named(jobs: Any, word: str) -> str:
    return (await job_of(jobs, word)).id


@pytest.mark.parametrize("word", ["sw-abc", "sw", "sweep"])
async def test_an_array_is_found_as_a_job_is_and_stands_for_all_its_jobs(word: str) -> None:
    jobs: Any = Jobs(("sw-abc-1", "sweep"), ("sw-abc-2", "sweep"), ("eval-abc", "y"))
    assert [job.id for job in await jobs_of(jobs, word)] == ["sw-abc-1", "sw-abc-2"]
    assert [job.id for job in await jobs_of(jobs, "sw-abc-2")] == ["sw-abc-2"]
    assert [job.id for job in await jobs_of(jobs, "eval")] == ["eval-abc"]
    asked = job_pb2.CustomJob()
    asked.job_spec.scheduling.after.add(job=word)
    await name_dependencies(jobs, asked)
    assert [each.job for each in asked.job_spec.scheduling.after] == ["sw-abc"]


async def test_the_beginning_of_ids_of_several_elements_means_none_of_them() -> None:
    """Of 0-19:2 there is no 1: what is to cancel that one must not cancel another."""
    jobs: Any = Jobs(*((f"sw-abc-{n}", "sweep") for n in (10, 12, 20)))
    with pytest.raises(NotFound, match="may mean any of 2 jobs") as refused:
        await on_job(jobs, "sw-abc-1", jobs.get_job)
    assert [line.split()[0] for line in refused.value.message.split("\n")[1:]] == ["sw-abc-12", "sw-abc-10"]
    assert await named(jobs, "sw-abc-2") == "sw-abc-20"


@pytest.mark.parametrize("other", [("eval-x", "sw-abc"), ("sw-abc-again-x", "sw-abc again")])
async def test_the_whole_id_of_an_array_counts_before_names_and_longer_ids(other: tuple[str, str]) -> None:
    jobs: Any = Jobs(("sw-abc-1", "sweep"), ("sw-abc-2", "sweep"), other)
    assert [job.id for job in await jobs_of(jobs, "sw-abc")] == ["sw-abc-1", "sw-abc-2"]
    asked = job_pb2.CustomJob()
    asked.job_spec.scheduling.after.add(job="sw-abc")
    await name_dependencies(jobs, asked)
    assert [each.job for each in asked.job_spec.scheduling.after] == ["sw-abc"]


async def test_a_word_for_nothing_is_refused_where_an_array_may_be_named() -> None:
    with pytest.raises(NotFound, match="There is no job 'nope'"):
        await jobs_of(Jobs(("sw-abc-1", "sweep")), "nope")  # type: ignore[arg-type]


async def test_a_whole_id_takes_no_further_call() -> None:
    jobs = Jobs(("train-a", "eval-b"), ("eval-b", "train-a"))
    assert await named(jobs, "train-a") == "train-a"
    assert jobs.calls == ["get train-a"]


@pytest.mark.parametrize("word", ["tr", "train-", "train-ab", "my run", 'say "hi"'])
async def test_a_job_is_found_by_the_beginning_of_its_id_and_by_its_name(word: str) -> None:
    jobs = Jobs(("train-abc", word if " " in word else "x"), ("eval-abc", "y"))
    assert await named(jobs, word) == "train-abc"


async def test_a_name_counts_before_the_beginning_of_other_ids() -> None:
    assert await named(Jobs(("train-a", "train 1"), ("job-b", "train")), "train") == "job-b"


async def test_a_word_for_several_jobs_is_refused_with_all_of_them_newest_first() -> None:
    with pytest.raises(NotFound) as refused:
        await named(Jobs(("train-a", "x"), ("eval-b", "y"), ("train-c", "z")), "train")
    head, *lines = refused.value.message.split("\n")
    assert head == "'train' may mean any of 2 jobs; the newest first:"
    assert [line.split()[0] for line in lines] == ["train-c", "train-a"]
    assert refused.value.fix == "Give the whole id, or more of it."


async def test_a_refusal_lists_so_many_at_most() -> None:
    with pytest.raises(NotFound) as refused:
        await named(Jobs(*((f"train-{n:02}", "same") for n in range(40))), "same")
    head, *lines = refused.value.message.split("\n")
    assert "more than 10 jobs" in head and len(lines) == SHOWN
    assert lines[0].startswith("train-39")


@pytest.mark.parametrize("word", ["nope", "no pe", "a/b", "*", "trai*"])
async def test_a_word_for_no_job_is_refused_as_an_unknown_id_is(word: str) -> None:
    with pytest.raises(NotFound, match="There is no job"):
        await named(Jobs(("train-a", "x")), word)


async def test_a_controller_without_filters_by_id_still_finds_names() -> None:
    jobs = Jobs(("train-a", "mine"), old=True)
    assert await named(jobs, "mine") == "train-a"
    with pytest.raises(NotFound, match="There is no job 'train'"):
        await named(jobs, "train")


@pytest.mark.parametrize(
    ("word", "near"),
    [("swep", "sweep"), ("trian-abc", "train-abc"), ("my rum", "my run"), ("train-abd", "train-abc")],
)
async def test_a_misspelt_name_is_answered_with_the_one_that_may_be_meant(word: str, near: str) -> None:
    jobs = Jobs(("sw-x7k-1", "sweep"), ("sw-x7k-2", "sweep"), ("train-abc", "my run"), ("eval-x", "\x1bmy rub"))
    with pytest.raises(NotFound) as refused:
        await named(jobs, word)
    assert refused.value.fix == f"Did you mean {near}? See: holdfast ps --all"
    assert jobs.calls.count("") == 1


async def test_a_word_like_no_job_is_not_guessed() -> None:
    with pytest.raises(NotFound) as refused:
        await named(Jobs(("train-abc", "my run")), "nope")
    assert refused.value.fix == "See: holdfast ps --all"


async def test_what_is_asked_of_a_job_is_asked_by_its_id() -> None:
    jobs: Any = Jobs(("train-a", "mine"))
    assert (await on_job(jobs, "mine", jobs.get_job))[0] == "train-a"
    assert jobs.calls[-1] == "get train-a"


def test_a_filter_holds_what_was_asked_for() -> None:
    found = job_filter(
        now=1_000_000_000.0,
        name="sweep-*",
        since=3600.0,
        label=[("team", "vision"), ("odd:key", 'a "b"'), ("empty", "")],
        state=["running", "JOB_STATE_FAILED"],
        owner="ann",
        active=True,
    )
    assert found.split(" AND ") == [
        "name:sweep-*",
        'create_time>="2001-09-09T00:46:40+00:00"',
        "state=RUNNING|FAILED",
        "owner=ann",
        "label.team=vision",
        'label."odd:key"="a \\"b\\""',
        'label.empty=""',
        "active=true",
    ]
    assert job_filter(now=0.0) == ""
    assert job_filter(now=0.0, filter="a=b OR c=d") == "a=b OR c=d"
    assert job_filter(now=0.0, filter="a=b OR c=d", owner="ann") == "owner=ann AND (a=b OR c=d)"
    ages_ago = [job_filter(now=1e9, since=seconds) for seconds in (1e6 * 86_400, float("inf"))]
    assert ages_ago == ['create_time>="0001-01-03T00:00:00+00:00"'] * 2
    day = datetime.datetime(2026, 11, 21, tzinfo=datetime.UTC)
    assert job_filter(now=0.0, since=day) == 'create_time>="2026-11-21T00:00:00+00:00"'
