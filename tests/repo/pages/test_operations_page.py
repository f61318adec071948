"""Whatever the runbook says to type can be typed: commands, options and values are those that the programs take."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from tests.support.printed_commands import PROGRAMS, understood

DOCS = Path(__file__).parents[3] / "docs/admins"
PAGE = (DOCS / "operations.md").read_text()
SECTIONS = """
Install, join | Users and accounts | Watch | Diagnose a host | Upgrade | Maintenance
Fair share | Reservations | Message of the day | Why a host was down
Faulty GPUs | Hosts that fail too often | Back up | Restore
The controller's database is damaged | Move the controller | The controller's disk is lost | The CA's key is lost
Rotate the CA
Rotate the key of secrets | Replace a host under its name | Investigate a hang | Withheld shares and fences
What is kept, and for how long | A disk is full | Report a fault
"""


def blocks() -> list[str]:
    return re.findall(r"^```\n(.*?)^```$", PAGE, re.M | re.S)


def lines() -> list[str]:
    """Of the code blocks, and between backticks in the text."""
    outside = re.sub(r"^```\n.*?^```$", "", PAGE, flags=re.M | re.S)
    written = [line for block in blocks() for line in block.splitlines()] + re.findall(r"`([^`\n]+)`", outside)
    return list(dict.fromkeys(line for line in written if line.split()[1:] and line.split()[0] in PROGRAMS))


@pytest.mark.parametrize("line", lines())
def test_what_the_page_says_to_type_is_understood(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    understood(line, monkeypatch)


@pytest.mark.parametrize(
    "line",
    [
        "holdfast job hang JOB",
        "holdfast host drain",
        "holdfast host drain gpu-01 --by 22:00",
        "holdfast host drain gpu-01 --at noon",
        "holdfast host drain gpu-[03-01]",
        "holdfast-controller ca rotate --begin",
        "holdfast-controller ca turn",
        "holdfast-controller backup",
        "holdfast-controller restore FILE --from DIR",
        "holdfast-agent upgrade during",
        "holdfast-agent join ctl.lab:7444 --token hft-…",
    ],
)
def test_a_wrong_line_would_be_found(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises((click.ClickException, SystemExit)):
        understood(line, monkeypatch)


def test_the_page_names_commands_of_all_programs() -> None:
    assert {line.split()[0] for line in lines()} == set(PROGRAMS)
    assert len(lines()) > 60


def test_every_occasion_has_its_section() -> None:
    found = re.findall(r"^## (.+)$", PAGE, re.M)
    assert [word.strip() for row in SECTIONS.strip().splitlines() for word in row.split("|")] == found


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)]+)\)", PAGE))))
def test_links_lead_somewhere(link: str) -> None:
    name, _, anchor = link.partition("#")
    target = (DOCS / name).resolve() if name else DOCS / "operations.md"
    assert target.exists()
    headings = re.findall(r"^#+ (.+)$", target.read_text(), re.M)
    anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert not anchor or anchor in anchors
