"""Writes the output of a failed installation where a user looks: into that of the worker's first rank."""

from __future__ import annotations

import os

from holdfast._daemon import log
from holdfast._session.reports import WorkerId
from holdfast_agent.core.launch.environment import HostFacts, log_paths
from holdfast_agent.shell.output.log_index import make_directories


def write_log(said: bytes, facts: HostFacts, key: WorkerId, generation: int, rank: int) -> None:
    """Add it to the rank's stderr, which nothing else writes to: the rank will not start."""
    try:
        make_directories(facts, key, generation)
        out, err = log_paths(facts, key, generation, rank)
        for path, data in ((out, b""), (err, said)):
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            handle = os.open(path, flags, 0o600)
            try:
                os.write(handle, data)
            finally:
                os.close(handle)
    except OSError as error:
        log.warning("install_log.write_failed", worker=str(key), error=str(error))
