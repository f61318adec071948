"""The fault matrix and the negatives in virtual time: found in time, the right rank named, the healthy left
alone.
"""

from __future__ import annotations

import pytest
from bench.hangs.matrix import right, since_fault
from bench.hangs.scenarios import CULPRITS, FAULTS, fault, negatives, save_on_8_h100s
from bench.hangs.world import Result, Scenario, Signals, World

from holdfast.hang.judge.stages import Rung

NEGATIVES = {scenario.name: scenario for scenario in negatives()}
ALL, UTILISATION, NONE = Signals(), Signals(gpu="utilisation"), Signals(gpu="none")


def found(scenario: Scenario, signals: Signals, seed: int = 1) -> Result:
    return World(scenario, seed=seed, signals=signals).run()


@pytest.mark.parametrize("signals", [ALL, UTILISATION, NONE], ids=["all", "utilisation", "no GPU"])
@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_is_found_in_time_and_the_guilty_rank_named(name: str, signals: Signals) -> None:
    scenario = fault(name, gpu=signals.gpu != "none")
    result = found(scenario, signals)
    noticed, acted = since_fault(scenario, result.noticed_s), since_fault(scenario, result.acted_s)
    assert noticed is not None and acted is not None
    assert right(scenario, result), result.sentence
    assert result.notices == 1
    assert result.overs == 0, "one hang is one hang"
    if scenario.external:
        assert noticed < 45 and 600 <= acted < 640
    elif scenario.at_ceiling:
        assert 1790 < acted < 3610
        assert noticed < (45 if name == "CPU livelock" else 240)
    else:
        assert noticed < 45 and acted < 90


@pytest.mark.parametrize("name", FAULTS)
def test_busy_waiting_peers_do_not_hide_a_fault(name: str) -> None:
    scenario = fault(name, busy=True, guilty=0, line_every_s=30.0)
    result = found(scenario, ALL)
    acted = since_fault(scenario, result.acted_s)
    assert acted is not None and right(scenario, result)
    assert scenario.at_ceiling or acted < (640 if scenario.external else 240)


@pytest.mark.parametrize("signals", [ALL, UTILISATION, NONE], ids=["all", "utilisation", "no GPU"])
@pytest.mark.parametrize("name", NEGATIVES)
def test_the_healthy_are_left_alone(name: str, signals: Signals) -> None:
    scenario = NEGATIVES[name]
    result = found(scenario, signals)
    assert result.acted_s is None, result.sentence
    assert result.notices == 0 or (scenario.may_notice and result.notices == 1), result.sentence


@pytest.mark.parametrize("signals", [ALL, UTILISATION, NONE], ids=["all", "utilisation", "no GPU"])
def test_save_that_hangs_is_found_though_its_gpus_look_as_those_of_a_healthy_one(signals: Signals) -> None:
    scenario = save_on_8_h100s("no byte, wait unknown", 549, hangs=True)
    result = found(scenario, signals)
    acted = since_fault(scenario, result.acted_s)
    assert acted is not None and acted < 90
    assert right(scenario, result), result.sentence


def test_a_place_that_cannot_be_emptied_is_stuck() -> None:
    assert found(fault("unkillable (D)"), ALL).rungs[-2:] == [Rung.ACTED, Rung.STUCK]


def test_agents_that_are_away_are_blind_and_not_hung() -> None:
    assert found(NEGATIVES["agents restart, 10 min"], ALL).blind


def test_the_sentence_says_who_is_where() -> None:
    sentence = found(fault("dataloader deadlock"), ALL).sentence
    assert "workerpool0-1 rank 5 is in data_loader.py:212 `queue.get`; 7 ranks wait in all_reduce" in sentence


def test_without_stack_dumps_faults_are_still_acted_on() -> None:
    scenario = fault("endless sleep")
    acted = since_fault(scenario, found(scenario, Signals(stacks=False)).acted_s)
    assert acted is not None and acted < 90


def test_without_proc_only_silence_is_left_and_the_ceiling() -> None:
    scenario = fault("endless sleep")
    acted = since_fault(scenario, found(scenario, Signals(process=False)).acted_s)
    assert acted is not None and 1790 < acted < 1810


def test_every_culprit_is_part_of_the_matrix() -> None:
    assert set(CULPRITS) < set(FAULTS)
