"""What the agent's decisions are about: assignments, launches, ends. Frozen, free of wire and disk formats."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from holdfast._session.reports import ExitReason, WorkerId


class Phase(enum.Enum):
    """What the controller wants of a place."""

    PREPARE = "PREPARE"
    RUN = "RUN"
    STOP = "STOP"
    FORGET = "FORGET"


@dataclass(frozen=True, slots=True)
class PackagedCode:
    """What has to be brought to this host and installed before a program can run."""

    bundle: str = ""
    """SHA-256, or empty."""
    requirements: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    """URIs, and paths within the bundle."""


@dataclass(frozen=True, slots=True)
class PreparedCode:
    """Where it is on this host; empty where there is none of it."""

    directory: str = ""
    """The job's own copy of the bundle."""
    environment: str = ""
    """A virtual environment."""


@dataclass(frozen=True, slots=True)
class SecretVariable:
    """A variable whose value is secret: what the file holds, or, without one, what the controller sends."""

    name: str
    file: str = ""


@dataclass(frozen=True, slots=True)
class Process:
    """The user's program."""

    command: tuple[str, ...]
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    working_directory: str = ""
    code: PackagedCode | None = None
    secrets: tuple[SecretVariable, ...] = ()


@dataclass(frozen=True, slots=True)
class Container:
    """A worker's container, which stays for all generations of a placement.

    ``pid`` is that of the process that holds it open, as the host counts. ``entrypoint`` and ``command`` are what
    the image would run, ``env`` what it sets.
    """

    id: str
    pid: int
    start_ticks: int
    env: tuple[tuple[str, str], ...] = ()
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    working_directory: str = ""


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """How the ranks of one generation find each other. ``pools`` holds host:port of each worker of each pool."""

    master_address: str
    master_port: int
    secret: str
    pools: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a worker's ranks. ``rendezvous`` is set only where they are to run."""

    process: Process
    first_rank: int
    processes: int
    world_size: int
    gpus: tuple[str, ...] = ()
    restart_count: int = 0
    last_end: str = ""
    rendezvous: Rendezvous | None = None
    pool: int = 0
    replica: int = 0
    worker_count: int = 1
    worker_index: int = 0
    cpu_count: int = 0
    job_spec_json: str = "{}"
    step_pattern: str = ""
    memory_mb: int = 0
    image: str = ""
    """The container image in which the process runs; empty on the bare host."""
    run_as: str = ""
    """Account of this host that its ranks run as, by name; empty: the host's own choice."""
    process_starts: int = 0
    """Launches since the placement, this one included; 0 when the controller doesn't say."""
    lacks: str = ""
    """Why the program can't be given its secrets; then it is not launched."""

    @property
    def ranks(self) -> range:
        """The global ranks of this worker."""
        return range(self.first_rank, self.first_rank + self.processes)

    @property
    def own_port(self) -> int:
        """The port that the rendezvous names for this worker; 0 without one."""
        if self.rendezvous is None:
            return 0
        try:
            address = self.rendezvous.pools[self.pool][self.replica]
        except IndexError:
            return 0
        _, _, port = address.rpartition(":")
        return int(port) if port.isdigit() else 0


@dataclass(frozen=True, slots=True)
class Assignment:
    """The controller's wish for one place; the newest is all that counts."""

    epoch: int
    key: WorkerId
    attempt: int
    generation: int
    phase: Phase
    grace_s: float = 10.0
    stop_reason: ExitReason = ExitReason.STOPPED
    launch: Launch | None = None
    fence_s: float = 0.0
    """After so long without a word from the controller the shim ends the work by itself; 0: never."""
    warn_signal: int = 0
    """For this generation's ranks, once; 0: none."""


@dataclass(frozen=True, slots=True)
class RankLaunch:
    """One process to start, complete to the last variable."""

    rank: int
    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    stdout: str
    stderr: str
    secrets: tuple[SecretVariable, ...] = ()
    """Variables beside ``env``, whose values are not known here."""
