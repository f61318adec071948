"""Binding: cores, memory and network cards of each rank, next to its GPU.

Theory of operation. Placement knows cores by number only; which ones a rank runs on is decided here, when its worker is
launched, from the host's topology, the worker's GPUs and the cores that ranks of other workers were bound to. The
answer goes with the order to the shim, which applies it between fork and exec and writes it into the generation's
journal; from there an agent that starts again knows whose cores are whose.

A rank has one GPU where its worker has as many GPUs as ranks, in the order of LOCAL_RANK; else any of the worker's may
be its own. What can't be bound as asked is bound less, or not at all, and says why: no launch fails for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from holdfast._base.dataclass import replace
from holdfast._base.job_file.choices import NumaBinding
from holdfast._base.spans import spans_of
from holdfast._session.assignment import Launch
from holdfast._session.reports import RankBinding
from holdfast_agent.core.model.topology import UNKNOWN, Core, Device, Topology, cpus_in


def bind(topology: Topology, launch: Launch, taken: Collection[int]) -> tuple[RankBinding | None, ...]:
    """The binding of each rank of a launch, in their order; None for all where the job asks for none.

    ``taken`` are the CPUs of other workers' ranks that share them with no one.
    """
    if launch.numa_binding is NumaBinding.NONE:
        return (None,) * launch.processes
    devices = [_gpus_of(topology, launch, local) for local in range(launch.processes)]
    shared = tuple(_to_nodes(topology, gpus, topology.nearest_nics(gpus)) for gpus in devices)
    if launch.numa_binding is NumaBinding.NODE:
        return shared
    counts = [_cores_wanted(topology, launch, gpus) for gpus in devices]
    if not all(counts):
        note = "no cores of its own: cpuCount reserves fewer than it has ranks"
        if not launch.cpu_count:
            note = "no cores of its own: its job has neither GPUs nor a cpuCount to size them by"
        return tuple(_with_note(each, note) for each in shared)
    away = frozenset(taken)
    free = [core for core in topology.cores if away.isdisjoint(core.cpus)]
    if sum(counts) > len(free):
        note = f"no cores of its own: {len(free)} of {sum(counts)} are free"
        return tuple(_with_note(each, note) for each in shared)
    homes = [_home(topology, gpus) for gpus in devices]
    return tuple(
        _to_cores(topology, cores, home, gpus)
        for cores, home, gpus in zip(_share_out(topology, free, homes, counts), homes, devices, strict=True)
    )


def variables(bound: RankBinding | None) -> dict[str, str]:
    """Variables that tell a rank of its binding; none where its job asks for none."""
    return {} if bound is None else {"HOLDFAST_NICS": ",".join(bound.nics)}


def sized(launch: Launch, bound: RankBinding | None, cpu_count: int) -> Launch:
    """The launch with no more cores than its ranks would have if all were bound as this one is.

    ``cpu_count`` are the host's, of a launch that reserves none. A library starts no more threads than that.
    """
    if bound is None or not bound.cpus:
        return launch
    most = len(cpus_in(bound.cpus)) * launch.processes
    return replace(launch, cpu_count=min(launch.cpu_count or cpu_count, most))


def _gpus_of(topology: Topology, launch: Launch, local_rank: int) -> list[Device]:
    uuids = launch.gpus
    if len(uuids) == launch.processes:
        uuids = (uuids[local_rank],)
    return [topology.gpus.get(uuid, Device(uuid)) for uuid in uuids]


def _home(topology: Topology, gpus: Iterable[Device]) -> tuple[int, ...]:
    """Nodes of the GPUs on which work may use a core; none where one of them has no such node."""
    nodes = {gpu.node for gpu in gpus}
    return tuple(sorted(nodes)) if nodes and nodes <= set(topology.nodes) else ()


def _to_nodes(topology: Topology, gpus: Sequence[Device], nics: tuple[str, ...]) -> RankBinding:
    home = _home(topology, gpus)
    if len(topology.nodes) < 2:
        return RankBinding(nics=nics, note="not bound: all cores that work may use here are on one NUMA node")
    if not gpus:
        return RankBinding(nics=nics, note="not bound: it has no GPU to be near to")
    if not home:
        unknown = any(gpu.node == UNKNOWN for gpu in gpus)
        why = (
            "the kernel says no NUMA node of its GPU" if unknown else "work may use no core of its GPU's NUMA node"
        )
        return RankBinding(nics=nics, note=f"not bound: {why}")
    if home == topology.nodes:
        return RankBinding(nics=nics, note="not bound: its GPUs are on all NUMA nodes")
    cpus = [cpu for core in topology.cores if core.node in home for cpu in core.cpus]
    return RankBinding(spans_of(cpus), memory_nodes=spans_of(home), nics=nics)


def _with_note(shared: RankBinding, note: str) -> RankBinding:
    return RankBinding(shared.cpus, False, shared.memory_nodes, shared.nics, note if shared.cpus else shared.note)


def _cores_wanted(topology: Topology, launch: Launch, gpus: Sequence[Device]) -> int:
    """How many cores a rank gets: as many as hold its part of what is reserved, else its GPUs' part of their node."""
    threads = max((len(core.cpus) for core in topology.cores), default=1)
    if launch.cpu_count:
        return -(-(launch.cpu_count // launch.processes) // threads)
    everywhere = list(topology.gpus.values())
    parts = 0.0
    for gpu in gpus:
        near = gpu.node in topology.nodes
        cores = [core for core in topology.cores if core.node == gpu.node] if near else topology.cores
        others = [each for each in everywhere if each.node == gpu.node] if near else everywhere
        parts += len(cores) / max(1, len(others))
    return int(parts if len(launch.gpus) == launch.processes else parts / launch.processes)


def _share_out(
    topology: Topology, free: Sequence[Core], homes: Sequence[tuple[int, ...]], counts: Sequence[int]
) -> list[list[Core]]:
    """Cores of each rank, near before far, none twice; there are enough of them.

    Ranks with a home get one each in turn, so that those with the same one have the same part of it; any other is kept
    together. What each node gives is then taken in a row, since neighbours share a cache.
    """
    left: dict[int, int] = {}
    for core in free:
        left[core.node] = left.get(core.node, 0) + 1
    chosen: list[dict[int, int]] = [{} for _ in counts]

    def take(rank: int) -> None:
        home, had = homes[rank], chosen[rank]

        def order(node: int) -> tuple[int, int, int, int]:
            if not home:
                return -(node in had), -left[node], node, 0
            if node in home:
                return 0, 0, had.get(node, 0), node
            return 1, topology.distance(home, node), -had.get(node, 0), node

        node = min((each for each in left if left[each]), key=order)
        left[node] -= 1
        had[node] = had.get(node, 0) + 1

    for turn in range(max(counts)):
        for rank, home in enumerate(homes):
            if home and turn < counts[rank]:
                take(rank)
    for rank, home in enumerate(homes):
        for _ in range(0 if home else counts[rank]):
            take(rank)
    rows = {node: iter([core for core in free if core.node == node]) for node in left}
    return [[next(rows[node]) for node in sorted(had) for _ in range(had[node])] for had in chosen]


def _to_cores(
    topology: Topology, held: Sequence[Core], home: tuple[int, ...], gpus: Sequence[Device]
) -> RankBinding:
    nodes = home or tuple(sorted({core.node for core in held if core.node != UNKNOWN}))
    prefers = spans_of(nodes) if nodes != topology.nodes else ""
    away = sum(core.node not in home for core in held) if home else 0
    note = f"{away} of its {len(held)} cores are on another NUMA node than its GPU" if away else ""
    if gpus and not home and len(topology.nodes) > 1:
        note = "on any cores: the NUMA node of its GPU is unknown, or work may use no core of it"
    cpus = spans_of(cpu for core in held for cpu in core.cpus)
    return RankBinding(cpus, True, prefers, topology.nearest_nics(gpus), note)
