"""Schedules, templates, levels of the network and controllers, in a real browser before a real controller."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cli_cluster import DevCluster, until
from tests.e2e.web.hostile import CORPUS
from tests.e2e.web.visitor import Visitor

pytestmark = [pytest.mark.require("chromium"), pytest.mark.require("node")]
on_a_desktop = pytest.mark.parametrize("visitor", [("desktop", "light")], indirect=True, ids=["desktop"])
HOSTILE = "<img src=x onerror=ran(1)>"
JOB = {
    "displayName": f"nightly {HOSTILE}",
    "jobSpec": {"workerPoolSpecs": [{"replicaCount": 1, "processSpec": {"command": ["true"]}}]},
}
NIGHTLY = ("--cron", "30 2 * * MON-FRI", "--time-zone", "Europe/Berlin")


@pytest.fixture(params=[("desktop", "light"), ("phone", "dark")], ids="-".join)
def visitor(request: pytest.FixtureRequest, browser: Any, site: DevCluster) -> Iterator[Visitor]:
    made = Visitor(browser, site, *request.param)
    yield made
    made.context.close()


@pytest.fixture(scope="module")
def job_file(site: DevCluster) -> Path:
    path = site.dir.parent / "nightly.json"
    path.write_text(json.dumps(JOB))
    return path


@pytest.fixture
def schedule(site: DevCluster, job_file: Path) -> Iterator[str]:
    """One that is due at night, in the default project."""
    site.holdfast("schedule", "create", "nightly", str(job_file), *NIGHTLY)
    yield "nightly"
    site.holdfast("schedule", "remove", "nightly", check=False)


def printed(site: DevCluster, *command: str) -> Any:
    return json.loads(site.holdfast(*command, "-o", "json").stdout)


def cells(visitor: Visitor, caption: str) -> list[list[str]]:
    rows = visitor.page.get_by_role("group", name=caption, exact=True).locator("tbody tr").all()
    return [row.locator("td").all_inner_texts() for row in rows]


def test_schedules_and_templates_are_those_of_the_command_line(
    visitor: Visitor, site: DevCluster, schedule: str, job_file: Path
) -> None:
    site.holdfast("template", "create", "train", str(job_file))
    changed = job_file.with_name("changed.json")
    changed.write_text(json.dumps(JOB | {"displayName": "changed"}))
    site.holdfast("template", "create", "train", str(changed))
    visitor.visit("/schedules", "td")
    visitor.page.get_by_role("group", name="Templates", exact=True).locator("td").first.wait_for()
    listed = site.holdfast("schedule", "list").stdout.splitlines()
    told = printed(site, "schedule", "list")
    shown = cells(visitor, "Schedules")
    assert [row[:4] for row in shown] == [
        [each["name"], each["project"], each["owner"], each["cron"]] for each in told
    ]
    # The zone's name is the browser's: CET for the one, GMT+1 for the other.
    due = shown[0][4].rpartition(" ")[0]
    assert due in listed[1] and told[0]["nextRun"], (due, listed)
    assert shown[0][5:] == ["0", "–"]
    templates = printed(site, "template", "list")
    assert [row[:3] for row in cells(visitor, "Templates")] == [
        [f"{each['name']}@{each['version']}", each["project"], each["owner"]] for each in templates
    ]
    visitor.look("schedules")
    visitor.page.get_by_role("link", name="nightly").click()
    visitor.page.locator(".said").wait_for()
    assert json.loads(visitor.page.locator(".spec").inner_text()) == told_job(site, "schedule", "nightly")
    visitor.look("schedule")
    visitor.visit("/schedules?template=train&project=default", "details")
    assert visitor.page.locator("summary").all_inner_texts()[0].startswith("Version 2, ")
    assert json.loads(visitor.page.locator(".spec").first.inner_text()) == told_job(site, "template", "train")
    visitor.look("template")
    visitor.visit("/schedules?schedule=no-such&project=default", ".empty")
    visitor.look("no-schedule")
    site.holdfast("template", "remove", "train")


def told_job(site: DevCluster, kind: str, name: str) -> Any:
    return printed(site, kind, "show", name)[-1]["job"]


@on_a_desktop
def test_a_schedule_that_someone_else_pauses_is_shown_so_at_once(
    visitor: Visitor, site: DevCluster, schedule: str
) -> None:
    visitor.visit("/schedules", "td")
    visitor.page.wait_for_timeout(1500)  # its stream of changes is open
    asked: list[str] = []
    visitor.page.on("request", lambda request: asked.append(request.url))
    site.holdfast("schedule", "pause", "nightly")
    visitor.page.locator("td").filter(has_text="paused by admin").wait_for(timeout=20_000)
    assert any("/v1/schedules" in url for url in asked) and not any("/v1/hosts" in url for url in asked)


@on_a_desktop
def test_a_schedule_is_paused_resumed_and_removed_with_the_command_beside_it(
    visitor: Visitor, site: DevCluster, schedule: str
) -> None:
    page = visitor.page
    visitor.visit("/schedules?schedule=nightly&project=default", ".said")
    for act, command, then in (
        ("Pause", "holdfast schedule pause nightly", "paused by admin"),
        ("Resume", "holdfast schedule resume nightly", ":30 "),
    ):
        page.get_by_role("button", name=f"{act}…").click()
        dialog = page.get_by_role("dialog")
        assert command in dialog.inner_text()
        dialog.get_by_role("button", name=act, exact=True).click()
        page.locator(".said > div").first.filter(has_text=then).wait_for()
    page.get_by_role("button", name="Remove…").click()
    dialog = page.get_by_role("dialog")
    assert dialog.get_by_role("button", name="Remove", exact=True).is_disabled()
    dialog.get_by_role("textbox").fill("nightly")
    visitor.look("remove-schedule")
    dialog.get_by_role("button", name="Remove", exact=True).click()
    page.locator(".empty").wait_for()
    assert printed(site, "schedule", "list") == []


@on_a_desktop
def test_who_sees_another_project_alone_sees_none_of_them(
    visitor: Visitor, browser: Any, site: DevCluster, schedule: str, tmp_path: Path
) -> None:
    site.holdfast("user", "add", "elsa", "--role", "viewer", "--project", "speech")
    _, _, *words = shlex.split(site.holdfast("user", "token", "elsa").stdout)
    site.holdfast("login", *words, "--dir", str(tmp_path / "elsa"))
    elsa = Visitor(browser, site, "desktop", "light", {"HOLDFAST_CONFIG": str(tmp_path / "elsa/client.toml")})
    for path in ("/schedules", "/schedules?schedule=nightly&project=default"):
        elsa.visit(path, ".empty")
        assert "30 2 * * MON-FRI" not in elsa.page.locator("main table").all_inner_texts()
    elsa.context.close()
    site.holdfast("user", "remove", "elsa", "--yes", check=False)


@on_a_desktop
def test_texts_of_others_stay_texts(visitor: Visitor, site: DevCluster, schedule: str) -> None:
    texts = itertools.cycle(CORPUS)

    def hostile(found: Any) -> Any:
        each = found["schedules"][0]
        fields = ("project", "name", "owner", "cron", "timeZone", "pausedBy", "leftOut")
        rows = [each | {key: next(texts) for key in fields} | {"nextRun": None} for _ in CORPUS]
        return {"schedules": rows, "nextPageToken": ""}

    def kept(found: Any) -> Any:
        row = {"version": 1, "updateTime": None, "job": {"displayName": CORPUS[0], "jobSpec": {"x": CORPUS}}}
        fields = ("project", "name", "owner", "updatedBy")
        return {"templates": [row | {key: next(texts) for key in fields} for _ in CORPUS], "nextPageToken": ""}

    visitor.answer("/v1/schedules", hostile)
    visitor.answer("/v1/templates", kept)
    for path, shows in (
        ("/schedules", "td"),
        ("/schedules?schedule=nightly&project=default", ".said"),
        ("/schedules?template=x", "details"),
    ):
        visitor.visit(path, shows)
        visitor.unbroken(path)


def test_levels_of_the_network_say_what_is_free_within_each(visitor: Visitor, site: DevCluster) -> None:
    """The levels are the controller's own setting; the labels are made up, as agents keep theirs."""
    settings = site.dir / "controller.toml"
    before = settings.read_text()
    settings.write_text(f'topology = ["pod", "rack"]\n{before}')
    try:
        os.kill(int((site.dir / "controller.pid").read_text()), signal.SIGHUP)
        visitor.answer("/v1/hosts", racked)
        told = racked(json.loads(site.holdfast("host", "list", "-o", "json").stdout))["hosts"]
        visitor.page.goto(f"{visitor.base}/hosts")
        until(lambda: printed(site, "status")["topology"] == ["pod", "rack"], what="for the setting")
        visitor.visit("/hosts", ".network td")
        gpus = [sum(not each["jobId"] for each in host["gpus"]) for host in told]
        shown = [row[:4] for row in cells(visitor, "Levels of the network")]
        assert shown == [
            ["pod", "p1", "2/2", f"{sum(gpus)}/4"],
            ["rack", "p1 / r1", "1/1", f"{gpus[0]}/2"],
            ["rack", "p1 / r2", "1/1", f"{gpus[1]}/2"],
        ]
        visitor.look("network")
    finally:
        settings.write_text(before)
        os.kill(int((site.dir / "controller.pid").read_text()), signal.SIGHUP)


def racked(found: Any) -> Any:
    """The hosts as if each was in a rack of its own."""
    hosts = found["hosts"] if isinstance(found, dict) else found
    return {
        "hosts": [host | {"labels": {"pod": "p1", "rack": f"r{n}"}} for n, host in enumerate(hosts, 1)],
        "nextPageToken": "",
    }


def test_controllers_are_told_with_what_would_hurt_at_a_failover(visitor: Visitor, site: DevCluster) -> None:
    told = printed(site, "status")
    visitor.visit("/admin", ".controllers p")
    panel = visitor.page.locator(".controllers")
    panel.get_by_text(f"Release {told['version']}, term {told['epoch']}").wait_for()
    assert told["leadership"] is None and "the only one" in panel.inner_text()
    standbys = [
        {"machine": "ctl2", "behindEvents": 12, "differingSettings": ""},
        {"machine": f"ctl3 {HOSTILE}", "behindEvents": 5_000, "differingSettings": "quotas+1"},
    ]
    leadership: dict[str, Any] = {
        "database": "PostgreSQL database h at db1",
        "leader": "ctl1",
        "risk": "No replica is synchronous.",
    }
    leadership |= {"standbys": [each["machine"] for each in standbys], "standbyDetails": standbys}
    visitor.answer("/v1/status", lambda status: status | {"leadership": leadership})
    visitor.visit("/admin", ".controllers td")
    assert [row[:2] for row in cells(visitor, "Controllers")] == [
        ["ctl1", "leads"],
        ["ctl2", "stands by"],
        [f"ctl3 {HOSTILE}", "stands by"],
    ]
    assert "5,000 events, read first" in panel.inner_text() and "quotas+1" in panel.inner_text()
    assert "No replica is synchronous." in panel.inner_text()
    visitor.look("controllers")
    visitor.answer("/v1/status", lambda status: status | {"leadership": leadership | {"standbyDetails": []}})
    visitor.visit("/admin", ".controllers td")
    assert "None stands by" in panel.inner_text()
