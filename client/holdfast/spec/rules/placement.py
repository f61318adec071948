"""Rules of ``scheduling.placement`` that join it with the pools. Pure, on plain mappings, as in ``rules.job``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.spec.wording import Broken, Fields


def broken(job: Fields) -> Iterator[Broken]:
    """Every broken rule, at places counted from the spec."""
    placement = (job.get("scheduling") or {}).get("placement") or {}
    size = (placement.get("segment") or {}).get("size")
    pools: Any = job.get("worker_pool_specs") or ()
    workers = sum((pool or {}).get("replica_count") or 0 for pool in pools)
    if size and workers % size:
        yield Broken(
            ("scheduling", "placement", "segment", "size"),
            f"is {size:,}, which doesn't divide the job's {workers:,} workers",
            "write a number that divides them, so that all segments are whole",
        )
