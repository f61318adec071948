"""The gang of a job: its pools, workers and ranks, resolved from the spec and frozen.

Worker ``i`` of the gang is ``members[i]``; global ranks count through the members in order, so that rank 0
is the first process of the primary.
"""

from __future__ import annotations

import enum
from dataclasses import field
from functools import cached_property

from holdfast._base.dataclass import dataclass, replace
from holdfast._base.job_file.choices import NumaBinding, RestartScope, SuccessPolicy
from holdfast._base.job_file.label_match import Condition
from holdfast._base.job_file.rank_variables import WORLD_POOLS
from holdfast._session.assignment import Task as Task
from holdfast._session.assignment import WarmStart
from holdfast.hang.thresholds import HangSettings
from holdfast_controller.core.model.accounts.subscription import Subscription
from holdfast_controller.core.model.arrays import Element
from holdfast_controller.core.model.dependencies import Dependency
from holdfast_controller.core.model.hosts.locality import Locality
from holdfast_controller.core.model.hosts.machine_types import MachineType
from holdfast_controller.core.model.underuse import UnderusePolicy
from holdfast_controller.core.model.warning import WarningSignal


class Strategy(enum.Enum):
    """How a job shares the cluster. SPOT gives way to others; FLEX_START waits like STANDARD."""

    STANDARD = "STANDARD"
    SPOT = "SPOT"
    FLEX_START = "FLEX_START"


@dataclass(frozen=True)
class Retries:
    """How failures are answered, and how often, beside restarts in place. Exit codes; times in seconds."""

    scope: RestartScope = RestartScope.GANG
    job_retries: int = 3
    """Of the whole job, on other hosts where there are any."""
    permanent_codes: frozenset[int] = frozenset()
    transient_codes: frozenset[int] = frozenset()
    backoff_s: float | None = 0.0
    """Before the launch that answers a failure; doubles with each one more in a row. None: the first is at once."""
    backoff_limit_s: float = 300.0
    unconditional: bool = False
    """Retry the job whatever its failure was."""
    no_progress_limit: int = 3
    """The same failure so often in a row without progress, where progress is known, is final; 0: never."""
    disabled: bool = False
    """No failure is retried, whatever its cause."""


@dataclass(frozen=True)
class HostSelector:
    """Which hosts a job or pool may have. Labels are pairs of key and value: all of ``labels``, no ``avoid_labels``."""

    hosts: frozenset[str] = frozenset()
    """Only these, if there are any."""
    avoid: frozenset[str] = frozenset()
    labels: tuple[tuple[str, str], ...] = ()
    avoid_labels: tuple[tuple[str, str], ...] = ()
    match: tuple[Condition, ...] = ()
    also: tuple[HostSelector, ...] = ()
    """Others that have to admit a host as well."""

    def admits(self, name: str, labels: dict[str, str]) -> bool:
        """Whether a host of this name and with these labels may be used."""
        if name in self.avoid or (self.hosts and name not in self.hosts):
            return False
        wanted = all(labels.get(key) == value for key, value in self.labels)
        if not wanted or any(labels.get(key) == value for key, value in self.avoid_labels):
            return False
        return all(each.holds(labels) for each in self.match) and all(o.admits(name, labels) for o in self.also)

    @property
    def key(self) -> str:
        """Equal for equal selectors."""
        more = (self.match, [other.key for other in self.also]) if self.match or self.also else ()
        return repr((sorted(self.hosts), sorted(self.avoid), self.labels, self.avoid_labels, *more))

    def in_words(self) -> str:
        """Which hosts those are, such as ``rack=a, gpu in (h100,h200), not host-3``."""
        wanted = [*sorted(self.hosts), *(f"{key}={value}" for key, value in self.labels), *map(str, self.match)]
        unwanted = [*sorted(self.avoid), *(f"{key}={value}" for key, value in self.avoid_labels)]
        others = [other.in_words() for other in self.also]
        return ", ".join([*wanted, *(f"not {what}" for what in unwanted), *others])


ANYWHERE = HostSelector()


@dataclass(frozen=True)
class Pool:
    """Workers with one spec. Resources are for each worker; 0 reserves nothing."""

    replicas: int
    """0 where the job skips this role."""
    task: Task
    processes: int = 1
    cpus: int = 0
    memory_mb: int = 0
    gpus: int = 0
    gpu_type: str = ""
    gpu_partition: str = ""
    """Profile of MIG instances, such as ``1g.10gb``, of which each counts as one of ``gpus``; empty: whole GPUs."""
    selector: HostSelector | None = None
    """Which hosts its workers may have, of those that the job may; None: each of them."""
    machines: tuple[MachineType, ...] = ()
    """Classes of hosts, as they were declared when the job was submitted: its workers' hosts are of all of these."""

    @property
    def is_choosy(self) -> bool:
        """Whether it may have fewer hosts than its job may."""
        return self.selector is not None or bool(self.machines)

    @cached_property
    def asks_for_sizes_alone(self) -> bool:
        """Whether any host with enough GPUs of any model, cores and memory will do."""
        named = self.gpu_type or self.gpu_partition or self.is_choosy
        return not (named or self.task.image or self.task.account or self.task.secrets)

    def hosts_in_words(self) -> str:
        """Which hosts it may have, such as ``gpu in (a,b), machine type a3-high``."""
        selector = [self.selector.in_words()] if self.selector is not None else []
        return ", ".join([*selector, *(f"machine type {machine.name}" for machine in self.machines)])

    def admits(self, name: str, labels: dict[str, str]) -> bool:
        """Whether its workers may have a host of this name and with these labels, as far as its own selector says."""
        return self.selector is None or self.selector.admits(name, labels)

    def gpu_words(self, number: int) -> str:
        """A number of the GPUs that it asks for: ``2 NVIDIA_H100 GPUs`` or ``1 1g.10gb MIG instance``."""
        kind = f"{self.gpu_partition} MIG instance" if self.gpu_partition else "GPU"
        return " ".join(filter(None, (str(number), self.gpu_type, kind + ("" if number == 1 else "s"))))


def _choice(pool: Pool) -> str:
    """A text of all that a pool's workers ask of a host besides its size."""
    task, machines = pool.task, [each.key for each in pool.machines]
    needs = bool(task.image), bool(task.account), bool(task.secrets)
    return repr((pool.gpu_type, pool.gpu_partition, pool.selector and pool.selector.key, machines, needs))


@dataclass(frozen=True, slots=True)
class Member:
    """One worker of the gang, wherever it is placed."""

    index: int
    name: str
    pool: int
    replica: int
    first_rank: int
    processes: int

    @property
    def ranks(self) -> range:
        """Its global ranks."""
        return range(self.first_rank, self.first_rank + self.processes)


@dataclass(frozen=True)
class Gang:
    """All workers of a job and the rules for them. Times in seconds."""

    pools: tuple[Pool, ...]
    timeout_s: float = 604800.0
    expected_s: float = 0.0
    """Run time that the user expects; 0 where none is declared. For the order of starts alone: it ends nothing."""
    grace_s: float = 10.0
    end_grace_s: float = 0.0
    max_worker_restarts: int = 5
    """In place, for each worker."""
    success: SuccessPolicy = SuccessPolicy.PRIMARY
    hang: HangSettings = field(default_factory=HangSettings)
    max_hang_restarts: int = 3
    retries: Retries = field(default_factory=Retries)
    strategy: Strategy = Strategy.STANDARD
    priority: int = 1
    """1 to 3; 3 goes first."""
    project: str = "default"
    max_wait_s: float = 86400.0
    """Longest time in the queue; 0 for ever."""
    waits: bool = True
    """Wait in the queue while the job fits nowhere; otherwise its placement is tried three times."""
    after: tuple[Dependency, ...] = ()
    """Jobs whose ends it waits for, before it waits for hosts."""
    pause_if_unmet: bool = False
    """When one of them ends otherwise, the job is paused; without, it fails."""
    array: Element | None = None
    """Its place in an array; None for a job by itself."""
    selector: HostSelector = field(default_factory=HostSelector)
    replace_when_lost: bool = False
    """When a host is cut off, its shims stop the work, and the job goes on without it."""
    replace_if_isolated: bool = False
    """The same, but only once another worker of the job does not reach the host either. Never with the other."""
    warning: WarningSignal | None = None
    subscriptions: tuple[Subscription, ...] = ()
    output_uri: str = ""
    """Directory of the job's results (``baseOutputDirectory``); empty without one."""
    progress_total: int = 0
    """Steps of the whole training as the job file says; 0 where it doesn't. For display alone."""
    underuse: UnderusePolicy | None = None
    """What follows when GPUs stay unused; None: they are not looked for."""
    warm: WarmStart | None = None
    """None: every launch is cold."""
    measures: bool = False
    """It is a check of hosts: of no user's, placed as planned or not at all, and gone as soon as a job wants a host."""
    near: Locality | None = None
    """How near its workers are to be; None where the cluster has no topology, or there is nothing to place near."""
    spares: int = 0
    """Shares beside its workers, on other hosts, that stay idle until a worker has to leave its host."""
    numa_binding: NumaBinding = NumaBinding.NONE

    @cached_property
    def members(self) -> tuple[Member, ...]:
        """Every worker in rank order."""
        found: list[Member] = []
        rank = 0
        for p, pool in enumerate(self.pools):
            for r in range(pool.replicas):
                found.append(Member(len(found), f"workerpool{p}-{r}", p, r, rank, pool.processes))
                rank += pool.processes
        return tuple(found)

    @cached_property
    def index_by_name(self) -> dict[str, int]:
        """Index of each worker by its name."""
        return {member.name: member.index for member in self.members}

    @cached_property
    def gpus(self) -> int:
        """GPUs of all workers."""
        return sum(pool.replicas * pool.gpus for pool in self.pools)

    @cached_property
    def spare_pool(self) -> Pool:
        """One of its spares: enough for any of its workers."""
        pools = [pool for pool in self.pools if pool.replicas]
        tasks = [pool.task for pool in pools]
        return Pool(
            replicas=self.spares,
            task=replace(
                tasks[0],
                image=next((task.image for task in tasks if task.image), ""),
                secrets=next((task.secrets for task in tasks if task.secrets), ()),
            ),
            processes=max(pool.processes for pool in pools),
            cpus=max(pool.cpus for pool in pools),
            memory_mb=max(pool.memory_mb for pool in pools),
            gpus=max(pool.gpus for pool in pools),
            gpu_type=next((pool.gpu_type for pool in pools if pool.gpu_type), ""),
            gpu_partition=next((pool.gpu_partition for pool in pools if pool.gpu_partition), ""),
            selector=HostSelector(also=self.pool_selectors) if self.pool_selectors else None,
            machines=tuple(dict.fromkeys(machine for pool in pools for machine in pool.machines)),
        )

    @cached_property
    def is_choosy(self) -> bool:
        """Whether one of its pools may have fewer hosts than the job may."""
        return any(pool.replicas and pool.is_choosy for pool in self.pools)

    @cached_property
    def pool_selectors(self) -> tuple[HostSelector, ...]:
        """The selectors that its pools have of their own, each once."""
        return tuple(
            dict.fromkeys(pool.selector for pool in self.pools if pool.replicas and pool.selector is not None)
        )

    @cached_property
    def seats(self) -> tuple[Pool, ...]:
        """Room that each of its shares takes: those of its workers in gang order, then of its spares."""
        return (*map(self.pool_of, self.members), *((self.spare_pool,) * self.spares if self.spares else ()))

    @cached_property
    def gpus_held(self) -> int:
        """GPUs of all workers and spares."""
        return self.gpus + (self.spares * self.spare_pool.gpus if self.spares else 0)

    @cached_property
    def shape(self) -> str:
        """Equal for jobs that ask the same of the same hosts: where one has no room, the other has none.

        A text, since a pass over a long queue looks it up for each job, and a text is hashed once.
        """
        pools = [
            (
                *(p.replicas, p.cpus, p.memory_mb, p.gpus, p.gpu_type),
                *(bool(p.task.image), bool(p.task.account), bool(p.task.secrets)),
            )
            for p in self.pools
        ]
        selector = "" if self.selector == ANYWHERE else self.selector.key
        if any(pool.gpu_partition for pool in self.pools):
            selector += " in parts of " + repr([pool.gpu_partition for pool in self.pools])
        if self.is_choosy:
            keys = [
                [pool.selector and pool.selector.key, *(each.key for each in pool.machines)] for pool in self.pools
            ]
            selector += f" of pools {keys!r}"
        spares = f" and {self.spares} spares" if self.spares else ""
        return repr(pools) + selector + (self.near.key if self.near is not None else "") + spares

    @cached_property
    def kind(self) -> str:
        """Equal for jobs that are treated alike while they wait for hosts, but for their turn and run time."""
        return self.shape + (" SPOT" if self.strategy is Strategy.SPOT else "") + ("" if self.waits else " now")

    @cached_property
    def choices(self) -> tuple[tuple[str, Pool], ...]:
        """Its pools, each with a text: equal where workers may have the same hosts and GPUs, if large enough."""
        pools = [pool for pool in self.pools if pool.replicas]
        own = [pool.selector and pool.selector.key for pool in pools if not self.anywhere]
        asked = repr((self.selector.key if own else "", own, self.near and self.near.key, self.needs_gpus))
        return tuple((asked if pool.asks_for_sizes_alone else f"{asked} {_choice(pool)}", pool) for pool in pools)

    @cached_property
    def needs_gpus(self) -> bool:
        """Whether each of its workers needs GPUs."""
        return all(pool.gpus for pool in self.pools if pool.replicas)

    @cached_property
    def anywhere(self) -> bool:
        """Whether it may have any host."""
        if self.selector != ANYWHERE or self.is_choosy:
            return False
        return self.near is None or not self.near.strict_depth

    def admits(self, name: str, labels: dict[str, str]) -> bool:
        """Whether some worker of it may have a host of this name and with these labels."""
        if not self.selector.admits(name, labels) or not (self.near is None or self.near.admits(labels)):
            return False
        if not self.pool_selectors:
            return True
        return any(pool.replicas and pool.admits(name, labels) for pool in self.pools)

    def hosts_in_words(self) -> str:
        """Which hosts it may have, such as ``rack=a; workerpool1: gpu in (h100,h200)``; empty for any."""
        pools = enumerate(self.pools)
        of_pools = [f"workerpool{at}: {pool.hosts_in_words()}" for at, pool in pools if pool.is_choosy]
        return "; ".join(filter(None, (self.selector.in_words(), self.nearness, *of_pools)))

    @property
    def nearness(self) -> str:
        """How near its workers have to be, in words; empty where they don't."""
        return self.near.in_words() if self.near is not None else ""

    @property
    def account(self) -> str:
        """The Unix account that its ranks run as; empty: each host's own choice."""
        return self.pools[0].task.account

    def running_as(self, account: str) -> Gang:
        """The same gang, as that account."""
        pools = (replace(pool, task=replace(pool.task, account=account)) for pool in self.pools)
        return replace(self, pools=tuple(pools))

    def as_element(self, element: Element) -> Gang:
        """The same gang, as an element of an array: its ranks find that in their environment."""
        pools = (
            replace(pool, task=replace(pool.task, env=(*element.variables, *pool.task.env))) for pool in self.pools
        )
        return replace(self, pools=tuple(pools), array=element)

    @property
    def takes_turns(self) -> bool:
        """Whether it is an element of an array of which not all may have their turn at once."""
        return self.array is not None and self.array.at_once > 0

    @property
    def rank_count(self) -> int:
        """Ranks in all, parameter servers and evaluators included."""
        last = self.members[-1]
        return last.first_rank + last.processes

    @cached_property
    def world_size(self) -> int:
        """Ranks of chief and workers: those that a collective of torch waits for."""
        return sum(pool.replicas * pool.processes for pool in self.pools[:WORLD_POOLS])

    @cached_property
    def world_workers(self) -> int:
        """Chief and workers, without parameter servers and evaluators."""
        return sum(pool.replicas for pool in self.pools[:WORLD_POOLS])

    def pool_of(self, member: Member) -> Pool:
        """The pool that a worker belongs to."""
        return self.pools[member.pool]
