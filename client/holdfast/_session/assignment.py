"""The desired state of a host's workers: frozen values that both daemons and the simulation use as they are.

``codec`` carries them over the wire.
"""

from __future__ import annotations

import enum
from functools import cached_property

from holdfast._base.dataclass import dataclass
from holdfast._base.job_file.choices import NumaBinding
from holdfast._base.job_file.launcher import starts_programs
from holdfast._base.job_file.rank_variables import WORLD_POOLS
from holdfast._session.reports import ExitReason, WorkerId


class Phase(enum.Enum):
    """The desired state of a worker."""

    PREPARE = "PREPARE"
    """Nothing of an older generation is left, and all is ready for this one."""
    RUN = "RUN"
    """The ranks of this generation have been started once."""
    STOP = "STOP"
    """Nothing is left, this generation included."""
    FORGET = "FORGET"
    """As STOP, and its files but the logs are removed."""


@dataclass(frozen=True)
class PackagedCode:
    """Code that has to be brought to a host and installed there before a task can run."""

    bundle: str = ""
    """SHA-256 of a bundle, or empty."""
    requirements: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    """URIs, and paths within the bundle."""


@dataclass(frozen=True)
class SecretVariable:
    """A variable whose value is secret: the content of a file on the host, or a secret of the controller's."""

    name: str
    file: str = ""
    secret: str = ""
    holder: str = ""
    """Owner of the secret, ``user/NAME`` or ``project/NAME``. Not sent to hosts."""


@dataclass(frozen=True)
class Task:
    """The program that each rank of a worker runs. ``env`` holds (name, value) pairs, not yet expanded."""

    command: tuple[str, ...]
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    working_directory: str = ""
    image: str = ""
    """Of the container in which it runs; the image may have a command of its own. Empty on the bare host."""
    code: PackagedCode | None = None
    account: str = ""
    """Of the host, by name, as which it runs; empty: the host's own choice."""
    secrets: tuple[SecretVariable, ...] = ()
    terminal: bool = False
    """Rank 0 of the job has one."""

    @cached_property
    def may_launch(self) -> bool:
        """Whether it may start the ranks of its worker by itself, as torchrun does, or a shell that runs torchrun."""
        return starts_programs((*self.command, *self.args))


@dataclass(frozen=True, slots=True)
class WarmStart:
    """Modules that are, or are not, imported ahead for a warm start, beside those that the program imports."""

    preload: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    in_process: bool = False
    """Ranks that can leave their work go on in the next generation, in the process that they have."""


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """How the ranks of one generation find each other. ``pools`` holds host:port of each worker of each pool."""

    master_address: str
    master_port: int
    secret: str
    pools: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a worker's ranks."""

    task: Task
    first_rank: int
    """Global; the worker's other ranks follow it."""
    processes: int
    world_size: int
    """Ranks of chief and workers. A rank outside their world has a number that is not below it."""
    gpus: tuple[str, ...] = ()
    """UUIDs."""
    restart_count: int = 0
    """In-place restarts of the job so far."""
    last_end: str = ""
    """Reason of the last generation's end; empty at first."""
    rendezvous: Rendezvous | None = None
    """Only in phase RUN."""
    pool: int = 0
    replica: int = 0
    """Index within the pool."""
    worker_count: int = 1
    """Chief and workers."""
    worker_index: int = 0
    """Within the job."""
    cpu_count: int = 0
    """Reserved cores; 0 reserves none."""
    memory_mb: int = 0
    """Reserved memory of all its processes together; 0 reserves none."""
    step_pattern: str = ""
    """Regular expression whose first group is the step in a line of output; empty without one."""
    hang_timeout_s: float = 0.0
    """The job's own limit for a silence; 0 where it is learned."""
    output_uri: str = ""
    """Where the job's results go, as its spec says; empty without such a place."""
    spec_json: str = "{}"
    """The job's spec as the ranks find it in CLUSTER_SPEC and TF_CONFIG. No daemon decides by it on a host."""
    process_starts: int = 0
    """Launches since the placement, this one included; 0 where unknown."""
    owner: str = ""
    """Who submitted the job; empty from a controller that doesn't say."""
    lacks: str = ""
    """Why the task can't be given its secrets; then it must not be launched."""
    idle_below_pct: int = 0
    """Percent of utilization below which a GPU counts as idle; 0 where no one wants to know."""
    warm: WarmStart | None = None
    """None where no warm start of the next generation is to be prepared, and this one is cold."""
    numa_binding: NumaBinding = NumaBinding.NONE

    @property
    def ranks(self) -> range:
        """The global ranks of this worker."""
        return range(self.first_rank, self.first_rank + self.processes)

    @property
    def in_world(self) -> bool:
        """Whether it is the chief or a worker, and not a parameter server or an evaluator."""
        return self.pool < WORLD_POOLS

    @property
    def own_address(self) -> str:
        """The host and port that the rendezvous names for this worker; empty without one."""
        if self.rendezvous is None:
            return ""
        try:
            return self.rendezvous.pools[self.pool][self.replica]
        except IndexError:
            return ""

    @property
    def own_port(self) -> int:
        """The port that the rendezvous names for this worker; 0 without one."""
        _, _, port = self.own_address.rpartition(":")
        return int(port) if port.isdigit() else 0


@dataclass(frozen=True, slots=True)
class Assignment:
    """The desired state of one worker. The newest is all that counts; whatever is of an older generation must go."""

    epoch: int
    key: WorkerId
    attempt: int
    generation: int
    phase: Phase
    grace_s: float = 10.0
    """Between TERM and KILL of whatever has to stop."""
    stop_reason: ExitReason = ExitReason.STOPPED
    """Exit reason of ranks that are stopped."""
    launch: Launch | None = None
    """None in the phases STOP and FORGET."""
    fence_s: float = 0.0
    """Time without word from the controller after which the shim ends the work by itself; 0: never."""
    peer_fence_s: float = 0.0
    """The same, but the work runs on while the job's other workers answer its shim. At most one of both is set."""
    warn_signal: int = 0
    """Sent once to this generation's ranks; 0: none."""
    notice_signal: int = 0
    """Sent, unless ``warn_signal`` was, when the host shuts down; 0: none."""
    notice_s: float = 0.0
    """The wait between that and the stop."""
    hung_ranks: tuple[int, ...] = ()
    """Ranks that the last generation hung by, as far as they are this worker's: they don't go on in process."""
