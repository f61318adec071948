"""The page before what is large or lasts long: what a tab holds doesn't grow, and all that there is can be reached."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from tests.e2e.cli_cluster import DevCluster
from tests.e2e.web.visitor import Visitor

pytestmark = [pytest.mark.require("chromium"), pytest.mark.require("node")]

RELAUNCHES = 600
DAYS = 90


@pytest.fixture
def visitor(browser: Any, site: DevCluster) -> Any:
    found = Visitor(browser, site, "desktop", "light")
    yield found
    found.context.close()


@pytest.fixture(scope="module")
def job_id(site: DevCluster) -> str:
    return str(site.holdfast("run", "--detach", "--", "sleep", "600").stdout.strip())


def relaunched(job: dict[str, Any]) -> dict[str, Any]:
    """The job as if it had run for 90 days, and had been relaunched 600 times."""
    end = datetime.datetime.now(datetime.UTC)
    begin, step = end - datetime.timedelta(days=DAYS), datetime.timedelta(days=DAYS / (RELAUNCHES + 1))

    def at(number: int, seconds: float) -> str:
        moment = begin + number * step + datetime.timedelta(seconds=seconds)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    recoveries = [
        {
            "attempt": 1,
            "generation": number + 1,
            "startedAt": at(number, 10),
            "endedAt": at(number, 60),
            "startType": "RESTARTED",
            "endReason": "SIGNALED",
            "endRelatedTask": "workerpool0-0 rank 0",
            "endRecover": "PROC_RESTART",
            "lostSeconds": 60,
            "phases": {"detect": 10, "diagnose": 0, "stop": 10, "start": 40, "catchUp": None},
            "related": None,
        }
        for number in range(1, RELAUNCHES + 1)
    ]
    return job | {
        "createTime": at(0, 0),
        "startTime": at(0, 5),
        "generation": RELAUNCHES + 1,
        "recoveries": recoveries,
    }


def wide(job: dict[str, Any]) -> dict[str, Any]:
    """The job as if it ran on 1,024 hosts and rank 4,242 had failed; for the tab of ranks its workers alone."""
    if "workers" in job:
        workers = [
            job["workers"][0]
            | {
                "name": f"workerpool0-{number}",
                "host": f"node-{number}",
                "ranks": [
                    {"rank": 8 * number + local, "localRank": local, "pid": 100 + local, "binding": None}
                    for local in range(8)
                ],
            }
            for number in range(1024)
        ]
        return {"workers": workers}
    failed = {
        "attempt": 1,
        "generation": job["generation"],
        "rank": 4242,
        "exitCode": 1,
        "signal": None,
        "coreDumped": False,
        "reason": "NONZERO_EXIT",
        "message": "exited with code 1",
        "endTime": job["startTime"],
        "lateExit": None,
        "raised": None,
    }
    group = {"first": failed, "ranks": "4242", "count": 1, "lastEndTime": job["startTime"]}
    return job | {"hostCount": 1024, "exitGroups": [group]}


def counted(visitor: Visitor) -> dict[str, int]:
    """Nodes and listeners of the page, garbage left out."""
    tools = visitor.context.new_cdp_session(visitor.page)
    tools.send("HeapProfiler.collectGarbage")
    found: dict[str, int] = tools.send("Memory.getDOMCounters")
    tools.detach()
    return found


def test_a_job_of_ninety_days_and_six_hundred_relaunches_is_drawn_with_few_parts(
    visitor: Visitor, job_id: str
) -> None:
    page = visitor.page
    visitor.answer(f"/v1/jobs/{job_id}", relaunched)
    visitor.visit(f"/jobs/{job_id}", ".strip g > rect")
    held = counted(visitor)
    assert held["nodes"] < 7_000
    assert held["jsEventListeners"] < 150
    assert page.locator(".strip .mark").count() < 400
    visitor.look("job-of-ninety-days")
    page.goto(f"{visitor.base}/jobs/{job_id}?tab=recoveries")
    page.get_by_role("button", name="Show 300 more").wait_for()
    assert page.locator("[data-tab=recoveries] tbody tr").count() == 300
    page.get_by_role("button", name="Show 300 more").click()
    page.locator("[data-tab=recoveries] tbody tr").nth(RELAUNCHES - 1).wait_for()


def test_of_thousands_of_ranks_those_that_differ_come_first(visitor: Visitor, job_id: str) -> None:
    """The page asks for its members on the tab of ranks alone, and draws those that are in sight."""
    page, asked = visitor.page, []
    page.on("request", lambda request: asked.append(request.url) if f"/v1/jobs/{job_id}?" in request.url else None)
    visitor.answer(f"/v1/jobs/{job_id}", wide)
    visitor.visit(f"/jobs/{job_id}", ".strip g > rect")
    assert asked
    assert all("withoutWorkers=true" in url and "foldExits=true" in url for url in asked)
    assert counted(visitor)["nodes"] < 1_500
    page.goto(f"{visitor.base}/jobs/{job_id}?tab=ranks")
    rows = page.locator("[data-tab=ranks] .row:not(.head)")
    rows.filter(has_text="rank 4242").wait_for()
    assert rows.first.inner_text().startswith("rank 4242")
    assert "NONZERO_EXIT" in rows.first.inner_text()
    assert rows.nth(1).inner_text().startswith("rank 0")
    assert rows.count() < 60
    page.locator("[data-tab=ranks] dd", has_text="NONZERO_EXIT: exited with code 1: 4242").wait_for()
    page.locator("[data-tab=ranks] dd", has_text="running: 0-4241, 4243-8191").wait_for()
    assert counted(visitor)["nodes"] < 2_500
    visitor.look("job-of-8192-ranks")


def test_a_click_on_the_timeline_says_what_is_there(visitor: Visitor, job_id: str) -> None:
    visitor.answer(f"/v1/jobs/{job_id}", relaunched)
    visitor.visit(f"/jobs/{job_id}", ".strip g > rect")
    box = visitor.page.locator(".strip svg").bounding_box()
    visitor.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 50)
    visitor.page.locator(".picked", has_text="generation").wait_for()


def test_an_open_page_holds_no_more_after_many_changes(visitor: Visitor) -> None:
    """The stream of changes is cut each time, so that all is asked for again a second later, of a clock of its own."""
    page = visitor.page
    cut = {"status": 200, "content_type": "text/event-stream", "body": ": nothing yet\n\n"}
    page.clock.install()
    page.route("**/v1/changes*", lambda route: route.fulfill(**cut))
    for path, shows in (("/", ".summary"), ("/jobs", ".joblist .row")):
        visitor.visit(path, shows)
        asked: list[str] = []
        page.on("response", lambda answer, asked=asked: asked.append(answer.url))
        counts = []
        for upto in (30, 110):
            while len(asked) < upto:
                page.clock.run_for(1000)
                page.wait_for_timeout(20)
            counts.append(counted(visitor))
        more = counts[1]["jsEventListeners"] - counts[0]["jsEventListeners"]
        assert more < 25, f"{path}: {more} listeners more after {upto} answers"
        assert counts[1]["nodes"] < counts[0]["nodes"] + 200
