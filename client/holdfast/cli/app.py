"""The root of the command: its subcommands, and how errors leave it."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

import click

from holdfast._base.version import __version__
from holdfast._security import dns
from holdfast.cli.cluster.audit import audit
from holdfast.cli.cluster.dev import dev
from holdfast.cli.cluster.doctor import doctor
from holdfast.cli.cluster.motd import motd
from holdfast.cli.cluster.quotas import quota
from holdfast.cli.cluster.secrets import secret
from holdfast.cli.cluster.shares import share, shares
from holdfast.cli.cluster.status import status
from holdfast.cli.cluster.usage import usage
from holdfast.cli.cluster.users import login, user, whoami
from holdfast.cli.cluster.web import web
from holdfast.cli.hangs.hang import hang
from holdfast.cli.hosts.host_admission import remove, token
from holdfast.cli.hosts.hosts import host
from holdfast.cli.hosts.maintenance import dismiss, maintenance, stop_orphans
from holdfast.cli.hosts.reservations import reservation
from holdfast.cli.jobs.cancelling import cancel
from holdfast.cli.jobs.goodput import goodput
from holdfast.cli.jobs.guard import guard
from holdfast.cli.jobs.jobs import job, ps
from holdfast.cli.jobs.logs import logs
from holdfast.cli.jobs.run import run
from holdfast.cli.jobs.schedules import schedule
from holdfast.cli.jobs.submit import submit
from holdfast.cli.jobs.templates import template
from holdfast.cli.jobs.waiting import wait
from holdfast.cli.kit import exit_status
from holdfast.cli.kit.console import Console, say_text, show_fault
from holdfast.cli.kit.foreign_words import with_our_option
from holdfast.cli.kit.group import Commands
from holdfast.cli.top.top import top
from holdfast.errors import HoldfastError, InvalidInput


class Root(Commands):
    """Turns every error into a sentence and a status."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            raise with_our_option(error) from None
        except HoldfastError as error:
            Console().error(error)
            sys.exit(exit_status.USAGE if isinstance(error, InvalidInput) else exit_status.OUR_FAILURE)
        except KeyboardInterrupt:
            sys.exit(exit_status.CANCELLED)


class _Guard:
    """A fault of ours shows its traceback, and must not look like a job's own exit code."""

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            show_fault(error)
            sys.exit(exit_status.OUR_FAILURE)


@click.group(cls=Root, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="holdfast")
def root() -> None:
    """Run training jobs on bare-metal GPU hosts, and keep them running."""


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for a shell.

    For bash, in ~/.bashrc: eval "$(holdfast completion bash)"
    """
    say_text(completion_script(ctx.find_root().command, shell))


def completion_script(command: click.Command, shell: str) -> str:
    """The script by which bash, zsh or fish completes the words of ``holdfast``."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None, shell
    source = found(command, {}, "holdfast", "_HOLDFAST_COMPLETE").source()
    # Click's script for fish ends a description at its first comma.
    return source.replace('string split "," ', 'string split --max 1 "," ')


host.add_command(token)
host.add_command(remove)
host.add_command(maintenance)
host.add_command(stop_orphans)
host.add_command(dismiss)
for _command in (
    run,
    guard,
    submit,
    schedule,
    template,
    ps,
    logs,
    wait,
    cancel,
    status,
    top,
    usage,
    goodput,
    shares,
    share,
    quota,
    reservation,
    job,
    host,
    hang,
    secret,
    user,
    login,
    whoami,
    motd,
    audit,
    web,
    doctor,
    dev,
    completion,
):
    root.add_command(_command)


def main() -> None:
    """The entry point."""
    dns.as_the_machine_does()
    with _Guard():
        root(prog_name="holdfast")
