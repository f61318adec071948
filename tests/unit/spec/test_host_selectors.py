"""Host selectors of jobs and pools: what is read, and what is refused with its field and what to do."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.controller.examples import host

from holdfast import spec
from holdfast.errors import InvalidSpec
from holdfast_controller.shell.convert.gang_from_spec import gang_of

POOL = "jobSpec.workerPoolSpecs"
JOBS = "jobSpec.scheduling.hostSelector"


def job(*pools: dict[str, Any] | None, whole: dict[str, Any] | None = None, **scheduling: Any) -> spec.JobFile:
    task: dict[str, Any] = {"replicaCount": 1, "processSpec": {"command": ["x"]}}
    made = [task if own is None else {**task, "hostSelector": own} for own in pools or (None,)]
    if whole is not None:
        scheduling["hostSelector"] = whole
    return spec.parse({"displayName": "d", "jobSpec": {"workerPoolSpecs": made, "scheduling": scheduling}})


def complaints(*pools: dict[str, Any] | None, whole: dict[str, Any] | None = None, **scheduling: Any) -> list[str]:
    with pytest.raises(InvalidSpec) as raised:
        job(*pools, whole=whole, **scheduling)
    return [str(violation) for violation in raised.value.violations]


def test_a_pools_selector_reaches_placement_beside_the_jobs() -> None:
    made = job(None, {"match": "gpu in (h100,h200)", "avoidHosts": ["bad"]}, whole={"match": "!old"})
    gang = gang_of(made.job_spec)
    assert gang.pools[0].selector is None
    assert gang.selector.in_words() == "!old"
    assert gang.hosts_in_words() == "!old; workerpool1: gpu in (h100,h200), not bad"
    of_pool = gang.pools[1]
    assert of_pool.admits("a", {"gpu": "h100"})
    assert not of_pool.admits("bad", {"gpu": "h100"})
    assert not of_pool.admits("a", {"gpu": "a100"})
    assert not gang.admits("a", {"old": "yes", "gpu": "h100"})
    assert host("a").labels == {}


def test_a_job_file_with_pools_selectors_comes_back_equal() -> None:
    made = job({"match": "a,!b"}, {"labels": {"k": "v"}, "hosts": ["h"]})
    sent = spec.to_proto(made.job_spec)
    assert sent.worker_pool_specs[0].host_selector.match == "a,!b"
    assert spec.from_proto(sent) == made.job_spec
    assert spec.parse(spec.to_dict(made)) == made


@pytest.mark.parametrize("match", ["gpu in ()", "gpu in h100", "a,,b", "gpu>3"])
def test_what_is_no_condition_is_refused_with_an_example(match: str) -> None:
    [found] = complaints(None, {"match": match})
    assert found.startswith(f"{POOL}[1].hostSelector.match: '")
    assert "is no condition on a label (write conditions with commas between them, such as: gpu in (h100" in found
    [found] = complaints(whole={"match": match})
    assert found.startswith(f"{JOBS}.match: ")


@pytest.mark.parametrize(
    "selector",
    [
        {"match": "a=x,a=y"},
        {"match": "a,!a"},
        {"match": "a in (x,y),a notin (x,y,z)"},
        {"match": "a!=x", "labels": {"a": "x"}},
        {"match": "a=x", "avoidLabels": {"a": "x"}},
    ],
)
def test_conditions_that_no_host_can_meet_are_refused(selector: dict[str, Any]) -> None:
    words = (
        "holds for no host: what is asked of the label a excludes each other (remove one of the conditions on it)"
    )
    assert complaints(selector) == [f"{POOL}[0].hostSelector.match: {words}"]
    assert complaints(whole=selector) == [f"{JOBS}.match: {words}"]


@pytest.mark.parametrize(
    ("whole", "own", "place", "problem"),
    [
        ({"hosts": ["a", "b"]}, {"hosts": ["c"]}, ".hosts", "names none of scheduling.hostSelector.hosts"),
        ({"avoidHosts": ["c", "d"]}, {"hosts": ["c"]}, ".hosts", "are all in scheduling.hostSelector.avoidHosts"),
        ({"labels": {"a": "x"}}, {"match": "a!=x"}, "", "the two exclude each other by the label a"),
        ({"match": "a in (x,y)"}, {"labels": {"a": "z"}}, "", "the two exclude each other by the label a"),
    ],
)
def test_a_pool_and_its_job_that_exclude_each_other_are_refused(
    whole: dict[str, Any], own: dict[str, Any], place: str, problem: str
) -> None:
    [found] = complaints(None, own, whole=whole)
    assert found.startswith(f"{POOL}[1].hostSelector{place}: ")
    assert problem in found
    assert found.endswith(")"), "it says what to do"


def test_one_contradiction_is_said_once() -> None:
    assert len(complaints({"match": "a,!a"}, {"match": "b"}, whole={"match": "a"}, spares=1)) == 1


def test_spares_that_could_not_suit_every_pool_are_refused() -> None:
    [found] = complaints({"labels": {"gpu": "a"}}, {"labels": {"gpu": "b"}}, spares=1)
    assert found == (
        "jobSpec.scheduling.spares: do for every worker, and no host meets the hostSelector of each of "
        "workerPoolSpecs: they exclude each other by the label gpu (ask for hosts that suit all of "
        "them, or for no spares)"
    )
    assert len(complaints({"hosts": ["a"]}, {"hosts": ["b"]}, spares=1)) == 1
    assert job({"hosts": ["a", "c"]}, {"hosts": ["b", "c"]}, spares=1).job_spec.scheduling.spares == 1


def test_a_pool_wants_and_avoids_no_host_at_once() -> None:
    [found] = complaints({"hosts": ["a"], "avoidHosts": ["a"]})
    assert found == f"{POOL}[0].hostSelector.avoidHosts[0]: a is in hosts as well (remove it from one of them)"


@pytest.mark.parametrize("field", ["hosts", "avoidHosts"])
def test_a_pattern_of_names_is_no_host_that_a_job_could_wait_for(field: str) -> None:
    assert complaints({field: ["gpu-1", "gpu-[2-4]"]}) == [
        f"{POOL}[0].hostSelector.{field}[1]: 'gpu-[2-4]' is no name of a host (write each host by itself)"
    ]
