"""Reserved hosts and quotas, in a real browser before a real controller, as the command line prints them."""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cli_cluster import DevCluster, until
from tests.e2e.web.hostile import CORPUS
from tests.e2e.web.visitor import Visitor

pytestmark = [pytest.mark.require("chromium"), pytest.mark.require("node")]
on_a_desktop = pytest.mark.parametrize("visitor", [("desktop", "light")], indirect=True, ids=["desktop"])


@pytest.fixture(params=[("desktop", "light"), ("phone", "dark")], ids="-".join)
def visitor(request: pytest.FixtureRequest, browser: Any, site: DevCluster) -> Iterator[Visitor]:
    made = Visitor(browser, site, *request.param)
    yield made
    made.context.close()


@pytest.fixture
def reserved(site: DevCluster) -> Iterator[None]:
    """One host is reserved for vision now, the other one for speech from tomorrow on, and projects are limited."""
    create = ("reservation", "create")
    site.holdfast(
        *create, "demo", "--project", "vision", "--hosts", "host-1", "--for", "8h", "--reason", "the fair"
    )
    site.holdfast(*create, "later", "--project", "speech", "--gpus", "2", "--from", "+24h", "--for", "2h")
    site.holdfast("quota", "set", "--project", "vision", "--gpus", "2", "--max-priority", "2")
    site.holdfast("quota", "set", "--user", "admin", "--waiting", "7")
    yield
    for name in ("demo", "later"):
        site.holdfast("reservation", "delete", name, check=False)
    site.holdfast("quota", "clear", "--project", "vision")
    site.holdfast("quota", "clear", "--user", "admin")


def printed(site: DevCluster, *command: str) -> Any:
    return json.loads(site.holdfast(*command, "-o", "json").stdout)


def cells(visitor: Visitor, caption: str) -> list[list[str]]:
    table = visitor.page.get_by_role("group", name=caption, exact=True)
    table.locator("td").first.wait_for()
    return [row.locator("td").all_inner_texts() for row in table.locator("tbody tr").all()]


def of_a_phone(rows: list[list[str]]) -> list[list[str]]:
    """Cells without the titles that they have as cards."""
    return [[cell.split("\n")[-1] for cell in row] for row in rows]


def test_reservations_are_those_of_the_command_line(visitor: Visitor, site: DevCluster, reserved: None) -> None:
    listed = site.holdfast("reservation", "list").stdout.splitlines()
    told = printed(site, "reservation", "list")
    for path, shown in (("/hosts", "hosts-reserved"), ("/", "overview-reserved")):
        visitor.visit(path, ".reservations td")
        rows = of_a_phone(cells(visitor, "Reservations"))
        assert [row[:2] for row in rows] == [[each["name"], each["project"]] for each in told]
        for row, line in zip(rows, listed[1:], strict=True):
            assert row[2] in line and row[3] in line, (row, line)
        assert [row[4].partition(":")[0] for row in rows] == ["1 host", "1 host"]
        assert all(name in row[4] for row, each in zip(rows, told, strict=True) for name in each["chosenHosts"])
        assert rows[0][8].startswith("no job of projects other than vision starts there, but SPOT jobs")
        assert "the fair, by admin" in rows[0][8]
        visitor.look(shown)


def test_a_reserved_host_says_so_on_its_page(visitor: Visitor, site: DevCluster, reserved: None) -> None:
    visitor.visit("/hosts/host-1", ".said")
    said = visitor.page.locator(".said > div", has_text="for vision until ")
    said.wait_for()
    assert said.locator("dt").inner_text() == "Reserved" and "(demo: the fair)" in said.inner_text()
    visitor.look("host-reserved")


@on_a_desktop
def test_a_reservation_that_others_make_and_delete_is_shown_so_at_once(visitor: Visitor, site: DevCluster) -> None:
    visitor.visit("/hosts", ".reservations p")
    visitor.page.wait_for_timeout(1500)  # its stream of changes is open
    made = ("reservation", "create", "demo", "--project", "vision", "--count", "1", "--for", "1h")
    site.holdfast(*made)
    visitor.page.locator(".reservations td", has_text="demo").first.wait_for(timeout=20_000)
    site.holdfast("reservation", "delete", "demo")
    visitor.page.get_by_text("No host is kept for a project or a user.").wait_for(timeout=20_000)


@on_a_desktop
def test_a_reservation_is_deleted_with_the_command_beside_it(
    visitor: Visitor, site: DevCluster, reserved: None
) -> None:
    visitor.visit("/hosts", ".reservations td")
    visitor.page.locator(".reservations tr", has_text="demo").get_by_role("button", name="Delete…").click()
    dialog = visitor.page.get_by_role("dialog")
    assert "holdfast reservation delete demo" in dialog.inner_text()
    visitor.look("delete-reservation")
    dialog.get_by_role("button", name="Delete", exact=True).click()
    visitor.page.locator(".reservations td", has_text="demo").first.wait_for(state="detached")
    assert [each["name"] for each in printed(site, "reservation", "list")] == ["later"]


def test_quotas_are_those_of_the_command_line(visitor: Visitor, site: DevCluster, reserved: None) -> None:
    made = site.detach("--project", "vision", "--gpus", "1", "--", "sleep", "600")
    until(
        lambda: '"JOB_STATE_RUNNING"' in site.holdfast("job", "show", made, "-o", "json").stdout, what=f"for {made}"
    )
    told = printed(site, "quota", "list")
    visitor.visit("/admin", "table")
    rows = of_a_phone(cells(visitor, "Quotas"))
    assert [row[0] for row in rows] == [
        f"user/{each['user']}" if each["user"] else f"project/{each['project']}" for each in told
    ]
    for row, each in zip(rows, told, strict=True):
        for cell, field in zip(row[1:4], ("gpus", "runningJobs", "waitingJobs"), strict=True):
            most = each["limits"][field]
            assert cell.removesuffix(" (full)") == (
                str(each[field]) if most is None else f"{each[field]} of {most}"
            )
    assert rows[0] == ["project/vision", "1 of 2", "1", "0", "2", "GPUs, priority"]
    visitor.look("quotas")
    site.holdfast("cancel", made)


@on_a_desktop
def test_who_sees_another_project_alone_sees_the_hosts_and_not_for_whom(
    visitor: Visitor, browser: Any, site: DevCluster, reserved: None, tmp_path: Path
) -> None:
    site.holdfast("user", "add", "elsa", "--role", "viewer", "--project", "other")
    _, _, *words = shlex.split(site.holdfast("user", "token", "elsa").stdout)
    site.holdfast("login", *words, "--dir", str(tmp_path / "elsa"))
    elsa = Visitor(browser, site, "desktop", "light", {"HOLDFAST_CONFIG": str(tmp_path / "elsa/client.toml")})
    elsa.visit("/hosts", ".reservations td")
    shown = elsa.page.locator(".reservations").inner_text()
    assert "host-1" in shown and "vision" not in shown and "the fair" not in shown
    elsa.page.locator(".reservations tr", has_text="demo").get_by_role("button", name="Delete…").click()
    elsa.page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    assert elsa.page.locator(".refused").inner_text()
    elsa.wrong.clear()  # the browser's own line about a 403
    elsa.visit("/admin", "table")
    assert "project/vision" not in elsa.page.locator("main").inner_text()
    elsa.context.close()
    site.holdfast("user", "remove", "elsa", "--yes", check=False)
    assert [each["name"] for each in printed(site, "reservation", "list")] == ["demo", "later"]


@on_a_desktop
def test_texts_of_others_stay_texts(visitor: Visitor, site: DevCluster, reserved: None) -> None:
    texts = itertools.cycle(CORPUS)

    def hostile(found: Any) -> Any:
        each = found["reservations"][0]
        fields = ("name", "project", "gpuType", "reason", "createdBy", "lack")
        made = [
            each
            | {key: next(texts) for key in fields}
            | {"chosenHosts": ["host-1", next(texts)], "hosts": [next(texts)], "labels": {next(texts): next(texts)}}
            for _ in CORPUS
        ]
        return {"reservations": made}

    def limited(found: Any) -> Any:
        each = found["quotas"][0]
        return {"quotas": [each | {"project": text} for text in CORPUS]}

    visitor.answer("/v1/reservations", hostile)
    visitor.answer("/v1/quotas", limited)
    for path, shows in (
        ("/hosts", ".reservations td"),
        ("/", ".reservations td"),
        ("/hosts/host-1", ".said"),
        ("/admin", "td"),
    ):
        visitor.visit(path, shows)
        visitor.page.wait_for_timeout(500)
        visitor.unbroken(path)
