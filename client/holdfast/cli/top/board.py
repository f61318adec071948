"""The state of the live screen: what is known of the cluster, and what the user looks at.

It is changed by answers of the controller (``feed``) and by keys (``keys``), and drawn by ``frame``. It knows no clock,
no terminal and no connection.
"""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import field

from holdfast._base.dataclass import dataclass
from holdfast._base.proto_values import seconds
from holdfast._sdk.host_calls import gpus_free
from holdfast.cli.cluster.status_page import rows_of
from holdfast.cli.hosts.host_tables import state_cell
from holdfast.v1 import cluster_pb2, host_pb2, job_pb2

ROWS = 200
"""Jobs that are loaded of each group at first; as many more each time that the user comes to the last one."""
ROWS_MOST = 1_000


class Pane(enum.Enum):
    """The lists; the value is the list's title."""

    JOBS = "Jobs"
    HOSTS = "Hosts"
    ALERTS = "Needs attention"


class Group(enum.Enum):
    """The jobs that are listed; the value is a filter of the controller's."""

    ALL = ""
    RUNNING = "state=RUNNING|PENDING|CANCELLING"
    WAITING = "state=QUEUED|PAUSED"
    ENDED = "active=false"


@dataclass(frozen=True)
class Goodput:
    """A job's goodput as a share, None where it isn't known, and when it was asked for."""

    share: float | None
    at: float


@dataclass(frozen=True)
class Alert:
    """One thing that needs attention. ``job`` or ``host``: the name of what it is about, else empty."""

    key: str
    subject: str
    since: str
    message: str
    style: str
    job: str = ""
    host: str = ""


@dataclass
class Board:
    """Everything that a frame is drawn from."""

    status: cluster_pb2.GetStatusResponse | None = None
    hosts: dict[str, host_pb2.Host] = field(default_factory=dict)
    jobs: dict[str, job_pb2.CustomJob] = field(default_factory=dict)
    more_jobs: bool = False
    """There are more jobs than are loaded."""
    goodput: dict[str, Goodput] = field(default_factory=dict)
    """By job."""
    load: dict[str, float] = field(default_factory=dict)
    """Utilisation in percent, by UUID of the GPU; of GPUs of hosts in view, as far as it is known."""
    away: tuple[str, float] | None = None
    """Why the controller can't be reached, and since when."""
    problem: str = ""
    """Why the controller refuses a call."""

    pane: Pane = Pane.JOBS
    group: Group = Group.ALL
    limit: int = ROWS
    chosen: dict[Pane, str] = field(default_factory=dict)
    places: dict[Pane, int] = field(default_factory=lambda: dict.fromkeys(Pane, 0))
    """Index of the chosen row as it was last drawn: where it is gone, the row in its place is chosen."""
    tops: dict[Pane, int] = field(default_factory=lambda: dict.fromkeys(Pane, 0))
    """Index of the first row in view."""
    heights: dict[Pane, int] = field(default_factory=lambda: dict.fromkeys(Pane, 0))
    """Rows in view, as it was last drawn; 0 for a list that isn't."""
    orders: dict[Pane, int] = field(default_factory=lambda: dict.fromkeys(Pane, 0))
    search: dict[Pane, str] = field(default_factory=lambda: dict.fromkeys(Pane, ""))
    typing: str | None = None
    """The text for ``search`` while it is typed."""
    helps: bool = False
    note: str = ""

    def job_rows(self) -> list[job_pb2.CustomJob]:
        """The jobs that are loaded, in the order that the user asked for."""
        _, key = JOB_ORDERS[self.orders[Pane.JOBS]]
        return sorted(self.jobs.values(), key=lambda job: key(self, job))

    def host_rows(self) -> list[host_pb2.Host]:
        """The hosts that match, in the order that the user asked for."""
        _, key = HOST_ORDERS[self.orders[Pane.HOSTS]]
        wanted = self.search[Pane.HOSTS].casefold()
        found = (host for host in self.hosts.values() if not wanted or wanted in _words(host))
        return sorted(found, key=lambda host: key(self, host))

    def alert_rows(self, now: float) -> list[Alert]:
        """The alerts that match, the most urgent first."""
        if self.status is None:
            return []
        wanted, seen, found = self.search[Pane.ALERTS].casefold(), Counter[str](), []
        for each, (subject, since, message, style) in zip(
            self.status.attention, rows_of(self.status, now), strict=True
        ):
            kind_of, _, name = each.subject.partition("/")
            seen[each.subject] += 1
            key = f"{each.subject} {seen[each.subject]}"
            of_job, of_host = (name if kind_of == kind else "" for kind in ("job", "host"))
            if not wanted or wanted in f"{subject} {message}".casefold():
                found.append(Alert(key, subject, since, message, style, of_job, of_host))
        return found

    def keys(self, pane: Pane, now: float) -> list[str]:
        """The key of each row, in order."""
        match pane:
            case Pane.JOBS:
                return [job.id for job in self.job_rows()]
            case Pane.HOSTS:
                return [host.name for host in self.host_rows()]
            case Pane.ALERTS:
                return [alert.key for alert in self.alert_rows(now)]

    def settle(self, pane: Pane, keys: list[str], height: int) -> tuple[int, int]:
        """Choose a row if none is, scroll it into view; the index of the first row in view, and of the chosen one."""
        if not keys:
            self.heights[pane] = height
            return 0, -1
        chosen = self.chosen.get(pane)
        place = keys.index(chosen) if chosen in keys else min(self.places[pane], len(keys) - 1)
        top = min(self.tops[pane], place, max(0, len(keys) - height))
        top = max(top, place - height + 1, 0)
        self.chosen[pane], self.places[pane] = keys[place], place
        self.tops[pane], self.heights[pane] = top, height
        return top, place

    def in_view(self, pane: Pane, keys: list[str]) -> list[str]:
        """The keys of the rows in view, as it was last drawn."""
        return keys[self.tops[pane] : self.tops[pane] + self.heights[pane]]

    def target(self, now: float) -> tuple[str, str]:
        """``job`` and an id, ``host`` and a name, or two empty texts: what the chosen row is about."""
        chosen = self.chosen.get(self.pane, "")
        match self.pane:
            case Pane.JOBS:
                return ("job", chosen) if chosen in self.jobs else ("", "")
            case Pane.HOSTS:
                return ("host", chosen) if chosen in self.hosts else ("", "")
            case Pane.ALERTS:
                alert = next((each for each in self.alert_rows(now) if each.key == chosen), None)
                if alert is None:
                    return "", ""
                return ("job", alert.job) if alert.job else ("host", alert.host) if alert.host else ("", "")


Order = tuple[float, float, str]

_URGENCY = {
    job_pb2.JOB_CONDITION_NEEDS_YOU: 0,
    job_pb2.JOB_CONDITION_RECOVERS: 1,
    job_pb2.JOB_CONDITION_WORKS: 2,
    job_pb2.JOB_CONDITION_WAITS: 3,
    job_pb2.JOB_CONDITION_ENDED: 5,
}


def _by_urgency(board: Board, job: job_pb2.CustomJob) -> Order:
    """Jobs that need a person, then those that recover, run, wait and have ended; of waiting ones the oldest first."""
    created = seconds(job.create_time)
    waits = job.summary.condition == job_pb2.JOB_CONDITION_WAITS
    return _URGENCY.get(job.summary.condition, 4), created if waits else -created, job.id


def _by_goodput(board: Board, job: job_pb2.CustomJob) -> Order:
    known = board.goodput.get(job.id)
    return (known.share if known is not None and known.share is not None else 2.0), 0.0, job.id


JOB_ORDERS: tuple[tuple[str, Callable[[Board, job_pb2.CustomJob], Order]], ...] = (
    ("urgency", _by_urgency),
    ("newest", lambda board, job: (-seconds(job.create_time), 0.0, job.id)),
    ("GPUs", lambda board, job: (-job.gpu_count, 0.0, job.id)),
    ("goodput", _by_goodput),
    ("owner", lambda board, job: (0.0, 0.0, f"{job.owner} {job.id}")),
)


def load_of(board: Board, host: host_pb2.Host) -> float | None:
    """Mean utilisation of the host's GPUs in percent; ``None`` where none is known."""
    known = [board.load[gpu.uuid] for gpu in host.inventory.gpus if gpu.uuid in board.load]
    return math.fsum(known) / len(known) if known else None


def _by_trouble(board: Board, host: host_pb2.Host) -> Order:
    """Lost hosts, then silent ones, those with a faulty GPU, cordoned ones, all others."""
    if host.state != host_pb2.HOST_STATE_READY:
        return -float(host.state), 0.0, host.name
    faulty = any(gpu.problem for gpu in host.inventory.gpus)
    return (0.0 if faulty else 1.0 if host.cordoned or host.draining else 2.0), 0.0, host.name


HOST_ORDERS: tuple[tuple[str, Callable[[Board, host_pb2.Host], Order]], ...] = (
    ("trouble", _by_trouble),
    ("name", lambda board, host: (0.0, 0.0, host.name)),
    (
        "free GPUs",
        lambda board, host: (-gpus_free(host), 0.0, host.name),
    ),
)


def _words(host: host_pb2.Host) -> str:
    """The text in which hosts are searched."""
    labels = (f"{key}={value}" for key, value in host.labels.items())
    return " ".join((host.name, state_cell(host).text, *labels, *host.job_ids)).casefold()
