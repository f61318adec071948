"""What is wrong with hosts and jobs, on the page: findings, silence, unused GPUs, saves, arrays, shares."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cli_cluster import DevCluster, until
from tests.e2e.web.trouble import ill, past
from tests.e2e.web.visitor import Visitor

pytestmark = [pytest.mark.require("chromium"), pytest.mark.require("node")]

SAVING = """
import holdfast, time
for step in range(1, 10_000):
    time.sleep(0.5)
    holdfast.progress(step, total=10_000)
    if step in (4, 8):
        with holdfast.saving(step):
            time.sleep(0.2)
"""
SCREENS = [("desktop", "light"), ("desktop", "dark"), ("phone", "dark"), ("phone", "light")]


@pytest.fixture(params=[("desktop", "light"), ("phone", "dark")], ids="-".join)
def visitor(request: pytest.FixtureRequest, browser: Any, site: DevCluster) -> Iterator[Visitor]:
    made = Visitor(browser, site, *request.param)
    yield made
    made.context.close()


on_a_desktop = pytest.mark.parametrize("visitor", [("desktop", "light")], indirect=True, ids=["desktop"])
on_every_screen = pytest.mark.parametrize("visitor", SCREENS, indirect=True, ids="-".join)


@on_every_screen
def test_a_host_says_what_is_bad_of_it_what_was_done_and_what_ends_it(visitor: Visitor) -> None:
    visitor.answer("/v1/hosts/host-0", ill)
    visitor.answer("/v1/hosts/host-0/events", past)
    visitor.visit("/hosts/host-0", ".finding")
    findings = visitor.page.locator(".finding")
    first = findings.nth(0).inner_text()
    assert "cordon" in first and "It gets no new work; what runs there runs on" in first
    assert "holdfast host uncordon host-0" in first and "mlxlink -d mlx5_3:1" in first
    assert "work goes there as before" in findings.nth(1).inner_text()
    assert "waived by an admin" in findings.nth(2).inner_text()
    assert "a common cause?" in findings.nth(3).inner_text()
    assert "no one was notified" in findings.nth(4).inner_text()
    assert "holdfast host uncordon host-0 --gpu 0" in findings.nth(5).inner_text()
    health = visitor.page.locator(".health").inner_text()
    assert "MTBF 12d (5d-40d), MTTR 41m (17m-2h)" in health and "holdfast host uncordon host-0 --repaired" in health
    over = visitor.page.locator("tr").filter(has_text="ib.flaps/mlx5_3:1")
    assert "degraded" in over.first.inner_text()
    visitor.look("host-ill")


@on_a_desktop
def test_a_host_that_is_well_says_so(visitor: Visitor) -> None:
    visitor.answer("/v1/hosts/host-0", lambda host: host | {"failedChecks": []})
    visitor.visit("/hosts/host-0", ".health")
    assert "Every check passes" in visitor.page.locator(".health").inner_text()


def test_what_needs_you_has_unused_gpus_and_the_command_that_ends_a_cordon(
    visitor: Visitor, site: DevCluster
) -> None:
    unused = {
        "kind": "UNDERUSED",
        "subject": "job/train-x7k2mq",
        "message": "uses 3 of 8 GPUs: 5 below 5 % since 09:31:09 UTC; it is paused once none was used for 2 h",
        "since": None,
    }
    site.holdfast("host", "cordon", "host-1", "--reason", "new fan: holdfast host fence host-0")
    visitor.answer("/v1/status", lambda status: status | {"attention": [*status["attention"], unused]})
    visitor.visit("/", ".attention li")
    listed = visitor.page.locator(".attention li")
    cordoned = listed.filter(has_text="new fan")
    assert [each.inner_text() for each in cordoned.locator("code").all()] == ["holdfast host uncordon host-1"]
    assert "uses 3 of 8 GPUs" in listed.filter(has_text="train-x7k2mq").inner_text()
    visitor.look("needs-you")
    site.holdfast("host", "uncordon", "host-1")


def test_saves_are_marks_of_the_timeline(visitor: Visitor, site: DevCluster, tmp_path: Path) -> None:
    program = tmp_path / "saves.py"
    program.write_text(SAVING)
    made = site.detach("--gpus", "1", "--name", "saves", "--", sys.executable, str(program))
    told: list[Any] = []

    def saved() -> bool:
        told[:] = json.loads(site.holdfast("goodput", made, "-o", "json").stdout)["saves"]
        return [save["step"] for save in told] == [4, 8]

    until(saved, what="for two saves")
    visitor.visit(f"/jobs/{made}", ".strip .mark.m-save")
    marks = visitor.page.locator(".strip .mark.m-save title")
    assert marks.evaluate_all("all => all.map(each => each.textContent)") == [
        "step 4 was saved",
        "step 8 was saved",
    ]
    assert visitor.page.locator("tr").filter(has_text="step 8 was saved").count() == 1, "the table's twin"
    visitor.look("job-saves")
    site.holdfast("cancel", made)
    site.holdfast("wait", made, check=False)
    ended = json.loads(site.holdfast("goodput", made, "-o", "json").stdout)["saves"]
    assert ended == told, "also once the job has ended"


@on_a_desktop
def test_an_array_is_one_row_that_opens_to_its_elements(visitor: Visitor, site: DevCluster) -> None:
    name = f"sweep-{secrets.token_hex(4)}"  # of its own: another try of this test must not find this one's
    array = site.detach("--name", name, "--array", "1-4%2", "--", "sleep", "600")
    try:
        until(
            lambda: (
                json.loads(site.holdfast("job", "show", f"{array}-1", "-o", "json").stdout)["array"]["running"] == 2
            )
        )
        visitor.visit(f"/jobs?q={name}", ".joblist .row:not(.head)")
        rows = visitor.page.locator(".joblist .row:not(.head)")
        assert rows.count() == 1
        line = next(line for line in site.holdfast("ps").stdout.splitlines() if array in line)
        word = rows.locator(".word").inner_text()
        assert word == "Array of 4 jobs, 2 at once: 2 running, 2 waiting, 0 done, 0 failed" and word[:40] in line
        visitor.look("jobs-array")
        rows.locator(".names a").click()
        visitor.page.wait_for_url(f"**/jobs?array={array}")
        visitor.page.get_by_role("status").filter(has_text="4 jobs").wait_for()
        assert visitor.page.locator(f".joblist a[href='/jobs/{array}-3']").count() == 1
        visitor.look("jobs-of-an-array")
        visitor.visit(f"/jobs/{array}-1", ".about")
        assert "element 1 of an array of 4 jobs, 2 at once" in visitor.page.locator(".about").inner_text()
    finally:
        site.holdfast("cancel", array)


def runs(site: DevCluster, job: str) -> None:
    """Wait until the job runs, by the command line: the browser has the thread's event loop."""
    until(
        lambda: '"JOB_STATE_RUNNING"' in site.holdfast("job", "show", job, "-o", "json").stdout, what=f"for {job}"
    )


def test_shares_are_those_of_the_command_line(visitor: Visitor, site: DevCluster) -> None:
    made = site.detach("--gpus", "1", "--", "sleep", "600")
    runs(site, made)
    visitor.visit("/admin", "table")
    table = visitor.page.get_by_role("group", name="Shares and quotas of projects")
    table.locator("td").first.wait_for()
    told = json.loads(site.holdfast("shares", "-o", "json").stdout)["shares"]
    shown = [
        [cell.inner_text().split("\n")[-1] for cell in row.locator("td > div").all()]
        for row in table.locator("tbody tr").all()
    ]
    assert [row[:4] for row in shown] == [
        [each["project"], str(each["gpus"]), str(each["running"]), str(each["waiting"])] for each in told
    ]
    site.holdfast("cancel", made)


def test_certificates_and_notifications_are_those_of_the_command_line(visitor: Visitor, site: DevCluster) -> None:
    visitor.answer("/v1/status", undelivered)
    visitor.visit("/admin", "table")
    table = visitor.page.get_by_role("group", name="Certificates", exact=True)
    table.locator("td").first.wait_for()
    told = json.loads(site.holdfast("status", "-o", "json").stdout)
    ends = {each["name"]: each["end"] for each in told["certificates"]}
    assert set(ends) == {"own", "ca"}
    for end, of in ((ends["own"], "the controller"), (ends["ca"], "the cluster's CA")):
        text = visitor.page.evaluate("at => new Date(at).toTimeString().slice(0, 8)", end)
        assert text in table.locator("tr", has_text=of).inner_text()
    page = visitor.page.locator("main").inner_text()
    assert "3 delivered, 2 waiting, 1 receiver out of reach" in page and "it answered with HTTP status 500" in page
    visitor.look("admin")


def undelivered(status: dict[str, Any]) -> dict[str, Any]:
    """The status with a receiver that is out of reach."""
    given_up = [{"to": "ops", "count": 7, "reason": "it answered with HTTP status 500"}]
    return status | {"deliveries": {"waiting": 2, "delivered": 3, "failing": 1, "givenUp": given_up}}


@on_a_desktop
def test_a_silent_host_says_what_comes_and_when(visitor: Visitor, site: DevCluster, browser: Any) -> None:
    def state() -> Any:
        return json.loads(site.holdfast("host", "show", "host-1", "-o", "json").stdout)

    made = site.detach("--replicas", "2", "--gpus", "2", "--", "sleep", "600")
    try:
        runs(site, made)
        site.kill_agent("host-1")
        until(lambda: state()["state"] == "SUSPECT", 90, "for the silence")
        visitor.visit("/hosts/host-1", ".silent")
        phone = Visitor(browser, site, "phone", "dark")
        phone.visit("/hosts/host-1", ".silent")
        told = state()
        assert told["lostAt"] is not None
        due = visitor.page.evaluate("at => new Date(at).toTimeString().slice(0, 8)", told["lostAt"])
        comes = visitor.page.locator(".moments .comes")
        assert due in comes.first.inner_text() and "it is taken as lost, in " in comes.first.inner_text()
        assert "holdfast host fence host-1" in visitor.page.locator(".silent").inner_text()
        here = visitor.page.get_by_role("group", name="Jobs on this host")
        here.locator("tr", has_text="running").get_by_text("host-1").wait_for()  # the job's own words about it
        for each in (visitor, phone):
            each.look("host-silent")
        phone.context.close()
        until(lambda: state()["state"] == "LOST", 120, "for the lease's end")
        visitor.page.locator(".moments").get_by_text("it was taken as lost").wait_for()
        assert state()["lostAt"] is None
        visitor.look("host-lost")
        site.restart()
        visitor.page.locator(".silent").wait_for(state="detached")
    finally:
        site.restart()
        site.holdfast("cancel", made)
