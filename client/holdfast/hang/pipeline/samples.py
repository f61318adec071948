"""Raw samples as an agent takes them: counters and states, nothing decided. Recorded vectors are these, replayed.

Counters only grow within one generation (a smaller value means another process, and the sample starts again);
None means that the signal is absent on this machine. Times are seconds on the host's monotonic clock.
"""

from __future__ import annotations

import enum

from holdfast._base.dataclass import dataclass
from holdfast.hang.pipeline.waits import Wait


class Family(enum.Enum):
    """Signals that fail independently of each other; a verdict to act needs two of them."""

    PROCESS = "process"
    GPU = "GPU"
    OUTPUT = "output"
    HARDWARE = "hardware"
    COUNTS = "collective counts"
    STACKS = "stacks"


class State(enum.Enum):
    """The state letter of /proc/PID/stat."""

    RUNNING = "R"
    SLEEPING = "S"
    DISK = "D"
    STOPPED = "T"
    TRACED = "t"
    ZOMBIE = "Z"


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """One rank's process. The switches are the main thread's own voluntary ones, never the process' total."""

    state: State = State.SLEEPING
    cpu_s: float = 0.0
    main_switches: int | None = None
    storage_bytes: int = 0
    major_faults: int = 0
    wchan: str = ""
    traced: bool = False
    # Of the main thread: its time on a core, and that in which it was ready and had none.
    ran_s: float | None = None
    queued_s: float | None = None
    # Bytes that the main thread has written into anything: a terminal, a pipe, a file.
    main_written: int | None = None


@dataclass(frozen=True, slots=True)
class TreeSample:
    """Some descendants of a rank, added up; ``spawned`` counts all that ever started, ``written`` as above."""

    cpu_s: float = 0.0
    storage_bytes: int = 0
    major_faults: int = 0
    spawned: int = 0
    written: int = 0


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One reading of a rank's GPU. ``link_bytes`` adds PCIe and NVLink, both ways."""

    at_s: float
    energy_j: float | None = None
    util_pct: float | None = None
    memory_util_pct: float | None = None
    link_bytes: float | None = None
    fatal_xid: int | None = None
    lost: bool = False
    # For display only; no rule looks at what follows. Of several GPUs see ``holdfast._series.figures``.
    sm_pct: float | None = None
    memory_used_bytes: int | None = None
    temperature_c: float | None = None
    sm_clock_mhz: float | None = None
    # NVML's clocks event reasons.
    throttle: int | None = None
    pcie_bytes: float | None = None
    nvlink_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class RankSample:
    """All that was read of one rank at one time. ``process`` None with no ``exit_code``: it couldn't be read
    (blind).
    """

    at_s: float
    rank: int
    process: ProcessSample | None = None
    exit_code: int | None = None
    # Descendants that do the rank's own work (a compiler it started), and helpers (loaders, uploaders).
    children: TreeSample = TreeSample()
    helpers: TreeSample = TreeSample()
    # None: it has none. A GPU that exists and couldn't be read is ``gpu_blind``.
    gpu: GpuSample | None = None
    gpu_blind: bool = False
    # A dump tool of the agent had it stopped (state t, the tool its tracer; its state here is the one before), or has
    # since the last sample: what it has woken for is no movement.
    paused_by_us: bool = False
    # The mount that a read in state D waits for, where it is known.
    mount: str = ""
    # What its main thread waits for; None while it moves.
    wait: Wait | None = None
    # Of its process on the host; 0 where there is none.
    pid: int = 0
