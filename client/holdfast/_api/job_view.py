"""A job as the Python API shows it: one picture, read-only, with a line that says how it is."""

from __future__ import annotations

import datetime
import time
from collections.abc import Mapping
from typing import Any

from holdfast._api.results import Failure, failure_of, state_of
from holdfast._base.plural import count
from holdfast._base.printable import one_line
from holdfast._base.proto_values import seconds
from holdfast._sdk import json_view
from holdfast.cli.kit.durations import span
from holdfast.cli.pages.gang import gpus_of, ranks_of
from holdfast.cli.pages.job_tables import steps
from holdfast.client import TERMINAL
from holdfast.v1 import job_pb2


class JobView:
    """A job as it was when it was last asked for; ``refresh`` asks again. Times are in UTC."""

    def __init__(self, message: job_pb2.CustomJob) -> None:
        self._message = message

    @property
    def id(self) -> str:
        """The id by which every command and call knows the job."""
        return self._message.id

    @property
    def name(self) -> str:
        """The display name; several jobs may share it."""
        return self._message.display_name

    @property
    def state(self) -> str:
        """A word such as ``QUEUED``, ``PENDING``, ``RUNNING``, ``SUCCEEDED`` or ``FAILED``."""
        return state_of(self._message)

    @property
    def ended(self) -> bool:
        """Whether the job has come to its end, whichever."""
        return self._message.state in TERMINAL

    @property
    def owner(self) -> str:
        """Name of the user who submitted it."""
        return self._message.owner

    @property
    def project(self) -> str:
        """The project that its resources are counted for."""
        return self._message.project or "default"

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels to find it by."""
        return dict(self._message.labels)

    @property
    def ranks(self) -> int:
        """Processes of the whole job."""
        return len(ranks_of(self._message.job_spec))

    @property
    def gpus(self) -> int:
        """GPUs of the whole job."""
        return gpus_of(self._message.job_spec)

    @property
    def generation(self) -> int:
        """Launches of the gang so far: 1 is the first, each restart adds one, 0 is before the first."""
        return self._message.generation

    @property
    def step(self) -> int | None:
        """The step that its training has reached; None where none is known, and once the job has ended."""
        return int(self._message.step) if self._message.HasField("step") else None

    @property
    def step_total(self) -> int | None:
        """The steps that its training takes in all; None where that isn't known."""
        return int(self._message.step_total) if self._message.HasField("step_total") else None

    @property
    def expected_end(self) -> tuple[datetime.datetime, datetime.datetime] | None:
        """The two times between which it ends with a chance of 80 %; None where that isn't known."""
        found = self._message.expected_end
        if not found.HasField("latest"):
            return None
        return found.earliest.ToDatetime(datetime.UTC), found.latest.ToDatetime(datetime.UTC)

    @property
    def phase(self) -> str:
        """One of ``train``, ``evaluate`` and ``save``, where the program says so; else empty."""
        return self._message.phase

    @property
    def wait_reason(self) -> str:
        """Why it isn't running; empty while it is."""
        return self._message.wait_reason

    @property
    def headline(self) -> str:
        """The job in one line, as ``holdfast ps`` shows it; empty from a controller of an older release."""
        return self._message.summary.headline

    @property
    def advice(self) -> str:
        """The next thing for its user to do, with the line to type if there is one; usually ``Nothing``."""
        return self._message.summary.advice

    @property
    def needs_you(self) -> bool:
        """Whether it does not go on well without a person."""
        return self._message.summary.condition == job_pb2.JOB_CONDITION_NEEDS_YOU

    @property
    def health(self) -> str:
        """A sentence of the hang detector; empty where it has nothing to say."""
        return self._message.health

    @property
    def error(self) -> Failure | None:
        """Why it ended without success; None while it runs, and where it succeeded."""
        return failure_of(self._message)

    @property
    def created_at(self) -> datetime.datetime:
        """The time of its submission."""
        return self._message.create_time.ToDatetime(datetime.UTC)

    @property
    def started_at(self) -> datetime.datetime | None:
        """The time of its first launch; None before it."""
        known = self._message.HasField("start_time")
        return self._message.start_time.ToDatetime(datetime.UTC) if known else None

    @property
    def ended_at(self) -> datetime.datetime | None:
        """The time of its end; None before it."""
        known = self._message.HasField("end_time")
        return self._message.end_time.ToDatetime(datetime.UTC) if known else None

    def to_dict(self) -> dict[str, Any]:
        """The job as ``holdfast job show -o json`` prints it, with its workers where they are known."""
        return json_view.job(self._message)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {' '.join(_summary(self._message, time.time()))}>"


def _summary(job: job_pb2.CustomJob, now: float) -> list[str]:
    gpus, ranks = gpus_of(job.job_spec), len(ranks_of(job.job_spec))
    size = count(gpus, "GPU") if gpus else count(ranks, "rank")
    words = [job.id, state_of(job), repr(one_line(job.display_name, 40)), size]
    if job.HasField("start_time"):
        end = seconds(job.end_time) if job.HasField("end_time") else now
        words.append(f"for {span(max(0.0, end - seconds(job.start_time)))}")
    if progress := steps(job):
        words.append(f"step {progress}")
    if job.generation > 1:
        words.append(f"restarts={job.generation - 1}")
    failure = failure_of(job)
    why = str(failure) if failure else job.wait_reason
    return [*words, f"({one_line(why, 160)})"] if why else words
