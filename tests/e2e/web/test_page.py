"""The web page in a real browser, before a real controller: what it shows, what it refuses to run, how it is used."""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from tests.e2e.cli_cluster import DevCluster, until
from tests.e2e.web.charts import charted, long_ago
from tests.e2e.web.hostile import CORPUS
from tests.e2e.web.hostile_answers import SHARE, evidence_lines, hostile, listed, output_lines, whole
from tests.e2e.web.trouble import ill, past
from tests.e2e.web.visitor import Visitor

pytestmark = [pytest.mark.require("chromium"), pytest.mark.require("node")]

HOSTILE = "<img src=x onerror=ran(1)><script>ran(2)</script>\"'&lt;{{7*7}} 训练 🚀 שלום"
PRINTED = (
    r"\033[31mred\033[0m <svg onload=ran(3)> \033]0;title\007\033]8;;https://evil.example\033\\link\033]8;;\033\\"
    r" \033[2J\033[6n javascript:ran(4)"
)
POOL = {
    "replicaCount": 1,
    "machineSpec": {"acceleratorCount": 1},
    "processSpec": {"command": ["sh", "-c", f"printf '{PRINTED}\\n'; sleep 600"]},
}
CLOSES_AND_TYPES = """
() => {
    const within = document.querySelector("dialog button");
    within.focus();
    within.closest("dialog").close();
    within.dispatchEvent(new KeyboardEvent("keydown", {key: "/", bubbles: true, cancelable: true}));
}
"""
TABS = ("timeline", "ranks", "logs", "exits", "hangs", "recoveries", "events", "spec", "shell")


@pytest.fixture(scope="module")
def jobs(site: DevCluster) -> dict[str, str]:
    """A job that runs, one that waits for GPUs that no host has free, and one that failed; by what they do."""
    many = {"replicaCount": 1, "machineSpec": {"acceleratorCount": 2}, "processSpec": {"command": ["sleep", "600"]}}
    specs: dict[str, dict[str, Any]] = {
        "runs": {"workerPoolSpecs": [POOL]},
        "waits": {"workerPoolSpecs": [many] * 2},
        "failed": {
            "workerPoolSpecs": [
                {"replicaCount": 1, "processSpec": {"command": [sys.executable, "-c", "raise ValueError"]}}
            ]
        },
    }
    made = {}
    for name, spec in specs.items():
        file = site.dir.parent / f"web-{name}.json"
        labels = {"team": "vision", "kind": name}
        file.write_text(json.dumps({"displayName": f"{name} {HOSTILE}"[:128], "labels": labels, "jobSpec": spec}))
        made[name] = site.holdfast("submit", str(file)).stdout.strip()
    states = {"runs": "RUNNING", "waits": "QUEUED", "failed": "FAILED"}
    until(lambda: all(job(site, made[name])["state"].endswith(state) for name, state in states.items()))
    return made


def job(cluster: DevCluster, job_id: str) -> Any:
    return json.loads(cluster.holdfast("job", "show", job_id, "-o", "json").stdout)


@pytest.fixture(params=[("desktop", "light"), ("phone", "dark")], ids="-".join)
def visitor(
    request: pytest.FixtureRequest, browser: Any, site: DevCluster, jobs: dict[str, str]
) -> Iterator[Visitor]:
    made = Visitor(browser, site, *request.param)
    yield made
    made.context.close()


def test_every_page_can_be_read_and_runs_nothing_of_others(visitor: Visitor, jobs: dict[str, str]) -> None:
    for name, path, shows in (
        ("overview", "/", ".board"),
        ("jobs", "/jobs", ".joblist .row:not(.head)"),
        ("nothing", "/jobs?q=no-such-job-anywhere", ".empty"),
        ("hosts", "/hosts", "td"),
        ("host", "/hosts/host-0", ".head"),
        ("goodput", "/goodput", "td, .empty"),
        ("admin", "/admin", "td"),
        ("no-job", "/jobs/no-such-job", ".problem"),
        ("nowhere", "/no/such/page", ".empty"),
    ):
        if name == "no-job":
            visitor.wrong.clear()
        visitor.visit(path, shows)
        if name == "no-job":
            visitor.wrong.clear()  # the browser's own line about a 404
        visitor.look(name)
    for name, job_id in jobs.items():
        visitor.visit(f"/jobs/{job_id}", ".said")
        visitor.look(f"job-{name}")
    for tab in TABS:
        visitor.visit(f"/jobs/{jobs['runs' if tab != 'exits' else 'failed']}?tab={tab}", f"[data-tab={tab}] > *")
        visitor.look(f"job-{tab}")


@pytest.mark.parametrize("visitor", [("desktop", "light")], indirect=True, ids=["desktop"])
def test_output_is_text_in_its_colours(visitor: Visitor, jobs: dict[str, str]) -> None:
    visitor.visit(f"/jobs/{jobs['runs']}?tab=logs", ".console .line")
    line = visitor.page.locator(".console .line").first
    assert line.inner_text() == "red <svg onload=ran(3)> link  javascript:ran(4)"
    assert line.locator(".a-31").inner_text() == "red"


@pytest.mark.parametrize("visitor", [("desktop", "light")], indirect=True, ids=["desktop"])
def test_a_line_is_found_in_all_of_the_output_and_leads_to_what_is_around_it(
    visitor: Visitor, site: DevCluster
) -> None:
    code = "for n in range(60_000): print(f'Line {n} of sixty thousand')"
    made = site.detach("--", sys.executable, "-c", code)
    site.holdfast("wait", made)
    visitor.visit(f"/jobs/{made}?tab=logs", ".console .line")
    assert visitor.page.get_by_text("The newest 2,000 lines").is_visible()
    visitor.page.get_by_label("Find in these lines").fill("line 12345 ")
    visitor.page.keyboard.press("Enter")
    visitor.page.get_by_role("status").filter(has_text="1 line with line 12345").wait_for()
    assert visitor.page.locator(".console .line bdi").all_inner_texts() == ["Line 12345 of sixty thousand"]
    visitor.look("job-log-found")
    visitor.page.get_by_role("link", name="What is around this line of rank 0").click()
    hit = visitor.page.locator(".console .line.hit")
    hit.wait_for()
    assert hit.inner_text() == "Line 12345 of sixty thousand"
    visitor.look("job-log-part")
    visitor.page.get_by_role("button", name="Earlier").click()
    visitor.page.wait_for_url(re.compile(r"at=8\d{4}$"))
    offsets = itertools.accumulate(len(f"Line {n} of sixty thousand\n") for n in range(60_000))
    at = int(visitor.page.url.rpartition("=")[2])
    first = next(number for number, offset in enumerate(offsets, 1) if offset >= at)
    visitor.page.locator(".console .line", has_text=f"Line {first} of").wait_for()


def plain(text: str) -> str:
    """Words alone: a long sentence of two parts is on two lines of the page."""
    return " ".join(text.lower().replace(";", " ").split())


@pytest.mark.parametrize("visitor", [("desktop", "light")], indirect=True, ids=["desktop"])
def test_what_is_shown_is_what_the_command_line_prints(
    visitor: Visitor, jobs: dict[str, str], site: DevCluster
) -> None:
    listed = {each["id"]: each for each in json.loads(site.holdfast("job", "list", "-o", "json").stdout)}
    visitor.visit("/jobs?q=" + "vision", ".joblist .row:not(.head)")
    for name, job_id in jobs.items():
        row = visitor.page.locator(".joblist .row", has=visitor.page.locator(f"a[href='/jobs/{job_id}']"))
        state = listed[job_id]["state"].removeprefix("JOB_STATE_").lower()
        assert row.locator(".state").inner_text() == state
        assert row.locator(".names a").inner_text() == " ".join(listed[job_id]["displayName"].split()), name
    for job_id in jobs.values():

        def same(job_id: str = job_id) -> bool:
            """Both speak of one moment: sentences count seconds."""
            visitor.visit(f"/jobs/{job_id}", ".said")
            said = job(site, job_id)["summary"]
            shown = plain(visitor.page.locator(".said").inner_text())
            return all(plain(said[key]) in shown for key in ("health", "happened", "done"))

        until(same, what=f"for the sentences of {job_id}")
    status = json.loads(site.holdfast("status", "-o", "json").stdout)
    visitor.visit("/", ".board")
    summary = visitor.page.locator(".summary").inner_text()
    assert f"{sum(status['gpus'].values())}" in summary and f"{status['gpus']['free']} free" in summary
    assert visitor.page.locator(".board .gpu.u-free[role=img]").count() == status["gpus"]["free"]


def test_a_job_is_found_and_cancelled_by_keyboard_alone(
    browser: Any, jobs: dict[str, str], site: DevCluster
) -> None:
    """A destructive act asks for the job's name, and shows the command that does the same."""
    visitor = Visitor(browser, site, "desktop", "light")
    page, victim = visitor.page, jobs["waits"]
    page.get_by_role("navigation", name="Pages").wait_for()
    page.keyboard.press("?")
    page.get_by_role("dialog").wait_for()
    visitor.look("keys")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.wait_for_url("**/jobs")
    page.keyboard.type(victim)
    page.get_by_role("status").filter(has_text=re.compile("^1 job$")).wait_for()
    link = page.locator(f".joblist a[href='/jobs/{victim}']")
    link.focus()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Cancel…").wait_for()
    page.get_by_role("button", name="Cancel…").focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    assert f"holdfast job cancel {victim}" in dialog.inner_text()
    assert dialog.get_by_role("button", name="Cancel", exact=True).is_disabled()
    dialog.get_by_role("textbox").focus()
    page.keyboard.type(victim)
    visitor.look("cancel")
    page.keyboard.press("Enter")
    page.locator(".head .state", has_text="cancelled").wait_for()
    assert job(site, victim)["state"] == "JOB_STATE_CANCELLED"
    visitor.context.close()


def test_a_key_in_the_moment_in_which_a_dialog_closes_is_heard(browser: Any, site: DevCluster) -> None:
    """Until the next frame the focus is still within it."""
    visitor = Visitor(browser, site, "desktop", "light")
    page = visitor.page
    page.get_by_role("navigation", name="Pages").wait_for()
    page.keyboard.press("?")
    page.get_by_role("dialog").wait_for()
    page.evaluate(CLOSES_AND_TYPES)
    page.wait_for_url("**/jobs")
    visitor.context.close()


def test_a_link_is_spent_once_and_a_session_ends_at_once(browser: Any, site: DevCluster) -> None:
    visitor = Visitor(browser, site, "desktop", "light")
    other = browser.new_context(ignore_https_errors=True)
    stranger = other.new_page()
    stranger.goto(visitor._link)
    stranger.get_by_role("alert").wait_for()
    assert "#" not in stranger.url
    other.close()
    visitor.visit("/admin", "button")
    visitor.page.get_by_role("button", name="Sign out here").click()
    visitor.page.locator(".door").get_by_text("holdfast web").first.wait_for()
    assert visitor.page.locator(".door").count() == 1
    visitor.context.close()


def test_charts_share_the_timelines_axis_and_pointer(visitor: Visitor, jobs: dict[str, str]) -> None:
    """The figures are made up here, as no GPU tells any; the page, its policy and the rest of its answers are real."""
    page, path = visitor.page, f"/v1/jobs/{jobs['runs']}"
    since = page.evaluate("new Date(Math.floor(Date.now() / 60000 - 89) * 60000).toISOString()")
    visitor.answer(path, lambda job: long_ago(job, since))
    visitor.answer(f"{path}/series", lambda series: charted(series) | {"since": since})
    visitor.visit(f"/jobs/{jobs['runs']}", ".chart")
    titles = [text.split(" newest")[0] for text in page.locator(".chart strong").all_inner_texts()]
    assert titles == ["Step", "Pace", "GPU utilisation", "GPU memory", "Power"]
    left = page.locator(".strip svg").bounding_box()
    assert {(box["x"], box["width"]) for box in map(bounding, page.locator(".chart svg").all())} == {
        (left["x"], left["width"])
    }
    odd = page.locator(".chart", has_text="GPU utilisation").locator(".oddly")
    assert odd.all_inner_texts() == ["rank 1"] or page.locator(".chart .band").count() == 0
    page.locator(".chart svg").nth(2).evaluate("chart => chart.scrollIntoView({block: 'center'})")
    page.locator(".chart svg").nth(2).hover(position={"x": left["width"] / 4, "y": 20})
    page.locator(".strip .cursor").wait_for(state="attached")
    assert page.locator(".cursor").count() == len(titles) + 1
    assert "%" in page.locator(".chart figcaption").nth(2).inner_text()
    visitor.look("job-charts")
    page.locator(".charts summary").click()
    assert page.locator(".charts td").first.is_visible()
    visitor.look("job-charts-table")


def bounding(locator: Any) -> Any:
    return locator.bounding_box()


@pytest.mark.parametrize("visitor", [("desktop", "light")], indirect=True, ids=["desktop"])
def test_three_hundred_hostile_texts_stay_texts(visitor: Visitor, jobs: dict[str, str], site: DevCluster) -> None:
    """As names, labels, sentences, exits, frames and lines of output, also what no controller lets in."""
    assert len(CORPUS) == 300
    page, texts = visitor.page, itertools.cycle(CORPUS)
    visitor.answer("/v1/jobs", lambda found: listed(found, jobs["runs"], texts))
    visitor.visit("/jobs", ".joblist .row:not(.head)")
    scrolled(visitor, ".joblist .windowed", "jobs")
    visitor.answer(f"/v1/jobs/{jobs['runs']}", lambda found: whole(found, texts))
    visitor.answer_lines("**/evidence", evidence_lines())
    visitor.answer_lines("**:logs?*", output_lines())
    visitor.answer("/v1/hosts/host-0", lambda host: hostile(ill(host) | {"state": "SUSPECT"}, texts, "state"))
    visitor.answer("/v1/hosts/host-0/events", lambda history: hostile(past(history), texts, "kind"))
    visitor.answer("/v1/shares", lambda found: found | {"shares": [hostile(SHARE, texts) for _ in CORPUS]})
    for tab in TABS:
        visitor.visit(f"/jobs/{jobs['runs']}?tab={tab}", f"[data-tab={tab}] > *")
        if tab == "hangs":
            page.get_by_role("button", name="Show every rank's stack").first.click()
            page.locator(".stacks details").first.wait_for()
            assert page.locator(".stacks details").count() == len(CORPUS)
        if tab == "logs":
            page.locator(".console .line").first.wait_for()
            assert page.locator(".console .line").first.inner_text().strip()
        scrolled(visitor, ".tab .windowed", tab)
    visitor.visit("/hosts/host-0", ".head")
    visitor.page.locator(".silent").wait_for()
    visitor.unbroken("host")
    visitor.visit("/admin", "table")
    page.get_by_role("group", name="Shares and quotas of projects").locator("td").first.wait_for()
    visitor.unbroken("admin")


def scrolled(visitor: Visitor, window: str, shown: str) -> None:
    """Have every row drawn, and nothing broken by it."""
    found = visitor.page.locator(window)
    for top in range(0, 600 * 40, 600) if found.count() else ():
        if found.first.evaluate("(e, top) => (e.scrollTop = top, e.scrollTop < top)", top):
            break
        visitor.page.evaluate("new Promise(requestAnimationFrame)")
    visitor.unbroken(shown)


def test_twenty_tabs_are_all_served_and_hear_of_changes(
    browser: Any, jobs: dict[str, str], site: DevCluster
) -> None:
    """A browser has six connections to an origin, and a tab's stream would take one for itself."""
    visitor = Visitor(browser, site, "desktop", "light")
    tabs = [visitor.context.new_page() for _ in range(20)]
    for tab in tabs:
        tab.goto(f"{visitor.base}/jobs")
    for tab in tabs:
        tab.locator(".joblist .row:not(.head)").first.wait_for()
    new = site.detach("--name", "of-twenty-tabs", "--", "sleep", "600")
    for tab in (tabs[0], tabs[7], tabs[19]):
        tab.locator(f".joblist a[href='/jobs/{new}']").wait_for()
    tabs[0].close()  # may be the one that reads for all
    visitor.page.close()
    site.holdfast("job", "cancel", new)
    row = tabs[19].locator(".joblist .row", has=tabs[19].locator(f"a[href='/jobs/{new}']"))
    row.locator(".state", has_text="cancelled").wait_for()
    visitor.context.close()


def test_what_is_shown_to_an_admin_stays_where_it_can_not_be_read_again_and_goes_with_the_right(
    browser: Any, site: DevCluster
) -> None:
    site.holdfast("run", "--", "true")
    visitor = Visitor(browser, site, "desktop", "light")
    # A stream that brings no answers along, so that the page asks for them.
    alone = partial(re.sub, r"follow=[^&]*&?", "")
    visitor.page.route("**/v1/changes*", lambda route: route.continue_(url=alone(route.request.url)))
    visitor.visit("/admin", "table")
    shares = visitor.page.get_by_role("group", name="Shares and quotas of projects").locator("td")
    shares.first.wait_for()
    for status, is_shown in ((500, True), (403, False)):
        refuse = partial(refused_with, status)
        visitor.page.route("**/v1/shares", refuse)
        with visitor.page.expect_response("**/v1/shares"):
            site.holdfast("run", "--", "true")
        shares.first.wait_for(state="visible" if is_shown else "detached")
        visitor.page.unroute("**/v1/shares", refuse)
    visitor.context.close()


def refused_with(status: int, route: Any) -> None:
    """Answer a call with that status in the controller's place."""
    body = {"error": {"code": status, "message": "Not today.", "status": "ABORTED"}}
    route.fulfill(status=status, content_type="application/json", body=json.dumps(body))


def test_an_open_page_says_that_the_controller_died_and_goes_on_once_it_is_back(
    browser: Any, jobs: dict[str, str], site: DevCluster
) -> None:
    visitor = Visitor(browser, site, "desktop", "light")
    visitor.visit(f"/jobs/{jobs['runs']}?tab=logs", ".console .line")
    before = visitor.page.locator(".console .line").first.inner_text()
    other = visitor.context.new_page()
    other.goto(f"{visitor.base}/hosts")
    other.locator("td").first.wait_for()
    site.kill_controller()
    visitor.page.locator(".banner").wait_for()
    other.locator(".banner").wait_for()  # the first tab reads the stream for both
    assert visitor.page.locator(".said").is_visible(), "what was known stays"
    site.restart()
    for tab in (visitor.page, other):
        tab.locator(".banner").wait_for(state="detached")
    site.holdfast("job", "cancel", jobs["runs"])
    visitor.page.locator(".head .state", has_text="cancel").wait_for()
    assert visitor.page.locator(".console .line").first.inner_text() == before
    visitor.context.close()
