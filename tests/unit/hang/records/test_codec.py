"""Values of the detector survive a journal: the same value comes back from plain JSON."""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from pathlib import Path

import pytest
from bench.hangs.scenarios import fault
from bench.hangs.world import World

import holdfast.hang
from holdfast._base.codec import from_plain, to_plain
from holdfast._base.job_file.choices import HangAction
from holdfast.hang.judge.state import begin
from holdfast.hang.judge.verdict import step
from holdfast.hang.judge.watch import JobWatch
from holdfast.hang.pipeline.features import RankFeatures, WorkerFeatures
from holdfast.hang.pipeline.rank_baseline import Baseline
from holdfast.hang.pipeline.samples import RankSample, TreeSample
from holdfast.hang.thresholds import HangSettings

PACKAGE = Path(holdfast.hang.__file__).parent
PURE = {
    "__future__",
    "collections",
    "dataclasses",
    "datetime",  # to print a time that is given
    "enum",
    "functools",
    "itertools",
    "math",
    "pathlib",
    "re",
    "textwrap",
    "types",
    "typing",
}
OURS = {
    "holdfast._base.printable",
    "holdfast.errors",
    "holdfast._base.backoff",
    "holdfast._base.codec",
    "holdfast._base.dataclass",
    "holdfast._base.job_file.choices",
    "holdfast._base.xids",
    "holdfast.training.known_step",
    "holdfast.training.rank_progress",
}
"""Of the rest of Holdfast; they are as pure."""


def again(kind: type, value: object) -> object:
    return from_plain(kind, json.loads(json.dumps(to_plain(value))))


@pytest.fixture(scope="module")
def world() -> World:
    world = World(replace(fault("SIGSTOP"), ends_s=740.0))
    world.run()
    return world


def test_samples_baselines_and_vectors_come_back(world: World) -> None:
    assert again(RankSample, world.samples[5]) == world.samples[5]
    assert again(Baseline, world.baselines[5]) == world.baselines[5]
    assert again(RankFeatures, world.features[5]) == world.features[5]


def test_a_watch_comes_back_on_every_rung(world: World) -> None:
    workers = [WorkerFeatures("workerpool0-0", "h", 740.0, tuple(world.features.values()))]
    watch = begin(720.0)
    watch = step(watch, workers, HangSettings(action=HangAction.RESTART), 732.0).watch
    assert again(JobWatch, watch) == watch
    watch = step(watch, workers, HangSettings(action=HangAction.RESTART), 740.0).watch
    assert watch.suspicion is not None
    assert again(JobWatch, watch) == watch


def test_an_older_record_takes_defaults_and_a_foreign_one_is_refused() -> None:
    assert from_plain(TreeSample, {"cpu_s": 2.0}) == TreeSample(cpu_s=2.0)
    for foreign in ({"cpu": 1}, {"state": "?"}, 7):
        with pytest.raises(ValueError, match="no record of TreeSample"):
            from_plain(TreeSample, foreign)


def test_the_package_imports_nothing_that_does_or_costs_anything() -> None:
    """No clock, no randomness, nothing outside the standard library but RE2; files only in ``records``."""
    more = {
        "copies": {"operator"},
        "corpus": {"gzip", "json", "zlib"},
        "reader": {"gzip", "zlib"},
        "recorder": {"contextlib", "gzip", "os"},
        "replay": {"heapq"},
        "recording": {"json"},
        "evidence_json": {"json"},
        "stacks": {"hashlib"},
        "step_pattern": {"functools", "re2"},
    }
    for module in PACKAGE.rglob("*.py"):
        allowed = PURE | more.get(module.stem, set())
        for node in ast.walk(ast.parse(module.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                ours = name.startswith("holdfast.hang.") or name in OURS
                assert ours or name.split(".")[0] in allowed, f"{module.name} imports {name}"


def test_a_value_of_another_kind_is_refused_before_it_is_reckoned_with() -> None:
    plain = to_plain(begin(720.0))
    for name, wrong in (("began_s", "1"), ("dumps", 1.5), ("dumps", True), ("output", {"began_s": None})):
        with pytest.raises(ValueError, match="no record of JobWatch"):
            from_plain(JobWatch, {**plain, name: wrong})
