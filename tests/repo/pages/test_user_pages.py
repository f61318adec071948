"""Whatever the pages for users say to type can be typed: commands, options and values are those that programs take."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from tests.support.printed_commands import command_lines, fenced, understood

ROOT = Path(__file__).parents[3]
PAGES = [
    ROOT / "README.md",
    *(path for path in sorted((ROOT / "docs/users").rglob("*.md")) if path.name != "cli.md"),  # drawn from the code
]
NO_COMMANDS = ("holdfast run ...", "holdfast login …")
"""What stands for any command of the kind."""
LINES = [(path.stem, line) for path in PAGES for line in command_lines(path.read_text()) if line not in NO_COMMANDS]
TYPED = {line for path in PAGES for block in fenced(path.read_text()) for line in command_lines(f"```\n{block}```")}
"""Lines of blocks, which are typed as they are."""


@pytest.mark.parametrize(("page", "line"), LINES)
def test_what_a_page_says_to_type_is_understood(page: str, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        understood(line, monkeypatch)
    except (click.MissingParameter, click.BadOptionUsage) as lacking:
        lacks = isinstance(lacking, click.MissingParameter) or "requires an argument" in lacking.format_message()
        assert lacks and line not in TYPED, "only a sentence may name a command without what it acts on"


@pytest.mark.parametrize(
    "page",
    [
        "`holdfast job shw JOB`",
        "```\nfor x in 1; do\n  holdfast run --gpu 1 -- train\ndone\n```",
        "```\nholdfast submit \\\n  --local-packages .\n```",
        "`cat x | holdfast job rerun`",
        "`holdfast cancel $(holdfast job list --actives -o name)`",
        "the text breaks `holdfast logs\n--ranks 3 JOB`",
    ],
)
def test_a_wrong_line_would_be_found(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(click.ClickException):
        all_understood(command_lines(page), monkeypatch)


def all_understood(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for line in lines:
        understood(line, monkeypatch)


def test_pages_print_many_commands() -> None:
    assert len(LINES) > 90
    assert {path.stem for path in PAGES} >= {"README", "many-jobs", "packaging", "shell", "jax"}
