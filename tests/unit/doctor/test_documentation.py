"""The page about the doctor names every check that there is."""

from __future__ import annotations

from pathlib import Path

from tests.unit.doctor.cases import CASES

PAGE = Path(__file__).parents[3] / "docs/admins/doctor.md"


def test_every_check_has_a_row_on_the_page() -> None:
    page = PAGE.read_text()
    known = {"settings.file", "controller.caller", *(case.check for case in CASES)}
    missing = []
    for check in sorted(known):
        area, _, name = check.partition(".")
        rows = [line for line in page.splitlines() if line.startswith(f"| `{area}.")]
        if not any(f"`{check}`" in row or f"`.{name}`" in row for row in rows):
            missing.append(check)
    assert missing == []
