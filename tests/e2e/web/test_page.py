"""The web page in a real browser, before a real controller: what it shows, what it refuses to run, how it is used."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cli_cluster import DevCluster, until

pytestmark = [pytest.mark.require("chromium"), pytest.mark.require("node")]

AXE = Path(__file__).parents[3] / "web/node_modules/axe-core/axe.min.js"
SCREENS = {"desktop": (1280, 800), "phone": (390, 844)}
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
WATCH = """
window.broken = [];
window.ran = (which) => broken.push(`ran ${which}`);
document.addEventListener("securitypolicyviolation", (e) => broken.push(`${e.violatedDirective} ${e.blockedURI}`));
"""
TABS = ("timeline", "ranks", "logs", "exits", "hangs", "recoveries", "events", "spec")


@pytest.fixture(scope="module")
def site(two_hosts: DevCluster) -> Iterator[DevCluster]:
    """Two hosts with two GPUs each. The browser has the thread's event loop, so they are made idle after it."""
    yield two_hosts
    two_hosts.show_logs()
    two_hosts.make_idle()


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


@pytest.fixture(scope="module")
def browser(site: DevCluster) -> Iterator[Any]:
    """Ends before the site does: while it lives, its event loop is the thread's."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tools:
        found = tools.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield found
        found.close()


class Visitor:
    """A person with a browser, signed in, who notices what breaks."""

    def __init__(self, browser: Any, cluster: DevCluster, screen: str, scheme: str) -> None:
        width, height = SCREENS[screen]
        self.name = f"{screen}-{scheme}"
        self.context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, ignore_https_errors=True
        )
        self.context.set_default_timeout(60_000)
        self.page = self.context.new_page()
        self.page.add_init_script(WATCH)
        self.wrong: list[str] = []
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("dialog", self._stopped)
        self.page.on("request", self._asked)
        opened = cluster.holdfast("web", "open", "--no-browser").stdout
        found = re.search(r"(https://\S+?)/login#\S+", opened)
        assert found is not None, opened
        self.base, self._link = found[1], found[0]
        self.page.goto(self._link)
        self.page.wait_for_url(f"{self.base}/")

    def _said(self, line: Any) -> None:
        if line.type == "error":
            self.wrong.append(line.text)

    def _stopped(self, dialog: Any) -> None:
        self.wrong.append(dialog.message)
        dialog.dismiss()

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((f"{self.base}/", "data:", "blob:")):
            self.wrong.append(f"asked {request.url}")

    def visit(self, path: str, shows: str) -> None:
        self.page.goto(self.base + path)
        self.page.locator(shows).first.wait_for()

    def look(self, shown: str) -> None:
        """Nothing was broken, ran or left the screen, and all can be read by everyone."""
        tools = self.context.new_cdp_session(self.page)
        tools.send("Runtime.evaluate", {"expression": f"{AXE.read_text()};undefined"})
        rule = "axe.run().then(r => r.violations.map(v => `${v.id}: ${v.nodes[0].html}`))"
        found = tools.send("Runtime.evaluate", {"expression": rule, "awaitPromise": True, "returnByValue": True})
        tools.detach()
        assert found["result"]["value"] == [], shown
        assert self.page.evaluate("window.broken") == [], shown
        assert self.wrong == [], shown
        assert self.page.locator("main img, main script, main iframe").count() == 0, shown
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert self.page.evaluate(wide) <= 0, f"{shown} is wider than the screen"
        if folder := os.environ.get("HOLDFAST_SCREENSHOTS"):
            self.page.screenshot(path=Path(folder, f"{shown}-{self.name}.png"))


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
        visitor.visit(f"/jobs/{job_id}", ".said")
        said = job(site, job_id)["summary"]
        shown = visitor.page.locator(".said").inner_text().lower()
        assert all(said[key].lower() in shown for key in ("health", "happened", "done"))
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
    visitor.page.get_by_text("holdfast web").first.wait_for()
    assert visitor.page.locator(".door").count() == 1
    visitor.context.close()
