"""The command reference as Markdown, drawn from the commands themselves: ``python -m holdfast.cli.reference``."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from holdfast.cli.app import root
from holdfast.cli.kit.console import say_text

_HEAD = """# The `holdfast` command

Written by `python -m holdfast.cli.reference > docs/users/cli.md`; a test keeps it current.

Data goes to stdout, everything for people along the way to stderr. Colour only on a terminal, and not with
`NO_COLOR`. Which cluster: `HOLDFAST_CONFIG` (path of a `client.toml`), else
`$XDG_CONFIG_HOME/holdfast/client.toml`, else `/etc/holdfast/client.toml`.

On a terminal the ranks' output has its colours and progress bars, and nothing else that drives the terminal. Into a
file or a pipe the output of one rank goes byte for byte. With several in view, lines are whole and begin with their
worker and rank; progress bars are redrawn in place below them, and go into a file or a pipe as a line every few
seconds, and as they were last. With `--tail` a bar is one line, however often it was drawn.

| exit status | of `run` and `submit --wait` |
|---|---|
| 0 | the job SUCCEEDED, or you left it with Ctrl-C (it keeps running) |
| 1–255 | the job FAILED: the code of the rank that failed first in its last generation, 128+n for signal n |
| 124 | the job ran into its timeout, or EXPIRED |
| 125 | the job FAILED without any rank's code, or the command itself failed |
| 129, 143 | a signal (SIGHUP, SIGTERM) ended the command; the job keeps running |
| 130 | the job was CANCELLED |
| 2 | the command line or the job file is wrong |

The other commands exit with 0, 2 (usage), 125 (failed), 130 (interrupted) or 141 (the reader of their output went
away); `wait` as `run` does for the job that failed first; `dev status` with 3 where no cluster runs.

A JOB is an id, the beginning of one, or a display name. A word that could mean several jobs is refused with the list of
them."""


def markdown() -> str:
    """The whole reference as Markdown."""
    return "\n\n".join([_HEAD, *_sections(root, ("holdfast",))]) + "\n"


def _sections(command: click.Command, path: tuple[str, ...]) -> Iterator[str]:
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield from _section(command, path)
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            if not child.hidden:
                yield from _sections(child, (*path, name))


def _section(command: click.Command, path: tuple[str, ...]) -> Iterator[str]:
    arguments = [p for p in command.params if isinstance(p, click.Argument)]
    options = [p for p in command.params if isinstance(p, click.Option) and not p.hidden]
    usage = " ".join([*path, *(["[OPTIONS]"] if options else []), *map(_argument, arguments)])
    yield f"## `{usage}`"
    yield inspect.cleandoc(command.help or "")
    if options:
        yield "\n".join(["| option | |", "|---|---|", *map(_option, options)])


def _argument(argument: click.Argument) -> str:
    name = argument.metavar or (argument.name or "").upper()
    name = f"{name}..." if argument.nargs == -1 and "..." not in name else name
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _option(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in option.opts)
    value = "" if option.is_flag else f" {option.metavar or _values(option)}"
    text = option.help or ""
    if option.show_default and option.default is not None:
        text += f"  [default: {option.default}]"
    more = " May be given more than once." if option.multiple else ""
    return f"| {names}{value} | {text}{more} |".replace("  [", " [")


def _values(option: click.Option) -> str:
    if isinstance(option.type, click.Choice):
        return " \\| ".join(option.type.choices)
    return {"text": "TEXT", "directory": "DIR"}.get(option.type.name, option.type.name.upper())


if __name__ == "__main__":
    say_text(markdown())
