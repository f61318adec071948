"""Rules of ``scheduling`` that join ``placement`` and ``spares`` with the pools. Pure, as in ``rules.job``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.spec.wording import Broken, Fields


def broken(job: Fields) -> Iterator[Broken]:
    """Every broken rule, at places counted from the spec."""
    scheduling = job.get("scheduling") or {}
    size = ((scheduling.get("placement") or {}).get("segment") or {}).get("size")
    pools: Any = job.get("worker_pool_specs") or ()
    workers = sum((pool or {}).get("replica_count") or 0 for pool in pools)
    if size and workers % size:
        yield Broken(
            ("scheduling", "placement", "segment", "size"),
            f"is {size:,}, which doesn't divide the job's {workers:,} workers",
            "write a number that divides them, so that all segments are whole",
        )
    if scheduling.get("spares"):
        yield from _spares(pools, segmented=bool(size))


def _spares(pools: Any, *, segmented: bool) -> Iterator[Broken]:
    """A spare does for any worker, so all workers have to be able to start where it is."""
    place = ("scheduling", "spares")
    if segmented:
        problem = "can't be near each segment of scheduling.placement"
        yield Broken(place, problem, "remove one of the two")
    machines = [(pool or {}).get("machine_spec") or {} for pool in pools if (pool or {}).get("replica_count")]
    sizes = {each.get("gpu_partition_size") or "whole GPUs" for each in machines if each.get("accelerator_count")}
    if len(sizes) > 1:
        problem = f"do for every worker, and these ask for {' and '.join(sorted(sizes))}"
        yield Broken(place, problem, "ask for one gpuPartitionSize in all workerPoolSpecs, or for no spares")
    models = {model for each in machines if (model := each.get("accelerator_type"))}
    if len(models) > 1:
        problem = f"do for every worker, and these ask for {' and '.join(sorted(models))}"
        yield Broken(place, problem, "ask for one acceleratorType in all workerPoolSpecs, or for no spares")
