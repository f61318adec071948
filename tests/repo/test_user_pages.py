"""Whatever the pages for users say to type can be typed: commands, options and values are those that programs take."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from tests.support.printed_commands import command_lines, understood

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *(path for path in sorted((ROOT / "docs/users").rglob("*.md")) if path.name != "cli.md"),  # drawn from the code
]
NO_COMMANDS = ("holdfast run ...", "holdfast login …")
"""What stands for any command of the kind."""
LINES = [(path.stem, line) for path in PAGES for line in command_lines(path.read_text()) if line not in NO_COMMANDS]
PROSE = {
    "holdfast run",
    "holdfast job show",
    "holdfast host show",
    "holdfast host fence",
    "holdfast logs",
    "holdfast job events",
    "holdfast submit --script",
    "holdfast run --package",
    "holdfast run --pty",
    "holdfast run --restart-on-hang",
    "holdfast hang replay",
    "holdfast user remove",
    "holdfast job show -o json",
}
"""Commands that a text speaks of, without what they act on."""


@pytest.mark.parametrize(("page", "line"), [each for each in LINES if each[1] not in PROSE])
def test_what_a_page_says_to_type_is_understood(page: str, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    understood(line, monkeypatch)


@pytest.mark.parametrize("line", sorted(PROSE))
def test_what_a_text_speaks_of_is_a_command(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert line in {each for _, each in LINES}, "no page speaks of it any more"
    with pytest.raises(click.ClickException) as refused:
        understood(line, monkeypatch)
    lacks = ("Missing argument", "requires an argument")
    assert any(word in refused.value.format_message() for word in lacks), refused.value


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
