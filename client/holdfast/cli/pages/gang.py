"""Members of a job's gang, from its spec: known before anything was placed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from holdfast.errors import InvalidInput, Violation
from holdfast.v1 import spec_pb2


def ranks_of(spec: spec_pb2.CustomJobSpec) -> dict[int, str]:
    """Each global rank and the worker that runs it, in order."""
    workers = [
        (f"workerpool{number}-{replica}", max(1, pool.processes_per_worker))
        for number, pool in enumerate(spec.worker_pool_specs)
        for replica in range(pool.replica_count)
    ]
    names = [name for name, processes in workers for _ in range(processes)]
    return dict(enumerate(names))


def machines_of(spec: spec_pb2.CustomJobSpec) -> str:
    """Which GPUs and hosts its workers ask for, such as ``H100, MIG 1g.10gb, machine type big``; empty for any."""
    found = dict[str, None]()
    for pool in spec.worker_pool_specs:
        machine = pool.machine_spec
        words = (
            machine.accelerator_type,
            f"MIG {machine.gpu_partition_size}" if machine.gpu_partition_size else "",
            f"machine type {machine.machine_type}" if machine.machine_type else "",
        )
        if pool.replica_count:
            found[", ".join(filter(None, words)) or "any"] = None
    return "" if list(found) in ([], ["any"]) else "; ".join(found)


def gpus_of(spec: spec_pb2.CustomJobSpec) -> int:
    """GPUs that the whole job asks for."""
    return sum(pool.replica_count * pool.machine_spec.accelerator_count for pool in spec.worker_pool_specs)


def chosen(
    everyone: dict[int, str], workers: Collection[str], ranks: Collection[int], rank_option: str = "--rank"
) -> dict[int, str]:
    """The ranks that a choice leaves; an empty choice leaves all. Raises ``InvalidInput`` for unknown names."""
    names = list(dict.fromkeys(everyone.values()))
    wrong = [
        *_unknown("--worker", workers, names, "is no worker of this job", _span(names)),
        *_unknown(rank_option, ranks, everyone, "is no rank of this job", _span(list(everyone))),
    ]
    if wrong:
        raise InvalidInput(wrong, what="The command line")
    left = {r: w for r, w in everyone.items() if (not workers or w in workers) and (not ranks or r in ranks)}
    if not left:
        raise InvalidInput(
            [Violation("--rank", "none of these ranks is on these workers", "See `holdfast job show ID`.")],
            what="The command line",
        )
    return left


def _span(names: Sequence[object]) -> str:
    return f"{names[0]} alone" if len(names) == 1 else f"{names[0]} to {names[-1]}"


def _unknown(
    option: str, asked: Iterable[object], known: Collection[object], problem: str, span: str
) -> Iterable[Violation]:
    return (Violation(option, f"{each} {problem}", f"there is {span}") for each in asked if each not in known)
