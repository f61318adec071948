"""``holdfast job inject``: a fault in a rank on purpose, to see what follows before it has to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.kit.calls import with_client
from holdfast.cli.kit.console import Console
from holdfast.cli.kit.durations import span
from holdfast.cli.kit.job_names import on_job
from holdfast.cli.kit.parameters import Count, duration, job_argument

if TYPE_CHECKING:
    from holdfast.client import Client
    from holdfast.v1 import job_pb2

FAULTS = {
    "kill": "is killed",
    "stop": "stands still",
    "hang": "hangs",
    "slow": "is slowed down",
    "disk": "can't write to files any more",
    "net": "has no network, nor has any rank of its worker",
}
DEFAULT_S, DEFAULT_SPEED = 30.0, 50


@click.command()
@job_argument()
@click.argument("fault", type=click.Choice(tuple(FAULTS)))
@click.option("--rank", type=Count(0), required=True, help="Global rank that has the fault.")
@click.option(
    "--for",
    "length",
    type=duration,
    metavar="TIME",
    help="Until it is undone, 30s unless given, 1h at most. Not with kill.",
)
@click.option("--speed", type=Count(1, 99), help="With slow: percent of the time in which it runs, else 50.")
def inject(word: str, fault: str, rank: int, length: float | None, speed: int | None) -> None:
    """Inject a fault into a rank of a running job, as a rehearsal.

    kill ends its processes; stop holds them; hang has only their main threads wait for ever; slow lets them run for a
    part of the time; disk lets no file of theirs grow; net cuts their worker off. It is undone by itself; what follows
    from it is real. An admin allows it by project: injection_projects.
    """
    if fault == "kill" and length is not None:
        raise click.UsageError("kill is not undone: leave out --for.")
    if fault != "slow" and speed is not None:
        raise click.UsageError("--speed goes with slow.")
    seconds = 0.0 if fault == "kill" else DEFAULT_S if length is None else length
    if fault != "kill" and not 0 < seconds <= 3600:
        raise click.BadParameter("must be longer than 0 seconds, and 1h at most.", param_hint="--for")
    percent = (speed or DEFAULT_SPEED) if fault == "slow" else 0

    async def work(client: Client) -> tuple[str, job_pb2.CustomJob]:
        return await on_job(
            client,
            word,
            lambda job_id: client.inject_fault(job_id, fault, rank, seconds=seconds, speed_percent=percent),
        )

    job_id, _ = with_client(work)
    until = f" for {span(seconds)}" if seconds else ""
    console = Console()
    console.note(f"rank {rank} of job {job_id} {FAULTS[fault]}{until}.")
    console.note(f"see what follows: holdfast job watch {job_id}")
