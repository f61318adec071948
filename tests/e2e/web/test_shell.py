"""A shell in the page: a real browser, a real terminal beside a rank, and whatever ends it."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cli_cluster import DevCluster, until
from tests.e2e.web.visitor import Visitor

pytestmark = [pytest.mark.require("chromium"), pytest.mark.require("node")]

PASTED = 10 << 20
PASTED_WITHIN_S = 150.0
"""Two busy loops beside it, at a load of 26 on two cores, make 12 s of it; a machine may be starved worse."""
PASTE = """
([size, text]) => {
    const data = new DataTransfer();
    data.setData("text/plain", text || "0123456789abcde\\r".repeat(size / 16));
    const where = document.querySelector(".xterm-helper-textarea");
    where.dispatchEvent(new ClipboardEvent("paste", {clipboardData: data, bubbles: true}));
}
"""
READER = """
import hashlib, os, sys, tty
tty.setraw(0)
print("raw" + " now", flush=True)
left, digest = {size}, hashlib.sha256()
while left:
    part = os.read(0, 65536)
    digest.update(part)
    left -= len(part)
print("got " + digest.hexdigest()[:16], end="\\r\\n", flush=True)
os.read(0, 1)
"""


@pytest.fixture(scope="module")
def job(site: DevCluster) -> str:
    """Two ranks on two hosts, with shells allowed, which find nobody's .bashrc."""
    home = ("--env", "HOME=/nonexistent")
    made = site.detach("--enable-web-access", *home, "--replicas", "2", "--gpus", "2", "--", "sleep", "600")
    until(lambda: '"JOB_STATE_RUNNING"' in site.holdfast("job", "show", made, "-o", "json").stdout)
    return made


@pytest.fixture
def visitor(browser: Any, site: DevCluster) -> Iterator[Visitor]:
    made = Visitor(browser, site, "desktop", "light")
    yield made
    made.context.close()


def opened(visitor: Visitor, job: str, rank: int = 0) -> Any:
    """The terminal of a new shell beside a rank."""
    visitor.visit(f"/jobs/{job}?tab=shell&rank={rank}", ".shell-panel button")
    visitor.page.get_by_role("button", name="Open a shell").click()
    visitor.page.locator(".xterm-rows").wait_for()
    said(visitor, "Ctrl-Shift-Enter")
    return visitor.page.keyboard


def said(visitor: Visitor, words: str) -> None:
    visitor.page.get_by_role("status").filter(has_text=words).wait_for()


def shows(visitor: Visitor, text: str, within_s: float = 60) -> None:
    """The terminal has a row with the text, as which what was typed counts too: so type it in other words.

    Its spaces may be of the sort that never breaks.
    """
    rows = (
        "[...document.querySelectorAll('.xterm-rows > div')].map(row => row.textContent.replaceAll('\\u00a0', ' '))"
    )
    visitor.page.wait_for_function(
        f"text => {rows}.some(row => row.includes(text))", arg=text, timeout=within_s * 1000
    )


def test_it_has_keys_colours_window_and_an_end(visitor: Visitor, job: str) -> None:
    keys = opened(visitor, job, rank=1)
    keys.type("echo rank $RANK of $HOLDFAST_JOB; tty\n")
    shows(visitor, f"rank 1 of {job}")
    shows(visitor, "/dev/pts/")
    keys.type(
        "printf '\\033[31mred\\033[38;2;1;99;200m true\\033[0m \\033]8;;https://evil.example\\033\\\\link\\033]8;;\\033\\\\\\n'\n"
    )
    shows(visitor, "red true link")
    keys.type("echo sle'eping'; sleep 300\n")
    shows(visitor, "sleeping")
    keys.press("Control+c")
    keys.type("echo interrupted $?; stty size\n")
    shows(visitor, "interrupted 130")
    before = visitor.page.locator(".xterm-rows > div").count()
    shows(visitor, f"{before} ")
    visitor.look("job-shell")
    visitor.page.set_viewport_size({"width": 900, "height": 600})
    visitor.page.wait_for_function("n => document.querySelectorAll('.xterm-rows > div').length !== n", arg=before)
    keys.type("clear; stty size\n")
    shows(visitor, f"{visitor.page.locator('.xterm-rows > div').count()} ")
    keys.press("Control+Shift+Enter")
    assert visitor.page.evaluate("document.activeElement.textContent") == "Close the shell"
    visitor.page.locator(".screen").click()
    keys.type("exit 7\n")
    said(visitor, "The shell has ended with exit status 7.")
    visitor.unbroken("shell")


def test_vim_edits_a_file_and_less_pages_through_one(visitor: Visitor, job: str, tmp_path: Path) -> None:
    keys = opened(visitor, job)
    file = tmp_path / "poem"
    tmp_path.chmod(0o777)
    keys.type(f"vim -u NONE {file}\n")
    shows(visitor, "~")
    keys.type("iof training\x1b:wq\n")
    until(file.exists, what="for the file that vim writes")
    assert file.read_text() == "of training\n"
    keys.type("seq $((4000 + 1000)) | less\n")
    keys.type("G")
    shows(visitor, "5000")
    keys.type("q")
    keys.type("exit\n")
    said(visitor, "exit status 0")
    visitor.unbroken("vim")


@pytest.mark.parametrize(("screen", "scheme"), [("phone", "dark"), ("desktop", "dark")])
def test_it_fits_every_screen(browser: Any, site: DevCluster, job: str, screen: str, scheme: str) -> None:
    visitor = Visitor(browser, site, screen, scheme)
    keys = opened(visitor, job)
    keys.type("ls --color=always /etc | head -40\n")
    keys.type("echo $((6*7))\n")
    shows(visitor, "42")
    visitor.look("job-shell")
    visitor.context.close()


def test_ten_megabytes_are_pasted_whole(visitor: Visitor, job: str) -> None:
    keys = opened(visitor, job)
    code = shlex.quote(READER.format(size=PASTED))
    visitor.page.evaluate(PASTE, [0, f"{sys.executable} -c {code}"])
    keys.press("Enter")
    shows(visitor, "raw now")
    began = time.monotonic()
    visitor.page.evaluate(PASTE, [PASTED, ""])
    wanted = hashlib.sha256(b"0123456789abcde\r" * (PASTED // 16)).hexdigest()[:16]
    shows(visitor, f"got {wanted}", PASTED_WITHIN_S)
    print(f"pasted in {time.monotonic() - began:.1f} s, load {os.getloadavg()[0]:.1f}")
    keys.type("q")
    keys.type("exit\n")
    said(visitor, "exit status 0")


def test_a_flood_holds_up_no_one_and_ends_with_control_c(visitor: Visitor, site: DevCluster, job: str) -> None:
    keys = opened(visitor, job)
    before = resident(site.pid("controller"))
    keys.type("yes a flood that does not end by itself\n")
    visitor.page.wait_for_function(
        "() => document.querySelectorAll('.xterm-rows > div')[9].textContent.startsWith('a flood')"
    )
    longest = 0.0
    for _ in range(8):
        began = time.monotonic()
        site.holdfast("status")
        longest = max(longest, time.monotonic() - began)
    keys.press("Control+c")
    keys.type("echo dry $((40 + 2))\n")
    shows(visitor, "dry 42")
    grown = resident(site.pid("controller")) - before
    print(f"status within {longest:.2f} s, controller +{grown >> 20} MiB, load {os.getloadavg()[0]:.1f}")
    assert longest < 20 and grown < 64 << 20
    keys.type("exit\n")
    said(visitor, "exit status 0")


def resident(pid: int) -> int:
    """Bytes of a process that are in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_it_goes_on_behind_other_tabs_of_the_job_and_ends_when_the_page_is_left(
    visitor: Visitor, job: str, tmp_path: Path
) -> None:
    keys = opened(visitor, job)
    tmp_path.chmod(0o777)
    keys.type(f"echo $$ > {tmp_path}/pid; echo he''re\n")
    shows(visitor, "here")
    visitor.page.get_by_role("link", name="Ranks").click()
    visitor.page.get_by_role("link", name="Shell beside rank 0").click()
    keys.type("x")
    visitor.page.locator(".screen").click()
    pid = int((tmp_path / "pid").read_text())
    assert Path(f"/proc/{pid}").exists()
    visitor.page.get_by_role("link", name="Hosts").click()
    until(lambda: not Path(f"/proc/{pid}").exists(), what="for the shell's end")


def test_a_session_that_is_ended_ends_its_shell_at_once(
    visitor: Visitor, site: DevCluster, job: str, tmp_path: Path
) -> None:
    keys = opened(visitor, job)
    tmp_path.chmod(0o777)
    keys.type(f"echo $$ > {tmp_path}/pid; echo he''re\n")
    shows(visitor, "here")
    pid = int((tmp_path / "pid").read_text())
    listed = json.loads(site.holdfast("web", "sessions", "-o", "json").stdout)
    for session in listed if isinstance(listed, list) else listed["sessions"]:
        site.holdfast("web", "end", session["id"])
    until(lambda: not Path(f"/proc/{pid}").exists(), what="for the shell's end")
    visitor.page.locator(".door").wait_for()


def test_another_user_gets_none_and_both_are_on_record(
    visitor: Visitor, browser: Any, site: DevCluster, job: str, tmp_path: Path
) -> None:
    keys = opened(visitor, job)
    keys.type("exit\n")
    said(visitor, "exit status 0")
    site.holdfast("user", "add", "bob")
    program, verb, *words = shlex.split(site.holdfast("user", "token", "bob").stdout)
    assert (program, verb) == ("holdfast", "login")
    site.holdfast("login", *words, "--dir", str(tmp_path / "bob"))
    bob = Visitor(browser, site, "desktop", "light", {"HOLDFAST_CONFIG": str(tmp_path / "bob/client.toml")})
    bob.visit(f"/jobs/{job}?tab=shell", ".shell-panel button")
    bob.page.get_by_role("button", name="Open a shell").click()
    bob.page.get_by_role("status").filter(has_text="only its owner may do that").wait_for()
    bob.context.close()
    site.holdfast("user", "remove", "bob", "--yes", check=False)
    read = json.loads(site.holdfast("audit", "-o", "json").stdout)
    told = [(each["who"], each["outcome"]) for each in read if each["call"].endswith("OpenShell")]
    assert ("user/bob", "PERMISSION_DENIED") in told and ("user/admin", "OK") in told


def test_a_controller_that_is_killed_ends_it_in_words_and_the_next_one_opens_another(
    visitor: Visitor, site: DevCluster, job: str, tmp_path: Path
) -> None:
    keys = opened(visitor, job)
    tmp_path.chmod(0o777)
    keys.type(f"echo $$ > {tmp_path}/pid; echo he''re\n")
    shows(visitor, "here")
    site.kill_controller()
    said(visitor, "which ended the shell")
    pid = int((tmp_path / "pid").read_text())
    until(lambda: not Path(f"/proc/{pid}").exists(), what="for the shell's end")
    site.restart()
    visitor.page.locator(".banner").wait_for(state="detached")
    visitor.page.get_by_role("button", name="Open a shell").click()
    said(visitor, "Ctrl-Shift-Enter")
    visitor.page.keyboard.type("echo again $((40 + 2))\n")
    shows(visitor, "again 42")
