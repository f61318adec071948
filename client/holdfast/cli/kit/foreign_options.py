"""Options of other launchers that people try first, and what they are called here."""

from __future__ import annotations

import click

_HINTS = {
    "nodes": "Workers are --replicas N; each has a host's --gpus, --cpus and --memory-mb of its own.",
    "ntasks": "Ranks are --replicas N times --processes-per-worker M.",
    "nproc-per-node": "Ranks of each worker are --processes-per-worker N, one per GPU unless given.",
    "gpus-per-node": "GPUs of each worker are --gpus N.",
    "cpus-per-task": "Cores of each worker are --cpus N.",
    "mem": "Memory of each worker is --memory-mb N.",
    "time": "The longest run time is --timeout 2h.",
    "job-name": "The job's name is --name NAME.",
    "nodelist": "Hosts are --on-host HOST, once for each.",
    "exclude": "Hosts to leave out are --avoid-host HOST, once for each.",
    "partition": "Groups of hosts are labels: --label-selector KEY=VALUE.",
    "account": "Resources are counted for --project NAME.",
    "chdir": "The working directory is --workdir DIR.",
    "wait": "It waits for the job unless --detach is given.",
    "export": "Variables are --env NAME=VALUE, or --env NAME for yours; once for each.",
}
_ALIKE = {
    "nnodes": "nodes",
    "num-nodes": "nodes",
    "num-machines": "nodes",
    "workers": "nodes",
    "nproc": "nproc-per-node",
    "nprocs": "nproc-per-node",
    "ntasks-per-node": "nproc-per-node",
    "num-processes": "ntasks",
    "gres": "gpus-per-node",
    "gpus-per-task": "gpus-per-node",
    "num-gpus": "gpus-per-node",
    "gpu": "gpus-per-node",
    "cpu": "cpus-per-task",
    "memory": "mem",
    "host": "nodelist",
    "hosts": "nodelist",
    "cwd": "chdir",
    "working-directory": "chdir",
}


class JobCommand(click.Command):
    """A command for new jobs: an option of another launcher is answered with what it is called here."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = error.option_name.lstrip("-").replace("_", "-")
            hint = _HINTS.get(_ALIKE.get(name, name))
            if hint is None:
                raise
            raise click.UsageError(f"No such option '{error.option_name}'. {hint}", ctx) from None
