"""The root of the command: its subcommands, and how errors leave it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import click

from holdfast._base.version import __version__
from holdfast._security import dns
from holdfast.cli.kit import exit_status
from holdfast.cli.kit.console import Console, OutputClosed, discard_output, open_closed, say_text, show_fault
from holdfast.cli.kit.foreign_words import with_our_option
from holdfast.cli.kit.group import Commands, Unloaded
from holdfast.errors import HoldfastError

COMMANDS = {
    "run": "jobs.run",
    "guard": "jobs.guard",
    "submit": "jobs.submit",
    "schedule": "jobs.schedules",
    "template": "jobs.templates",
    "ps": "jobs.jobs",
    "logs": "jobs.logs",
    "wait": "jobs.waiting",
    "cancel": "jobs.cancelling",
    "status": "cluster.status",
    "top": "top.top",
    "usage": "cluster.usage",
    "goodput": "jobs.goodput",
    "shares": "cluster.shares",
    "share": "cluster.shares",
    "quota": "cluster.quotas",
    "reservation": "hosts.reservations",
    "job": "jobs.jobs",
    "host": "hosts.hosts",
    "hang": "hangs.hang",
    "secret": "cluster.secrets",
    "user": "cluster.users",
    "login": "cluster.users",
    "whoami": "cluster.users",
    "motd": "cluster.motd",
    "audit": "cluster.audit",
    "web": "cluster.web",
    "doctor": "cluster.doctor",
    "dev": "cluster.dev",
}
"""The module below ``holdfast.cli`` that has each command, by its name, in the order of the help."""


@contextlib.contextmanager
def _while_read() -> Iterator[None]:
    """Ends the command as every program ends whose reader has gone."""
    try:
        yield
    except (OutputClosed, BrokenPipeError):
        discard_output()
        sys.exit(exit_status.READER_GONE)


class Root(Commands):
    """Turns every error into a sentence and a status."""

    def make_context(self, *args: Any, **more: Any) -> click.Context:
        with _while_read():  # --help and --version print here
            return super().make_context(*args, **more)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with _while_read():
                return super().invoke(ctx)
        except click.NoSuchOption as error:
            raise with_our_option(error) from None
        except HoldfastError as error:
            Console().error(error)
            sys.exit(exit_status.of_error(error))
        except UnicodeEncodeError as error:
            from holdfast.cli.kit.parameters import wrong_word

            if (refused := wrong_word(error, sys.argv[1:])) is None:
                raise
            Console().error(refused)
            sys.exit(exit_status.USAGE)
        except (KeyboardInterrupt, click.Abort):  # click's is Ctrl-C, or no answer, where something was asked
            sys.exit(exit_status.CANCELLED)
        except EOFError as error:  # click would take it for one
            show_fault(error)
            sys.exit(exit_status.OUR_FAILURE)


class _Guard:
    """A fault of ours shows its traceback, and must not look like a job's own exit code."""

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            show_fault(error)
            sys.exit(exit_status.OUR_FAILURE)


@click.group(
    cls=Root, commands=Unloaded("holdfast.cli", COMMANDS), context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="holdfast")
def root() -> None:
    """Run training jobs on bare-metal GPU hosts, and keep them running."""


@root.command()
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


def main() -> None:
    """The entry point."""
    open_closed()
    dns.as_the_machine_does()
    with _Guard():
        root(prog_name="holdfast")
