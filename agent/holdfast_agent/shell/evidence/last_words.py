"""The last lines of a rank's output."""

from __future__ import annotations

from holdfast._session.reports import WorkerId
from holdfast.hang.evidence.evidence import MAX_LINES, clipped
from holdfast_agent.core.launch.environment import HostFacts, log_paths
from holdfast_agent.shell.output.log_reader import LogFile, Wanted

MAX_BYTES = 64 << 10


def last_words(
    facts: HostFacts, key: WorkerId, generation: int, rank: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Last lines of (stdout, stderr); empty if there are none or they can't be read. May block on a busy disk."""
    stdout, stderr = (_last_lines(path) for path in log_paths(facts, key, generation, rank))
    return stdout, stderr


def _last_lines(path: str) -> tuple[str, ...]:
    try:
        file = LogFile(path, Wanted(tail_lines=MAX_LINES))
        # A line may be endless: of what is too long the end is kept. The stream may grow as fast as it is read.
        file.position = max(file.position, file.size - MAX_BYTES)
        data = file.read(MAX_BYTES)[1]
    except OSError:
        return ()
    lines = data.decode("utf-8", "replace").splitlines()[-MAX_LINES:]
    # A progress bar rewrites its line; the last rewriting counts.
    return tuple(clipped(line.rstrip("\r").rpartition("\r")[2]) for line in lines)
