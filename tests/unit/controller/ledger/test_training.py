"""How far a job's training is: what its workers report together, and what can't be known left out."""

from __future__ import annotations

import dataclasses

import pytest

from holdfast.hang.pipeline.features import OutputFeatures, WorkerFeatures
from holdfast_controller.core.views.training import UNKNOWN, Training, training_of


@dataclasses.dataclass
class Gang:
    progress_total: int = 0


@dataclasses.dataclass
class Job:
    id: str = "j"
    terminal: bool = False
    gang: Gang = dataclasses.field(default_factory=Gang)


@dataclasses.dataclass
class Runtime:
    features: dict[int, WorkerFeatures]


@dataclasses.dataclass
class Cluster:
    runtime: dict[str, Runtime]


def shown(*outputs: OutputFeatures, progress_total: int = 0, terminal: bool = False) -> Training:
    vectors = {n: WorkerFeatures(f"workerpool0-{n}", "h", 1.0, (), output) for n, output in enumerate(outputs)}
    job = Job(terminal=terminal, gang=Gang(progress_total))
    return training_of(Cluster({"j": Runtime(vectors)}), job)  # type: ignore[arg-type]


def test_the_furthest_worker_tells_the_step_and_any_tells_the_total() -> None:
    found = shown(OutputFeatures(step=9.0, step_total=100.0, saved_step=5.0), OutputFeatures(step=10.0))
    assert found == Training(10.0, 100.0, "", 5.0, reported=True)


def test_nothing_is_known_of_a_job_that_reports_nothing_or_has_ended() -> None:
    assert training_of(Cluster({}), Job()) == UNKNOWN  # type: ignore[arg-type]
    assert shown() == shown(OutputFeatures()) == UNKNOWN
    assert shown(OutputFeatures(step=9.0), terminal=True) == UNKNOWN


@pytest.mark.parametrize(
    ("output", "of_file", "total"),
    [
        (OutputFeatures(step=9.0), 0, None),
        (OutputFeatures(step=9.0), 50, 50.0),
        (OutputFeatures(step=9.0, step_total=20.0), 50, 20.0),
        (OutputFeatures(step=51.0), 50, None),
        (OutputFeatures(step=9.0, step_fell=True), 50, None),
        (OutputFeatures(bar_step=3.0, step_total=10.0), 50, 10.0),
        (OutputFeatures(), 50, None),
    ],
)
def test_the_program_goes_before_the_job_file_and_an_implausible_total_is_unknown(
    output: OutputFeatures, of_file: int, total: float | None
) -> None:
    assert shown(output, progress_total=of_file).total == total


def test_a_bar_counts_only_where_no_worker_reports_a_step() -> None:
    bar = OutputFeatures(bar_step=70.0, step_total=100.0)
    assert shown(bar) == Training(70.0, 100.0, is_step=False)
    assert shown(dataclasses.replace(bar, bar_is_step=True)) == Training(70.0, 100.0)
    assert shown(bar, OutputFeatures(step=3.0)) == Training(3.0, None, reported=True)


def test_the_job_is_in_the_phase_for_which_the_others_wait() -> None:
    train, evaluate, save = (OutputFeatures(phase=phase) for phase in ("train", "evaluate", "save"))
    assert [shown(train, train).phase, shown(train, evaluate).phase, shown(evaluate, save, train).phase] == [
        "train",
        "evaluate",
        "save",
    ]
