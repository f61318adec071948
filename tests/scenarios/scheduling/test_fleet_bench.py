"""The fleet benchmark: its figures come from runs that add up, and no policy knows more than a scheduler can."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from bench.fleet.__main__ import POLICIES
from bench.fleet.account import Account, Broken
from bench.fleet.traces import BadTrace, Request, Trace, merged, read

KNOWING = {"easy-perfect", "holdfast-perfect", "shortest-perfect"}
"""Policies that are told the run times."""


def drawn(seed: int, sizes: tuple[int, ...] = (1, 1, 2, 4, 8, 12, 16, 32), jobs: int = 40) -> Trace:
    """A trace of jobs of all sizes that arrive faster than four hosts of eight GPUs can run them."""
    dice = random.Random(seed)
    requests = []
    for number in range(jobs):
        gpus = dice.choice(sizes)
        requests.append(Request(f"j{number:03}", dice.uniform(0, 20_000), gpus, dice.choice("abc")))
    requests.sort(key=lambda asked: asked.at)
    return Trace("drawn", tuple(requests), {asked.name: dice.uniform(60, 9000) for asked in requests})


def starts(account: Account) -> dict[str, float | None]:
    return {name: job.first_start for name, job in account.jobs.items()}


@pytest.mark.parametrize("seed", range(4))
def test_strict_order_is_fifo_to_the_second_where_hosts_are_equal(seed: int) -> None:
    """With sizes that leave nothing over: the hosts of a gang become free one after another, not all at once."""
    trace = drawn(seed, sizes=(1, 1, 2, 4, 8, 16, 32))
    assert starts(POLICIES["holdfast-strict"](trace, 4, 8)) == starts(POLICIES["fifo"](trace, 4, 8))


@pytest.mark.parametrize("seed", range(8))
def test_projected_order_is_easy_to_the_second_where_jobs_declare_the_truth(seed: int) -> None:
    trace = drawn(seed, sizes=(1, 1, 2, 4, 8, 16, 32))
    assert starts(POLICIES["holdfast-perfect"](trace, 4, 8)) == starts(POLICIES["easy-perfect"](trace, 4, 8))


@pytest.mark.parametrize("seed", range(1, 5))
def test_spot_jobs_delay_no_standard_one(seed: int) -> None:
    """On whole hosts, where it does not matter which."""
    trace = drawn(seed, sizes=(8, 8, 16, 24, 32), jobs=60).shaken(seed, spot_share=0.4)
    standard = tuple(asked for asked in trace.requests if not asked.spot)
    alone = POLICIES["fifo"](Trace("alone", standard, {a.name: trace.durations[a.name] for a in standard}), 4, 8)
    account = POLICIES["holdfast-strict"](trace, 4, 8)
    begun = starts(account)
    assert {name: begun[name] for name in starts(alone)} == starts(alone)
    assert account.preempted


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_every_policy_runs_all_jobs_in_full(policy: str) -> None:
    for seed in range(2):
        account = POLICIES[policy](drawn(seed).shaken(seed, spot_share=0.3), 4, 8)
        assert all(job.ended for job in account.jobs.values())


@pytest.mark.parametrize("policy", sorted(set(POLICIES) - KNOWING))
def test_no_policy_knows_how_long_a_job_will_run(policy: str) -> None:
    """Jobs that have not ended by some time may run for as long as they like after it: nothing before it differs."""
    trace = drawn(3, jobs=60)
    account = POLICIES[policy](trace, 4, 8)
    until = 15_000.0
    begun = {name: at for name, at in starts(account).items() if at is not None and at <= until}
    later = {
        name: s * 3 if name not in begun or begun[name] + s > until else s for name, s in trace.durations.items()
    }
    assert later != trace.durations
    other = starts(POLICIES[policy](Trace("other", trace.requests, later), 4, 8))
    assert {name: at for name, at in other.items() if at is not None and at <= until} == begun


@pytest.mark.parametrize("policy", sorted(KNOWING))
def test_perfect_estimates_are_told_apart_by_the_same_check(policy: str) -> None:
    """Else the test above would prove nothing."""
    with pytest.raises(AssertionError):
        test_no_policy_knows_how_long_a_job_will_run(policy)


def test_account_refuses_runs_that_cannot_be() -> None:
    trace = Trace("two", (Request("a", 0.0, 1), Request("b", 0.0, 1)), {"a": 10.0, "b": 10.0})
    account = Account(trace, 2)
    account.submitted("a")
    account.started("a", ("gpu-0",))
    account.submitted("b")
    with pytest.raises(Broken, match="b gets gpu-0, which a holds"):
        account.started("b", ("gpu-0",))
    account.advance(9.0)
    with pytest.raises(Broken, match="a ran 9"):
        account.ended("a")
    with pytest.raises(Broken, match="a job never ended"):
        account.close()


def test_traces_are_merged_by_their_arrivals_with_all_their_jobs() -> None:
    each = [drawn(seed) for seed in (1, 2)]
    both = merged(each)
    assert len(both.requests) == len(both.durations) == sum(len(trace.requests) for trace in each)
    assert both.gpu_s == pytest.approx(sum(trace.gpu_s for trace in each))
    assert [asked.at for asked in both.requests] == sorted(asked.at for trace in each for asked in trace.requests)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("submit_s,gpus\n1,2\n", "names no column duration_s"),
        ("submit_s,duration_s,gpus\n1,2,x\n", "line 2: invalid literal"),
        ("submit_s,duration_s,gpus\n1,0,1\n", "line 2: a job needs"),
        ("submit_s,duration_s,gpus\n1,2\n", "line 2: int"),
        ("submit_s,duration_s,gpus\n", "it has no jobs"),
    ],
)
def test_bad_trace_is_refused_with_its_line(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(BadTrace, match=problem):
        read(path)
