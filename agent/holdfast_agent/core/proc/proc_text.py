"""Reads the text of files under /proc/PID. Every function raises ``ValueError`` for what is no such text."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.hang.pipeline.samples import State

# A process that is just being removed counts as dead, a parked kernel thread as sleeping.
_STATES = {**{state.value: state for state in State}, "X": State.ZOMBIE, "x": State.ZOMBIE}
_O_ACCMODE = 3


class Stat(NamedTuple):
    """/proc/PID/stat, as far as it is needed. Ticks are those of sysconf(SC_CLK_TCK)."""

    name: str
    state: State
    parent: int
    group: int
    session: int
    major_faults: int
    own_ticks: int
    # Of children that were waited for.
    reaped_ticks: int
    start_ticks: int
    processor: int


class Io(NamedTuple):
    """/proc/PID/io: bytes asked for by system calls, and bytes that reached storage."""

    read_chars: int
    written_chars: int
    read_bytes: int
    written_bytes: int

    @property
    def storage_bytes(self) -> int:
        """Read from and written to storage, without the page cache and without pipes and sockets."""
        return self.read_bytes + self.written_bytes


class MainThread(NamedTuple):
    """/proc/PID/task/PID/status. ``switches`` are the thread's voluntary ones; ``tracer`` 0 for none."""

    tracer: int
    switches: int
    state: State


class CoreTime(NamedTuple):
    """/proc/PID/task/TID/schedstat: seconds of a thread on a core, and of it ready to run without one."""

    ran_s: float
    queued_s: float


class Call(NamedTuple):
    """/proc/PID/syscall: the system call that a sleeping thread is in. ``number`` -1 for a page fault."""

    number: int
    arguments: tuple[int, ...]


def parse_stat(data: bytes) -> Stat:
    """The fields of /proc/PID/stat, whose process name may hold blanks and parentheses."""
    opened, closed = data.index(b"("), data.rindex(b")")
    fields = data[closed + 2 :].split()
    if len(fields) < 37:
        raise ValueError(f"only {len(fields)} fields in stat")
    return Stat(
        data[opened + 1 : closed].decode("utf-8", "replace"),
        _STATES.get(fields[0].decode(), State.SLEEPING),
        int(fields[1]),
        int(fields[2]),
        int(fields[3]),
        int(fields[9]),
        int(fields[11]) + int(fields[12]),
        int(fields[13]) + int(fields[14]),
        int(fields[19]),
        int(fields[36]),
    )


def parse_io(data: bytes) -> Io:
    """The byte counters of /proc/PID/io."""
    words = data.split()
    found = dict(zip(words[::2], words[1::2], strict=False))
    try:
        return Io(
            int(found[b"rchar:"]),
            int(found[b"wchar:"]),
            int(found[b"read_bytes:"]),
            int(found[b"write_bytes:"]),
        )
    except KeyError as error:
        raise ValueError(f"no {error} in io") from error


def parse_main_thread(data: bytes) -> MainThread:
    """The fields of /proc/PID/task/PID/status, whose first line may hold any name."""
    at = data.index(b"\nState:") + len(b"\nState:")
    state = data[at : at + 2].strip().decode()
    return MainThread(
        _number(data, b"\nTracerPid:"),
        _number(data, b"\nvoluntary_ctxt_switches:"),
        _STATES.get(state, State.SLEEPING),
    )


def _number(data: bytes, key: bytes) -> int:
    start = data.index(key) + len(key)
    end = data.find(b"\n", start)
    return int(data[start : end if end >= 0 else len(data)])


def parse_schedstat(data: bytes) -> CoreTime:
    """The two times of schedstat, which are in nanoseconds."""
    words = data.split()
    if len(words) < 2:
        raise ValueError("no schedstat")
    return CoreTime(int(words[0]) / 1e9, int(words[1]) / 1e9)


def parse_syscall(data: bytes) -> Call | None:
    """The system call of /proc/PID/syscall; None while the process runs."""
    words = data.split()
    if not words or words[0] == b"running":
        return None
    return Call(int(words[0]), tuple(int(word, 16) for word in words[1:7]))


def parse_wchan(data: bytes) -> str:
    """Kernel function the process sleeps in; empty if the kernel doesn't say."""
    text = data.decode("ascii", "replace").strip()
    return "" if text == "0" else text


def parse_command(data: bytes) -> tuple[str, ...]:
    """/proc/PID/cmdline; empty for a zombie."""
    return tuple(data.rstrip(b"\0").decode("utf-8", "replace").split("\0")) if data.rstrip(b"\0") else ()


class World(NamedTuple):
    """A process's world by its environment: ``rank`` is RANK; None where it is missing or no number.

    ``seat`` and ``size`` are its rank and the number of ranks in the world that was made last: MPI's, else torch's.
    """

    rank: int | None = None
    seat: int | None = None
    size: int | None = None


_OPEN_MPI = (b"OMPI_COMM_WORLD_RANK", b"OMPI_COMM_WORLD_SIZE")
_OPEN_MPI_ALONE = b"OMPI_COMM_WORLD_LOCAL_SIZE"
"""Set by mpirun, and not among the names of Open MPI that a launch sets for JAX."""
_BY_TORCH = (b"RANK", b"WORLD_SIZE")
_WORLDS = (_OPEN_MPI, (b"PMI_RANK", b"PMI_SIZE"), _BY_TORCH)


def world_in(environ: bytes, *, by_torch: bool = False) -> World:
    """The world that /proc/PID/environ tells of; ``by_torch``, of torch's names alone."""
    worlds = (_BY_TORCH,) if by_torch else _WORLDS
    wanted = {name for names in worlds for name in names}
    said: dict[bytes, int] = {}
    by_mpirun = _OPEN_MPI_ALONE + b"=" in environ
    for variable in environ.split(b"\0"):
        name, _, value = variable.partition(b"=")
        if name in _OPEN_MPI and not by_mpirun:
            continue
        if name in wanted and value.isdigit() and len(value) < 10:
            said[name] = int(value)
    seat, size = next((each for each in worlds if each[0] in said and each[1] in said), _BY_TORCH)
    return World(said.get(b"RANK"), said.get(seat), said.get(size))


def parse_fdinfo(data: bytes) -> tuple[bool, int]:
    """Whether /proc/PID/fdinfo/FD is open for writing, and the id of its mount."""
    words = data.split()
    found = dict(zip(words[::2], words[1::2], strict=False))
    flags = int(found.get(b"flags:", b"0"), 8)
    return flags & _O_ACCMODE != 0, int(found.get(b"mnt_id:", b"-1"))


def mount_device(mountinfo: bytes, mount_id: int) -> tuple[int, int]:
    """Major and minor number of a mount id's device in /proc/PID/mountinfo; (0, 0) if the id is not listed."""
    wanted = str(mount_id).encode()
    for line in mountinfo.split(b"\n"):
        words = line.split(b" ", 3)
        if len(words) == 4 and words[0] == wanted:
            major, _, minor = words[2].partition(b":")
            return int(major), int(minor)
    return 0, 0


def mount_point(mountinfo: bytes, mount_id: int) -> str:
    """Mount point of a mount id in /proc/PID/mountinfo; empty if the id is not listed."""
    wanted = str(mount_id).encode()
    for line in mountinfo.split(b"\n"):
        words = line.split(b" ", 5)
        if len(words) == 6 and words[0] == wanted:
            return words[4].decode("utf-8", "replace").replace("\\040", " ")
    return ""
