"""Seeds: those that once failed, and fresh ones, each a cluster of its own with misfortunes of its own."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from tests.sim import generator, run
from tests.sim.moves import OfHost
from tests.sim.plan import Plan
from tests.sim.several import plan as site_plan
from tests.sim.several import replacement
from tests.sim.several.bugs import SEVERAL
from tests.sim.several.oracles import SiteOracles

from holdfast_controller.shell.store.databases.postgresql import patience

FOUND = {
    12: "messages that lay in a frozen controller's sockets",
    18: "a place in which nothing was launched stayed on its host for ever",
    26: "a host was given up seconds after a silence that was common",
    50: "as 18, after a crash between the note of the attempt and the launch",
    69: "a controller of the past kept hosts",
    73: "a worker alone whose shim had stopped it was never started again",
    77: "a controller that woke up gave a host up before it had read what had come",
    226: "a job was refused before the first host had said hello",
    1651: "a silence that ended while the controller stood still",
    1669: "as 1651, with clocks of their own",
    62521: "what came on a stream that was over counted as heard, in the oracle",
    2074: "the cause of a failure was renamed after the job's end",
    901: "hosts that were given up before counted as silent, in the oracle",
    2578: "a worker alone was held back for ever when its time came while no controller was there",
    21548: "a drain and the end of a job's grace, noticed at the same moment, raised out of the core",
    8302323: "a worker was placed where its host kept its old share, in the oracle",
    8300413: "what the network brought of a host after it was fenced counted as heard, in the oracle",
    7700043: "a job may take its own spare on a host that was reserved since, in the oracle",
    701664: "a worker whose peer's shim had died, and was back a second before, counted as reached, in the oracle",
    1378167327: "a worker that was prepared was forgotten without a word, and its share stayed taken",
    1155977819: "a spare stayed in the rack that its job had left, and the job came to be in two",
    1267434462: "as 1378167327, between two generations",
    1426608426: "a job counted twice in its quota while it could still run on a lost host, in the oracle",
    1328402498: "a job ended while, on a host that was back, a rank outlived the KILL of its own shim",
}
"""What these seeds have shown, of the cores or of the simulation itself, as worlds were drawn then."""
SITES = (5, 9, 13, 15, 18, 20)
"""Of sites with several controllers: promotions with and without all commits, pauses, cuts, restarts."""
FRESH_SEEDS = 12
FRESH_S = 30.0
"""Fresh seeds are tried for so long at most; a loaded machine tries fewer."""


@pytest.mark.parametrize("seed", [*range(20), *(seed for seed in FOUND if seed >= 20)])
def test_seed_keeps_every_invariant(seed: int) -> None:
    plan = generator.draw(seed)
    _, problem = run.attempt(plan)
    if problem is not None:
        pytest.fail(run.report(plan, problem), pytrace=False)


def test_seeds_with_checks_of_hosts_keep_every_invariant() -> None:
    """An admin asks for some amid all else; they are no part of the plan's own draw, which stays as it was."""
    begun = 0
    for seed in range(12):
        plan, dice = generator.draw(seed), random.Random(seed)
        hosts = [f"host-{number}" for number in range(len(plan.rates))]
        asked = [
            OfHost(dice.uniform(5.0, plan.lasts_s), "check", dice.choice(hosts), (dice.random() < 0.5,))
            for _ in range(6)
        ]
        moves = tuple(sorted((*plan.moves, *asked), key=lambda move: move.at_s))
        world, problem = run.attempt(replace(plan, moves=moves))
        assert problem is None, f"seed {seed}: {problem}"
        begun += sum("by the job host-check-" in words for _, words in world.oracles.logged)
    assert begun > 20


@pytest.mark.parametrize("seed", SITES)
def test_seed_of_several_controllers_keeps_every_invariant(seed: int) -> None:
    plan = site_plan.draw(seed)
    _, problem = run.attempt(plan)
    if problem is not None:
        pytest.fail(run.report(plan, problem), pytrace=False)


@pytest.mark.parametrize("seed", range(3))
def test_a_gang_that_leaves_a_host_runs_in_one_generation_at_a_time(seed: int) -> None:
    _, problem = run.attempt(replacement.draw(seed))
    if problem is not None:
        pytest.fail(run.report(replacement.draw(seed), problem), pytrace=False)


def test_two_generations_beside_a_leader_that_goes_on_without_its_database_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such a leader would have to answer its hosts unconfirmed, and to wait for its database for ever."""
    _, answers_unconfirmed = SEVERAL["acks unconfirmed"]
    for term in ("FOR_S", "BESIDE_ANOTHER_S", "UNHEARD_S"):
        monkeypatch.setattr(patience, term, 1e9)
    with answers_unconfirmed():
        _, problem = run.attempt(replacement.draw(1))
        assert run.kind(problem) == "1 one writer"
        monkeypatch.setattr(SiteOracles, "on_confirmed", lambda *_: None)
        _, problem = run.attempt(replacement.draw(1))
        assert run.kind(problem) == "3 no overlap"


def test_fresh_seeds_keep_every_invariant(capsys: pytest.CaptureFixture[str]) -> None:
    first = random.SystemRandom().randrange(1 << 32)
    began, tried = time.process_time(), 0
    while tried < FRESH_SEEDS and time.process_time() - began < FRESH_S:
        plan = generator.draw(first + tried)
        _, problem = run.attempt(plan)
        if problem is not None:
            pytest.fail(run.report(plan, problem), pytrace=False)
        tried += 1
    with capsys.disabled():
        print(f"\n{tried} fresh seeds from {first}")
    assert tried > 0


@pytest.mark.parametrize("draw", [partial(generator.draw, 7), partial(site_plan.draw, 13)], ids=["world", "site"])
def test_same_seed_gives_the_same_world(draw: Callable[[], Plan]) -> None:
    stories = [run.attempt(draw())[0] for _ in range(2)]
    assert stories[0].story == stories[1].story
    assert stories[0].oracles.logged == stories[1].oracles.logged
    assert stories[0].engine.events == stories[1].engine.events


@pytest.mark.slow
def test_many_seeds_keep_every_invariant() -> None:
    assert run.seeds(100_000, 1000, keep_going=True) == 0
    assert run.seeds(100_000, 100, keep_going=True, draw=site_plan.draw) == 0
