"""``holdfast hang record``: what agents sample of a live job, kept for ``holdfast hang replay``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast._base.proto_values import seconds
from holdfast.cli.kit.calls import with_client
from holdfast.cli.kit.console import say
from holdfast.cli.kit.durations import span
from holdfast.cli.kit.job_names import job_of
from holdfast.cli.kit.parameters import Count, duration, job_argument
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.client import Client
    from holdfast.hang.records.recorder import JobRecording, WorkerFile
    from holdfast.hang.thresholds import HangSettings
    from holdfast.v1 import job_pb2

DURATIONS = ("timeout", "floor", "ceiling", "startup_timeout", "lone_work_timeout", "external_timeout")
"""Settings of a job that are times, by their names in its file; each is an option of ``holdfast hang replay``."""


@click.command()
@job_argument()
@click.option("--for", "length", type=duration, default="10m", show_default=True, metavar="TIME", help="How long.")
@click.option(
    "--hang",
    "number",
    type=Count(1),
    metavar="NUMBER",
    help="Only what was kept with this hang, also of a job that has ended.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where to; made if need be. hang-ID unless given.",
)
def record(word: str, length: float, number: int | None, out: Path | None) -> None:
    """Keep what the agents sample of a live job, for a replay.

    `holdfast hang replay` reads it. Writes one file for each worker, from a quarter of an hour ago until the time is
    over, the job has ended, or Ctrl-C. The job doesn't notice. A file holds the newest 64 MiB, some days of a usual
    worker; it contains the lines that the ranks print. With each hang the quarter of an hour before it is kept,
    and dumps of torch's flight recorders; those are written too.
    """
    if length <= 0:
        raise click.BadParameter("must be longer than 0 seconds.", param_hint="--for")

    async def work(client: Client) -> tuple[job_pb2.CustomJob, JobRecording]:
        from holdfast.cli.hangs.recording import keep, keep_of_hang
        from holdfast.hang.records.recorder import JobRecording

        job = await job_of(client, word)
        with JobRecording(out or Path(f"hang-{job.id}"), job.id, settings_of(job)) as recording:
            if number is None:
                await keep(client, recording, length)
            else:
                await keep_of_hang(client, recording, number)
        return job, recording

    job, recording = with_client(work)
    if not recording.files:
        folder_text = shlex.quote(str(out or f"hang-{job.id}"))
        if number is not None:
            words = f"No samples are kept of hang {number} of job {job.id}"
            raise HoldfastError(f"{words}; they are of a job's newest 5 hangs, as far as 16 MiB suffice.")
        raise HoldfastError(f"No sample came of job {job.id}; nothing was written to {folder_text}.")
    for file in recording.in_order:
        say(_line(file))
    say(f"Replay with: {replay_command(settings_of(job), recording)}")


def _line(file: WorkerFile) -> str:
    """One line such as: workerpool0-0 on host-0: 152 samples over 5m 4s, 12 KiB, hang-train/workerpool0-0.jsonl.gz."""
    plural = "" if file.samples == 1 else "s"
    size = -(-file.size() // 1024)
    took = span(file.last_s - file.first_s)
    return f"{file.worker} on {file.host}: {file.samples} sample{plural} over {took}, {size} KiB, {file.path}"


def settings_of(job: job_pb2.CustomJob) -> HangSettings:
    """The job's own settings of hang detection, as the detector takes them."""
    from holdfast.hang.thresholds import HangSettings

    asked = job.job_spec.fault_tolerance.hang_detection
    times: dict[str, Any] = {
        f"{field.name}_s": seconds(value) for field, value in asked.ListFields() if field.name in DURATIONS
    }
    return HangSettings(step_pattern=asked.step_pattern, **times)


def replay_command(settings: HangSettings, recording: JobRecording) -> str:
    """The command line that replays the files with the job's own settings."""
    words = ["holdfast", "hang", "replay", *(str(file.path) for file in recording.in_order)]
    for name in DURATIONS:
        if (value := getattr(settings, f"{name}_s")) is not None:
            words += [f"--{name.replace('_', '-')}", f"{value:.12g}s"]
    if settings.step_pattern:
        words += ["--step-pattern", settings.step_pattern]
    return shlex.join(words)
