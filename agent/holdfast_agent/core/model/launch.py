"""The parts of a worker's launch on its host: its code, its container, and the processes to start."""

from __future__ import annotations

from dataclasses import field

from holdfast._base.dataclass import dataclass
from holdfast._session.reports import RankBinding


@dataclass(frozen=True, slots=True)
class PreparedCode:
    """Paths of a job's packaged code on this host; empty where the job has none."""

    directory: str = ""
    """The job's own copy of the bundle."""
    environment: str = ""
    """A virtual environment."""


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


@dataclass(frozen=True)
class RankLaunch:
    """One process to start, complete to the last variable: field for field a rank of the order to a shim."""

    rank: int
    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    stdout: str
    stderr: str
    secrets: tuple[str, ...] = ()
    """Variables whose values are not known here: the order has them in ``env``."""
    secret_files: dict[str, str] = field(default_factory=dict)
    """Variables whose values the rank reads itself, with the path of each."""
    terminal: bool = False
    binding: RankBinding | None = None
    """None where its job asks for none."""
