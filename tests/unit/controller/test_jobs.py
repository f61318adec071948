"""Jobs of which there is but a head in memory once they have ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace

import pytest
from tests.unit.controller.examples import EVENTS, job

from holdfast.errors import StoreError
from holdfast_controller.core import events as ev
from holdfast_controller.core.fold.allocation import recount
from holdfast_controller.core.fold.job import fold
from holdfast_controller.core.model import jobs as jobs_module
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.hosts.host import Place
from holdfast_controller.core.model.job import Job, Unreconciled
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.jobs import JobHead, Jobs, head_of, words_of
from holdfast_controller.core.model.run_times import run_time_of
from holdfast_controller.shell.calls.job_filter import read_filter, searched
from holdfast_controller.shell.store import codec


def of_the_examples() -> Job:
    """The job of the example events, as it has ended."""
    cluster = Cluster()
    for event in EVENTS:
        fold(cluster, event)
        if isinstance(event, ev.JobEnded):
            return cluster.jobs[event.job_id]
    raise AssertionError("it never ends")


def ended(name: str, number: int = 1) -> Job:
    found = job()
    found.id, found.number, found.cursor, found.state = name, number, number, JobState.SUCCEEDED
    return found


class Shelf:
    """What a store has of jobs."""

    def __init__(self) -> None:
        self.rows: dict[str, str] = {}
        self.asked: list[Sequence[str]] = []

    def put(self, *jobs: Job) -> None:
        self.rows |= {each.id: codec.dump_entity(each) for each in jobs}

    def read(self, names: Sequence[str]) -> list[Job]:
        self.asked.append(list(names))
        return [codec.load_entity("job", self.rows[name]) for name in names if name in self.rows]


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def jobs(shelf: Shelf) -> Jobs:
    """Five jobs, of which the middle one goes on and the rest are on the shelf."""
    made = {str(number): ended(str(number), number) for number in range(1, 6)}
    made["3"].state = JobState.QUEUED
    found = Jobs(made, shelf.read)
    shelf.put(*made.values())
    found.let_go(5, keep=0)
    assert set(found.whole) == {"3"}
    return found


def test_a_head_says_of_a_job_what_the_job_says() -> None:
    whole = of_the_examples()
    head = head_of(whole)
    made = {
        "ran_s": run_time_of(whole),
        "output_on": tuple(sorted(whole.output_on)),
        "words": words_of(whole),
    }
    for each in fields(JobHead):
        of_job = made[each.name] if each.name in made else getattr(whole, each.name)
        assert getattr(head, each.name) == of_job, each.name
    for name in ("terminal", "waits_for_turn", "has_turn"):
        assert getattr(head, name) is getattr(whole, name)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "state=SUCCEEDED|FAILED",
        "id:a*",
        "owner=ann",
        "project=default",
        "name:tr*",
        "labels.team=vision",
        "labels.team:*",
        "array=a",
        "active=true",
        'create_time>"2026-01-31T08:00:00Z"',
    ],
)
def test_a_filter_takes_the_head_where_it_takes_the_job(text: str) -> None:
    whole = of_the_examples()
    filtered = read_filter(text).found
    assert len(filtered([whole])) == len(filtered([head_of(whole)]))


def test_a_search_finds_the_head_by_the_host_that_the_job_ran_on() -> None:
    whole = of_the_examples()
    assert whole.hosts
    assert searched(whole.hosts[0])([head_of(whole)]) and not searched("nothing of this name")([head_of(whole)])
    assert not searched(f"{whole.id}\0{whole.display_name}")([whole]), "two texts are not one"
    moved = replace(whole, placement=replace(whole.placement, places=(Place("elsewhere"),)))
    assert searched("elsewhere")([moved]) and not searched("elsewhere")([whole])
    whole.placement.places = moved.places
    assert searched("elsewhere")([whole]), "also once it was moved after a search"
    others = [head_of(replace(whole, id=f"other-{number}")) for number in range(3)]
    assert searched("OTHER-1")([whole, *others]) == [others[1]] and searched(" ")(others) == others


def test_a_job_that_has_ended_is_read_once_and_then_is_the_same_object(jobs: Jobs, shelf: Shelf) -> None:
    found = jobs["2"]
    assert (found.id, found.state) == ("2", JobState.SUCCEEDED)
    assert jobs["2"] is found and jobs.get("2") is found and jobs.head("2") is found
    assert shelf.asked == [["2"]]


def test_nothing_is_read_to_count_to_look_up_and_to_list(jobs: Jobs, shelf: Shelf) -> None:
    assert (len(jobs), "2" in jobs, "9" in jobs, jobs.get("9")) == (5, True, False, None)
    assert list(jobs) == [each.id for each in jobs.heads()] == ["1", "2", "3", "4", "5"]
    assert jobs.head("2") is not None and jobs.head("9") is None
    assert shelf.asked == []


def test_jobs_are_counted_by_state_whole_and_as_heads(jobs: Jobs, shelf: Shelf) -> None:
    def counted() -> Counter[tuple[str, JobState]]:
        return Counter((each.project, each.state) for each in jobs.heads() if not each.deleted)

    project = jobs["3"].project
    first = counted()
    assert +jobs.by_state == first == {(project, jobs["3"].state): 1, (project, JobState.SUCCEEDED): 4}
    jobs["2"].deleted = True
    jobs["2"].cursor = 6
    jobs.note(jobs["2"])
    assert +jobs.by_state == counted() == first - Counter({(project, JobState.SUCCEEDED): 1})
    shelf.put(jobs["2"])
    jobs.let_go(6, keep=0)
    assert set(jobs.whole) == {"3"} and jobs["2"].deleted and jobs["1"].terminal
    assert +jobs.by_state == counted(), "whether they are read again or let go"
    del jobs["1"], jobs["2"]
    assert +jobs.by_state == counted() == first - Counter({(project, JobState.SUCCEEDED): 2})
    again = Jobs({each.id: each for each in jobs.heads()}.items(), shelf.read)
    assert again.by_state == counted()
    del again["3"]
    assert +again.by_state == {(project, JobState.SUCCEEDED): 2}


def test_the_order_is_that_of_creation_whatever_was_read_meanwhile(jobs: Jobs) -> None:
    assert jobs["4"].number == 4 and jobs["1"].number == 1
    assert [each.number for each in jobs.heads()] == [1, 2, 3, 4, 5]
    jobs.let_go(5, keep=0)
    assert [each.number for each in jobs.heads()] == [1, 2, 3, 4, 5]
    assert [each.number for each in jobs.values()] == [1, 2, 3, 4, 5]


def test_several_are_read_with_one_look(jobs: Jobs, shelf: Shelf) -> None:
    jobs.bring(("1", "3", "5", "9"))
    assert shelf.asked == [["1", "5"]]
    jobs.bring(("1", "5"))
    assert len(shelf.asked) == 1


@pytest.mark.parametrize("why", ["it has changed since", "a host holds a share for it", "a restore is open"])
def test_what_the_snapshots_lack_or_somebody_needs_stays(why: str, jobs: Jobs, shelf: Shelf) -> None:
    found = jobs["2"]
    if why == "it has changed since":
        found.cursor = 6
    if why == "a restore is open":
        found.unreconciled = Unreconciled.OPEN
    jobs.let_go(5, {"2"} if why == "a host holds a share for it" else (), keep=0)
    assert jobs.head("2") is found


def test_those_that_were_asked_for_last_stay(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "KEPT_WHOLE", 2)
    jobs.bring(("1", "2", "4"))
    jobs.bring(("1",))
    jobs.let_go(5)
    assert set(jobs.whole) == {"1", "3", "4"}


def test_many_are_let_go_in_parts_and_one_that_has_to_stay_holds_up_no_other(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_module, "LET_GO_AT_ONCE", 3)
    many = Jobs({str(number): ended(str(number), number) for number in range(1, 9)}, shelf.read)
    stay = {"1", "2", "3"}
    assert many.let_go(8, stay, keep=0) and many.whole.keys() == set("12345678")
    assert many.let_go(8, stay, keep=0) and many.whole.keys() == set("12378")
    while many.whole.keys() != stay:
        many.let_go(8, stay, keep=0)
    assert not many.let_go(8, stay, keep=0)


def test_a_job_that_was_read_before_it_changed_is_not_taken(jobs: Jobs, shelf: Shelf) -> None:
    [before] = shelf.read(["2"])
    jobs["2"].cursor = 6
    shelf.put(jobs["2"])
    jobs.let_go(6, keep=0)
    jobs.take([before])
    assert isinstance(jobs.head("2"), JobHead), "it is a copy of the past"
    assert jobs["2"].cursor == 6
    now = jobs["2"]
    jobs.take([replace(now)])
    assert jobs["2"] is now, "it is there already"


def test_a_job_that_is_gone_is_not_taken(jobs: Jobs, shelf: Shelf) -> None:
    [before] = shelf.read(["2"])
    del jobs["2"]
    jobs.take([before])
    assert "2" not in jobs and jobs.get("2") is None


def test_a_job_that_the_store_lacks_is_an_error_and_not_an_unknown_one(jobs: Jobs, shelf: Shelf) -> None:
    del shelf.rows["2"]
    with pytest.raises(StoreError, match="lacks the job 2"):
        jobs.get("2")


def test_a_store_that_knows_more_of_a_job_is_another_controllers(jobs: Jobs, shelf: Shelf) -> None:
    [newer] = shelf.read(["2"])
    newer.cursor = 9
    shelf.put(newer)
    with pytest.raises(StoreError, match="another one has taken over"):
        jobs["2"]


def test_heads_are_enough_to_count_everything_anew() -> None:
    cluster = Cluster()
    shelf = Shelf()
    for event in EVENTS:
        fold(cluster, event)
    known = [each for each in cluster.jobs.values() if each.terminal]
    assert known
    shelf.put(*known)
    cluster.output_on = {}
    recount(cluster)
    assert cluster.output_on
    before = cluster.output_on, cluster.arrays, cluster.run_times, cluster.dependents, cluster.queue
    cluster.jobs.read = shelf.read
    cluster.jobs.let_go(cluster.sequence, keep=0)
    assert not any(each.terminal for each in cluster.jobs.whole.values())
    cluster.output_on = {}
    recount(cluster)
    assert (cluster.output_on, cluster.arrays, cluster.run_times, cluster.dependents, cluster.queue) == before


def test_an_event_of_an_ended_job_changes_the_one_that_is_read() -> None:
    cluster, shelf = Cluster(), Shelf()
    for event in EVENTS:
        fold(cluster, event)
    name = next(each.id for each in cluster.jobs.values() if each.terminal)
    shelf.put(cluster.jobs[name])
    cluster.jobs.read = shelf.read
    cluster.jobs.let_go(cluster.sequence, keep=0)
    fold(cluster, ev.JobDeleted(job_id=name, at=Wall(1e9), by="ann", with_output=False))
    assert cluster.jobs[name].deleted and cluster.jobs[name].cursor == cluster.sequence
    cluster.jobs.let_go(cluster.sequence - 1, keep=0)
    assert name in cluster.jobs.whole, "no snapshot has it yet"
