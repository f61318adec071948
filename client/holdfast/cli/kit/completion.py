"""``holdfast completion``: what a shell needs to complete our commands."""

from __future__ import annotations

import click

_SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for a shell.

    For bash, in ~/.bashrc: eval "$(holdfast completion bash)"
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None, shell
    click.echo(found(ctx.find_root().command, {}, "holdfast", "_HOLDFAST_COMPLETE").source())
