"""``holdfast doctor``: of the host where one is installed, else of what a client needs."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import click

from holdfast.cli.kit.console import OUT, Console, coloured, say_text

HOST = Path("/etc/holdfast/agent.toml")
COMMAND = "holdfast-agent"


@click.command()
@click.option(
    "--agent-config",
    type=click.Path(path_type=Path, dir_okay=False),
    default=HOST,
    show_default=True,
    help="Settings of this host's agent, if it is a host.",
)
@click.option("--client", "client_only", is_flag=True, help="Look at what a client needs, even on a host.")
@click.option("-o", "--output", type=click.Choice(("table", "json")), default="table", help="Format.")
def doctor(agent_config: Path, client_only: bool, output: str) -> None:
    """Report what is wrong with this machine and how to fix it.

    On a host of the cluster: drivers, rights, cgroups, time, certificates, ports, disks, limits. Elsewhere: whether
    the controller can be reached and knows you. Nothing is changed. Exits with 1 when something must be fixed.
    """
    program = shutil.which(COMMAND) or shutil.which(COMMAND, path=str(Path(sys.executable).parent))
    if not client_only and agent_config.exists() and program:
        sys.stdout.flush()
        os.execv(program, [program, "doctor", f"--config={agent_config}", f"--output={output}"])
    if not client_only and agent_config != HOST:
        missing = f"there is no {agent_config}" if program else f"{COMMAND} is not installed"
        raise click.UsageError(f"This is no host: {missing}.")
    Console().note("this machine is no host of a cluster; looking at what a client needs")
    sys.exit(_client(output))


def _client(output: str) -> int:
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from holdfast import __version__
    from holdfast.cli.kit.output import dump
    from holdfast.cli.kit.table import terminal_width
    from holdfast.doctor import client, page
    from holdfast.doctor.findings import exit_status, view

    subject, findings = client.make()
    if output == "json":
        dump(view(subject, __version__, findings), output)
    else:
        text = page.page(subject, findings, width=terminal_width() or page.WIDTH, colour=coloured(OUT))
        say_text(text)
    return exit_status(findings)
