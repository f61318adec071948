"""Hosts: their inventory and allocations (the fold of their events), and their presence while this controller runs."""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import field
from functools import cached_property

from holdfast._base.dataclass import dataclass
from holdfast._base.health import Health
from holdfast._base.xids import Repair
from holdfast_controller.core.model.clock import BOOT, NEVER, Mono, Wall
from holdfast_controller.core.model.goodput import HostRecord, Quarantined
from holdfast_controller.core.model.hosts.measurements import HostMeasurements

FORGETTING = 256
"""So many orders to forget a worker are remembered of a session; a host has far fewer workers at a time."""
CLOCK_WINDOW = 6
"""Heartbeats over which a host's clock is compared with ours: half a minute."""
CLOCKS_TOGETHER_S = 1.0
"""Clocks that differ by less are taken for the same."""


@dataclass(frozen=True)
class GpuFault:
    """A fault that lasts until the GPU is repaired. ``since`` is wall clock; ``count`` grows when it occurs again."""

    cause: str
    repair: Repair
    since: Wall
    count: int = 1


_MIG = " MIG "


def partition_of(model: str) -> str:
    """The profile of a MIG instance, such as ``1g.10gb``, as the driver's name for it ends; empty for a whole GPU."""
    return model.partition(_MIG)[2].strip().lower()


def whole_model(model: str) -> str:
    """The model of the GPU that a MIG instance is part of; that of a whole GPU as it is."""
    return model.partition(_MIG)[0]


@dataclass(frozen=True)
class Gpu:
    """A GPU of a host; ``problem`` is empty when it answers, ``faults`` is what its agent knows against it."""

    uuid: str
    index: int
    model: str
    memory_bytes: int
    problem: str = ""
    faults: tuple[GpuFault, ...] = ()
    repaired_by: str = ""
    """What has shown that earlier faults are repaired."""


@dataclass(frozen=True)
class Inventory:
    """A host's resources and abilities. ``gpu_problem`` says why the GPUs can't be read, if they can't.

    ``no_containers`` says why no work runs in containers there; it does where that is empty. ``no_accounts`` says
    so of work that has an account of its own.
    """

    cpus: int
    memory_bytes: int
    gpus: tuple[Gpu, ...] = ()
    max_workers: int = 64
    gpu_problem: str = ""
    no_containers: str = "its agent knows of none"
    no_accounts: str = "its agent knows of none"
    gives_secrets: bool = False
    """Its agent is new enough to give ranks their secrets."""
    traits: dict[str, str] = field(default_factory=dict)
    """What it has in common with hosts of its kind, such as its driver's version; empty where it lacks one."""

    @cached_property
    def kind(self) -> str:
        """Equal for hosts that hold the same when they are empty. A text is hashed only once."""
        models = [gpu.model for gpu in self.gpus]
        gives = not self.no_containers, not self.no_accounts, self.gives_secrets
        return repr((self.cpus, self.memory_bytes, self.max_workers, models, *gives))

    @cached_property
    def only_model(self) -> str:
        """The model of its GPUs, where all are of one; else empty."""
        models = {gpu.model for gpu in self.gpus}
        return models.pop() if len(models) == 1 else ""

    @cached_property
    def uuids(self) -> frozenset[str]:
        """The UUIDs of its GPUs."""
        return frozenset(gpu.uuid for gpu in self.gpus)

    @property
    def has_gpu_problems(self) -> bool:
        """Whether some of its GPUs aren't well, or none can be read."""
        return bool(self.gpu_problem) or any(gpu.problem for gpu in self.gpus)

    @cached_property
    def is_partitioned(self) -> bool:
        """Whether some of its GPUs are MIG instances."""
        return any(partition_of(gpu.model) for gpu in self.gpus)


@dataclass(frozen=True)
class Allocation:
    """A worker's share of a host."""

    cpus: int
    memory_mb: int
    gpus: tuple[str, ...]
    revocable: bool = False
    """Of a job that may be stopped to get it back."""


@dataclass(frozen=True)
class Maintenance:
    """A maintenance window of a host. Wall clock; without ``end`` it lasts until an admin uncordons the host."""

    start: Wall
    end: Wall | None
    reason: str
    by: str
    drain: bool = False
    """The host's work is moved; otherwise it runs on."""
    deadline_s: float | None = None
    at_checkpoint: bool = False
    begun: bool = False
    stays_cordoned: bool = False
    """The host was cordoned before, and is so afterwards."""


@dataclass(frozen=True)
class Orphan:
    """A worker that a host runs and the log doesn't place there. ``since`` is wall clock, ``gpus`` are UUIDs."""

    job: str
    worker: str
    generation: int
    gpus: tuple[str, ...]
    since: Wall


class CheckStatus(enum.Enum):
    """How much a failed check matters."""

    WARNING = "WARNING"
    ERROR = "ERROR"


class Waiver(enum.Enum):
    """Authority that lets a host have work in spite of a finding that would keep it away."""

    BRAKE = "BRAKE"
    """So many hosts have such findings at once that a common cause is likelier."""
    ADMIN = "ADMIN"
    """Who uncordoned the host."""


@dataclass(frozen=True)
class FailedCheck:
    """A check of a machine that fails. ``since`` is wall clock; ``fix`` is lines to type or write."""

    check: str
    """Its name, such as ``disk.state_dir``."""
    status: CheckStatus
    saw: str
    why: str
    fix: tuple[str, ...]
    since: Wall
    keeps_work_away: bool = False
    """The host gets no new work until the check passes."""
    health: Health | None = None
    """Its class, where it is about the health of hardware."""
    waived: Waiver | None = None

    @property
    def holds(self) -> bool:
        """Whether it keeps new work off its host."""
        return self.keeps_work_away and self.waived is None


@dataclass(frozen=True)
class CondemnedGpu:
    """A GPU that gets no new work, with what is known against it, the oldest first."""

    uuid: str
    index: int
    faults: tuple[GpuFault, ...]

    @property
    def repair(self) -> Repair:
        """Repair of all its faults."""
        return Repair.REBOOT if any(f.repair is Repair.REBOOT for f in self.faults) else Repair.RESET

    @property
    def in_words(self) -> str:
        """Its faults and their repair, such as "Xid 95 (uncontained memory error); needs a reset"."""
        what = "a reset" if self.repair is Repair.RESET else "a reboot of its host"
        return f"{', '.join(fault.cause for fault in self.faults)}; needs {what}"


@dataclass
class Host:
    """A host: the fold of its events and of the places on it."""

    name: str
    address: str
    boot_id: str
    agent_version: str
    inventory: Inventory
    condemned: dict[str, CondemnedGpu] = field(default_factory=dict)
    """GPUs that get no new work until they are repaired, by UUID."""
    cleared: dict[str, dict[str, int]] = field(default_factory=dict)
    """Faults that an admin has cleared and the agent still reports: their count then, by UUID and cause."""
    cordoned: bool = False
    cordon_reason: str = ""
    cordoned_by: str = ""
    cordoned_since: Wall = NEVER
    """Wall clock."""
    maintenance: Maintenance | None = None
    lost: bool = False
    labels: dict[str, str] = field(default_factory=dict)
    draining: bool = False
    drain_deadline: Wall | None = None
    """Wall clock; None: what runs there may end by itself."""
    drain_at_checkpoint: bool = False
    drain_since: Wall = NEVER
    """Wall clock."""
    drained: bool = False
    refused: str = ""
    """Why its agent was turned away when it last called."""
    throttled: dict[str, Wall] = field(default_factory=dict)
    """By kind of message: when it was last found to have more stored than it may. Wall clock."""
    going_down: bool = False
    """Its agent has announced a shutdown in this boot."""
    going_down_since: Wall = NEVER
    agent_stopped_at: Wall = NEVER
    """When its agent was stopped in an orderly way; NEVER while one runs, and where it ended without a word."""
    silent_since: Wall = NEVER
    """While it is lost: when it was last heard."""
    failed_checks: dict[str, FailedCheck] = field(default_factory=dict)
    """By name."""
    allocations: dict[str, Allocation] = field(default_factory=dict)
    """By ``JOB/WORKER_INDEX``."""
    quarantined: dict[str, Quarantined] = field(default_factory=dict)
    """By ``JOB/WORKER_INDEX``: shares that their jobs have left and that are not proven empty, for the ledger."""
    excess: int = field(default=0, compare=False)
    """Its ``caution.excess_of``, as last judged; not in the log: a controller that starts judges again."""
    record: HostRecord | None = None
    """Of its failures and its time in service; None before it has joined."""
    measured: HostMeasurements = field(default_factory=HostMeasurements)
    """By active checks."""
    unreconciled: bool = False
    """The log was restored from a backup, and not every host has reported its workers yet."""
    orphans: dict[str, Orphan] = field(default_factory=dict)
    """By ``JOB/WORKER``: workers here that the restored log doesn't know."""
    orphans_to_stop: set[str] = field(default_factory=set)
    """Jobs whose orphans here an admin wants stopped."""

    @property
    def faulty(self) -> set[str]:
        """UUIDs of the GPUs that are not well, or not known to be."""
        unread = self.inventory.gpu_problem
        return {gpu.uuid for gpu in self.inventory.gpus if gpu.problem or unread or gpu.uuid in self.condemned}

    @property
    def to_reboot(self) -> CondemnedGpu | None:
        """The first GPU that only a reboot repairs, which keeps new work off the whole host; None without one."""
        return next((gpu for gpu in self.condemned.values() if gpu.repair is Repair.REBOOT), None)

    @property
    def unfit(self) -> FailedCheck | None:
        """The first failed check that keeps new work off the host; None without one."""
        return next((failed for failed in self.failed_checks.values() if failed.holds), None)

    @property
    def takes_work(self) -> bool:
        """Whether this host may get new work, as far as the log knows."""
        # Most hosts have neither, and a pass over the queue asks this of every host.
        if (self.condemned and self.to_reboot is not None) or (self.failed_checks and self.unfit is not None):
            return False
        return not self.cordoned and not self.going_down

    @property
    def cordoned_besides(self) -> str:
        """Why it is cordoned beside its maintenance: it was before, or has been since; empty where it isn't."""
        plan = self.maintenance
        if plan is not None and plan.stays_cordoned:
            return "it was before"
        by_plan = plan is not None and (self.cordoned_by, self.cordon_reason) == (plan.by, plan.reason)
        # Who drains it in its maintenance only says otherwise what becomes of its work.
        is_drain = self.draining and self.cordoned_since == self.drain_since
        if plan is None or not plan.begun or not self.cordoned or not self.cordoned_by or by_plan or is_drain:
            return ""
        why = f" ({self.cordon_reason})" if self.cordon_reason else ""
        return f"{self.cordoned_by} has cordoned it since{why}"

    @property
    def returns_at(self) -> Wall | None:
        """When its maintenance, which has begun, is planned to end and it takes work again; else None."""
        plan = self.maintenance
        return plan.end if plan is not None and plan.begun and not self.cordoned_besides else None

    def gpu_problems(self) -> dict[str, str]:
        """Problem of each GPU that isn't well, by UUID."""
        found = {gpu.uuid: gpu.problem for gpu in self.inventory.gpus if gpu.problem}
        return found | {uuid: gpu.in_words for uuid, gpu in self.condemned.items()}

    def gpu_troubles(self) -> list[str]:
        """The GPUs that aren't well, such as "GPU 3: vanished", in index order."""
        problems = self.gpu_problems()
        listed = [f"GPU {g.index}: {problems.pop(g.uuid)}" for g in self.inventory.gpus if g.uuid in problems]
        return listed + [f"GPU {self.condemned[uuid].index}: {what}" for uuid, what in problems.items()]


@dataclass(frozen=True)
class Place:
    """The placement of one worker: its host and its GPUs there."""

    host: str
    gpus: tuple[str, ...] = ()


class Liveness(enum.Enum):
    """Whether we hear from a host."""

    READY = "READY"
    SUSPECT = "SUSPECT"
    LOST = "LOST"


@dataclass
class Presence:
    """A host's connection and liveness, known only while this controller runs."""

    session: int | None = None
    last_seen: Mono = BOOT
    last_seen_wall: Wall = NEVER
    heard_before: Wall = NEVER
    """When it was last heard in the session before this one."""
    lost_at: Wall = NEVER
    """While it is silent: when it will be lost, or was."""
    liveness: Liveness = Liveness.SUSPECT
    forgetting: deque[str] = field(default_factory=lambda: deque(maxlen=FORGETTING))
    """Shares whose workers this session was ordered to forget last: what it still says of them is no reason to order it
    again."""
    clock_behind_s: deque[float] = field(default_factory=lambda: deque(maxlen=CLOCK_WINDOW))
    """By how much the host's clock seemed behind ours, of its newest heartbeats."""
    fence_called: bool = False
    """The site's fence command was called in this silence."""
    silent_peers: dict[str, frozenset[tuple[int, int]]] = field(default_factory=dict)
    """By share: (worker index, generation) of the job's workers that the worker here hears nothing more of."""

    @property
    def behind_s(self) -> float | None:
        """By how much the host's clock is behind ours; None before enough heartbeats have shown it.

        A message may be late but never early, so the least difference counts.
        """
        window = self.clock_behind_s
        return min(window, key=abs) if len(window) == CLOCK_WINDOW else None

    @property
    def wrong_s(self) -> float:
        """By how much the host's clock is behind ours, as far as it is known to be wrong."""
        behind_s = self.behind_s
        return behind_s if behind_s is not None and abs(behind_s) >= CLOCKS_TOGETHER_S else 0.0

    @property
    def is_connected(self) -> bool:
        """Whether it has a session, and is heard from."""
        return self.session is not None and self.liveness is Liveness.READY


def job_of(key: str) -> str:
    """The job that a share or a place is of, by its key; see ``place_key``."""
    return key.rpartition("/")[0]


def place_key(job_id: str, worker: int) -> str:
    """Key of one worker's allocation on its host."""
    return f"{job_id}/{worker}"
