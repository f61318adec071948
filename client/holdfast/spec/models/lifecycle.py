"""The parts of a job file that say how a job lives: times, queue, hosts, and what is done about failures and hangs.

Rules that join several of these fields are in ``rules.lifecycle``.
"""

from __future__ import annotations

import enum
from typing import Annotated

from pydantic import Field

from holdfast._base.job_file.choices import (
    DependencyEnd,
    HangAction,
    NumaBinding,
    RestartScope,
    UnderuseAction,
    UnderuseShare,
)
from holdfast._base.job_file.label_match import MATCH_CHARS
from holdfast.spec.models.base import Label, LabelKey, Model
from holdfast.spec.models.scalars import Choice, Flag, Many, Seconds, Text, Whole
from holdfast.spec.rules.arrays import ARRAY_CHARS
from holdfast.spec.rules.lifecycle import DAY_S, DEFAULT_BACKOFF_LIMIT_S, DEFAULT_TIMEOUT_S, LONGEST_TIMEOUT_S

HostName = Annotated[str, Text(max_chars=253, empty=False)]
ExitCode = Annotated[int, Whole(1, 255)]
HostNames = Annotated[tuple[HostName, ...], Many(0, 10_000)]
Labels = Annotated[dict[LabelKey, Label], Many(0, 64)]


class SchedulingStrategy(enum.Enum):
    """How readily a job gives up its hosts. Values are the names in the contract."""

    STANDARD = "SCHEDULING_STRATEGY_STANDARD"
    SPOT = "SCHEDULING_STRATEGY_SPOT"
    FLEX_START = "SCHEDULING_STRATEGY_FLEX_START"
    ON_DEMAND = "SCHEDULING_STRATEGY_ON_DEMAND"
    LOW_COST = "SCHEDULING_STRATEGY_LOW_COST"

    @property
    def current(self) -> SchedulingStrategy:
        """The strategy under its present name: ON_DEMAND is STANDARD and LOW_COST is SPOT."""
        match self:
            case SchedulingStrategy.ON_DEMAND:
                return SchedulingStrategy.STANDARD
            case SchedulingStrategy.LOW_COST:
                return SchedulingStrategy.SPOT
            case _:
                return self


class WarningSignal(Model):
    """A signal that tells the ranks to save their work."""

    signal: Annotated[str, Text(max_chars=32, empty=False)] = Field(examples=["SIGUSR1"])
    """Such as SIGUSR1."""
    before: Annotated[float, Seconds(30 * DAY_S, zero=False)] = Field(examples=["10m"])
    """How long before the ranks are stopped, by the timeout, a drain or a pause."""


class HostSelector(Model):
    """Which hosts a job, or a pool of it, may use. All conditions must hold."""

    hosts: HostNames = ()
    """Only these, by name; any when empty."""
    avoid_hosts: HostNames = ()
    """Never these."""
    labels: Labels = Field(default_factory=dict)
    """Only hosts that carry all of these labels."""
    avoid_labels: Labels = Field(default_factory=dict)
    """Never a host that carries one of these labels."""
    match: Annotated[str, Text(max_chars=MATCH_CHARS)] = Field(
        default="", examples=["gpu in (h100,h200),!old,rack!=r7"]
    )
    """Conditions on labels, as Kubernetes writes them, such as gpu in (h100,h200),!old,rack!=r7."""


class Dependency(Model):
    """A job whose end this one waits for."""

    job: Annotated[str, Text(max_chars=100, empty=False)] = Field(examples=["prep-x7k2mq"])
    """Its id. Such as prep-x7k2mq."""
    end: Annotated[DependencyEnd, Choice(DependencyEnd, "DEPENDENCY_END_", DependencyEnd.OK)] = DependencyEnd.OK
    """OK: it succeeds. ANY: it ends, however it does. FAILED: it ends otherwise than by success."""


class Underuse(Model):
    """The answer to GPUs of the job that stay unused. A GPU that can't be read counts as used."""

    below: Annotated[int, Whole(0, 100)] = 0
    """Percent of utilization below which a GPU is unused. The project's default, mostly 5, unless set."""
    duration: Annotated[float | None, Seconds(365 * DAY_S, zero=False, optional=True)] = None
    """How long, at least a minute. The project's default, mostly 2 h, unless set."""
    of: Annotated[UnderuseShare | None, Choice(UnderuseShare, "UNDERUSE_SHARE_", None)] = None
    """How many of the job's GPUs: ANY or ALL. Unless set, ANY for NOTIFY, and ALL for PAUSE and STOP."""
    action: Annotated[UnderuseAction | None, Choice(UnderuseAction, "UNDERUSE_ACTION_", None)] = None
    """NOTIFY: it is reported. PAUSE: the job is paused, too. STOP: it is cancelled. OFF: they are not looked for. The
    project's default unless set."""


class PlacementMode(enum.Enum):
    """Whether a job waits for hosts that are near each other. Values are the names in the contract."""

    PREFERRED = "PLACEMENT_MODE_PREFERRED"
    REQUIRED = "PLACEMENT_MODE_REQUIRED"


class Segment(Model):
    """Workers that follow each other, of which each segment is in one domain; the job waits until it can be."""

    size: Annotated[int, Whole(1, 100_000)] = Field(examples=[4])
    """How many workers; divides those of the job."""
    within: LabelKey = Field(examples=["rack"])
    """A level of the cluster's topology: that of the placement, or one further in."""


class Placement(Model):
    """How near to each other the job's workers are placed, by the levels of the cluster's topology."""

    within: Label = Field(default="", examples=["rack"])
    """A level, such as rack: all workers in one domain of it. The innermost level unless set."""
    mode: Annotated[PlacementMode, Choice(PlacementMode, "PLACEMENT_MODE_", PlacementMode.PREFERRED)] = (
        PlacementMode.PREFERRED
    )
    """PREFERRED: where no domain has room the job starts on hosts further apart. REQUIRED: it waits until one has."""
    segment: Segment | None = None
    """Workers that are nearer to each other than the whole job."""


class Scheduling(Model):
    """Times and limits of the whole job."""

    timeout: Annotated[float, Seconds(LONGEST_TIMEOUT_S, zero=False)] = DEFAULT_TIMEOUT_S
    """Longest run time."""
    grace_period: Annotated[float, Seconds(3600.0)] = 10.0
    """Time between SIGTERM and SIGKILL."""
    end_grace: Annotated[float, Seconds(DAY_S)] = 0.0
    """Time the other workers get to finish by themselves after the primary exited 0."""
    restart_job_on_worker_restart: Annotated[bool, Flag()] = False
    """Whether a worker's restart is one of all workers; so it is unless restartScope is WORKER."""
    disable_retries: Annotated[bool, Flag()] = False
    """No restart and no retry of any kind, not even after an internal error or a hang."""
    max_wait_duration: Annotated[float, Seconds(3650 * DAY_S)] = DAY_S
    """Longest wait for hosts, that for the project's quota not counted; 0 for ever."""
    strategy: Annotated[
        SchedulingStrategy, Choice(SchedulingStrategy, "SCHEDULING_STRATEGY_", SchedulingStrategy.STANDARD)
    ] = SchedulingStrategy.STANDARD
    """STANDARD: the hosts are the job's until it ends. SPOT: it may be stopped and queued again when others need
    them. FLEX_START: it waits for resources. ON_DEMAND and LOW_COST are old names of STANDARD and SPOT."""
    priority: Annotated[int, Whole(1, 3)] = 1
    """From 1, the lowest, to 3: who is placed first."""
    warning_signal: WarningSignal | None = None
    """Sent once to the ranks before the job's time is over."""
    wait_for_resources: Annotated[bool, Flag()] = True
    """Whether the job queues until there are resources; without, it fails after three tries."""
    host_selector: HostSelector = Field(default_factory=HostSelector)
    """Hosts that may and may not be used."""
    expected_duration: Annotated[float | None, Seconds(3650 * DAY_S, zero=False, optional=True)] = None
    """Run time that you expect, for projected starts alone: it ends nothing. Learned from earlier runs unless set."""
    after: Annotated[tuple[Dependency, ...], Many(0, 100)] = ()
    """Jobs whose ends it waits for, before it waits for hosts. Until then it has no place in the queue."""
    pause_if_unmet: Annotated[bool, Flag()] = False
    """Whether the job is paused when one of those ends otherwise; without, it fails."""
    array: Annotated[str, Text(max_chars=ARRAY_CHARS)] = Field(default="", examples=["1-20%4"])
    """Indices of an array, each of which becomes a job: 0-99, 1,3,7 or 1-20:2; with %4, four run at once."""
    underuse: Underuse = Field(default_factory=Underuse)
    """The answer to GPUs of the job that stay unused."""
    placement: Placement = Field(default_factory=Placement)
    """How near to each other the workers are placed."""
    spares: Annotated[int, Whole(0, 10_000)] = 0
    """Room for this many workers on further hosts, idle until a worker has to leave its host."""
    numa_binding: Annotated[NumaBinding, Choice(NumaBinding, "NUMA_BINDING_", NumaBinding.NONE)] = NumaBinding.NONE
    """NODE: a rank runs on the cores of its GPU's NUMA node and is given that node's memory first. EXCLUSIVE: on whole
    cores there that no other rank is bound to. NONE: anywhere on its host."""


Learned = Annotated[float | None, Seconds(30 * DAY_S, zero=False, optional=True)]
"""A time that is learned from the job's progress unless it is set."""


class HangDetection(Model):
    """The answer to a hang, and how long is too long. Times that are unset are learned from the job."""

    action: Annotated[HangAction | None, Choice(HangAction, "HANG_ACTION_", None)] = None
    """NOTIFY: explained and reported. RESTART: killed and relaunched in place. OFF: not looked for. The cluster's
    default unless set."""
    timeout: Learned = None
    """Silence of the output after which a hang is noticed and, unless ceiling says otherwise, acted on."""
    floor: Learned = None
    """The least silence that counts, whatever the job's progress rate."""
    ceiling: Learned = None
    """Silence after which a hang is acted on though only one family of signals shows it."""
    startup_timeout: Learned = None
    """How long the start may take while every rank is blocked."""
    lone_work_timeout: Learned = None
    """How long one rank may work while all others wait."""
    step_pattern: Annotated[str, Text(max_chars=1024)] = ""
    """Regular expression whose first group is the step in a line of output, and whose second one, if any, the total."""
    external_timeout: Learned = None
    """How long all ranks may wait for something outside the job: a service, a file, a child's download."""


class DisconnectPolicy(enum.Enum):
    """The fate of the work on a host that is cut off. Values are the names in the contract."""

    KEEP = "DISCONNECT_POLICY_KEEP"
    STOP_AND_REPLACE = "DISCONNECT_POLICY_STOP_AND_REPLACE"
    REPLACE_IF_ISOLATED = "DISCONNECT_POLICY_REPLACE_IF_ISOLATED"


class Backoff(Model):
    """The pause before a restart doubles with each failure without progress."""

    initial: Annotated[float, Seconds(DAY_S)] = 0.0
    """Before the first restart."""
    limit: Annotated[float, Seconds(DAY_S)] = DEFAULT_BACKOFF_LIMIT_S
    """The longest pause."""


class WarmMode(enum.Enum):
    """Whether ranks are kept waiting with their imports done. Values are the names in the contract."""

    OFF = "WARM_MODE_OFF"
    AUTO = "WARM_MODE_AUTO"
    IN_PROCESS = "WARM_MODE_IN_PROCESS"


_PART = r"""[^\s.,;:/\\'"-]+"""
ModuleName = Annotated[
    str,
    Text(
        max_chars=255,
        empty=False,
        pattern=rf"{_PART}(\.{_PART})*",
        must='be a module\'s name, such as "models.vit"',
    ),
]


class WarmStart(Model):
    """Processes that have imported what the program imports, and wait to become the next generation's ranks."""

    mode: Annotated[WarmMode, Choice(WarmMode, "WARM_MODE_", WarmMode.OFF)] = WarmMode.OFF
    """AUTO: a restart in place finds them where that is safe for what the program imports. IN_PROCESS: the same, and
    ranks whose program can be called again go on in their own process. OFF: there are none."""
    preload: Annotated[tuple[ModuleName, ...], Many(0, 100)] = ()
    """Modules of the job's own code to import as well. What is installed is found without being named."""
    never: Annotated[tuple[ModuleName, ...], Many(0, 100)] = ()
    """Packages and modules that are not imported ahead."""


class FaultTolerance(Model):
    """How failures of workers are answered."""

    max_worker_restarts: Annotated[int, Whole(0, 1000)] = 5
    """In-place restarts for each worker's failures; 0 for none."""
    hang_detection: HangDetection = Field(default_factory=HangDetection)
    """What is done about a hang."""
    max_hang_restarts: Annotated[int, Whole(0, 1000)] = 3
    """Hang restarts in a row without progress; 0 for none."""
    restart_scope: Annotated[RestartScope, Choice(RestartScope, "RESTART_SCOPE_", RestartScope.GANG)] = (
        RestartScope.GANG
    )
    """What is relaunched in place when a worker fails. GANG: all workers. WORKER: only the one that failed."""
    max_job_retries: Annotated[int, Whole(0, 1000)] = 3
    """New placements of the whole job once restarts in place are spent; 0 for none."""
    permanent_exit_codes: Annotated[tuple[ExitCode, ...], Many(0, 255)] = ()
    """Exit codes from 1 to 255 after which the job fails at once."""
    transient_exit_codes: Annotated[tuple[ExitCode, ...], Many(0, 255)] = ()
    """Exit codes from 1 to 255 after which the worker is always worth another try."""
    backoff: Backoff = Field(default_factory=Backoff)
    """Pauses before restarts."""
    unconditional_retry: Annotated[bool, Flag()] = False
    """Failures that would count as permanent are worth another try too, until the budgets are spent."""
    no_progress_limit: Annotated[int, Whole(0, 1000)] = 3
    """How often the same failure may end the job's work without progress; 0 for no limit."""
    disconnect_policy: Annotated[DisconnectPolicy | None, Choice(DisconnectPolicy, "DISCONNECT_POLICY_", None)] = (
        None
    )
    """KEEP: work on a host that is cut off runs on. STOP_AND_REPLACE: the host stops it once its lease is over, and
    the job is placed elsewhere. REPLACE_IF_ISOLATED: the same, but not while the job's other workers reach the host.
    The cluster's default unless set."""
    warm: WarmStart = Field(default_factory=WarmStart)
    """Whether a restart in place begins with the program's imports done."""
