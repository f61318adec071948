"""A person with a browser who notices what breaks."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.e2e.cli_cluster import DevCluster

AXE = Path(__file__).parents[3] / "web/node_modules/axe-core/axe.min.js"
SCREENS = {"desktop": (1280, 800), "phone": (390, 844)}
WATCH = """
window.broken = [];
window.ran = (which) => broken.push(`ran ${which}`);
document.addEventListener("securitypolicyviolation", (e) => broken.push(`${e.violatedDirective} ${e.blockedURI}`));
"""


class Visitor:
    """A person with a browser, signed in, who notices what breaks."""

    def __init__(
        self, browser: Any, cluster: DevCluster, screen: str, scheme: str, env: dict[str, str] | None = None
    ) -> None:
        """Signed in as the cluster's admin, or as whoever the settings in ``env`` belong to."""
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
        opened = cluster.holdfast("web", "open", "--no-browser", env=env).stdout
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
        self.unbroken(shown)
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert self.page.evaluate(wide) <= 0, f"{shown} is wider than the screen"
        if folder := os.environ.get("HOLDFAST_SCREENSHOTS"):
            self.page.screenshot(path=Path(folder, f"{shown}-{self.name}.png"))

    def unbroken(self, shown: str) -> None:
        """Nothing ran, was violated or asked elsewhere, and no text has become an element."""
        assert self.page.evaluate("window.broken") == [], shown
        assert self.wrong == [], shown
        made = "main :is(img, script, iframe, object, style, link, meta, base, video, template, b, [onload], [onerror])"
        assert self.page.locator(made).count() == 0, shown
        links = "[...document.querySelectorAll('main a')].map(a => a.getAttribute('href'))"
        assert [link for link in self.page.evaluate(links) if not re.match(r"/(?!/)", link)] == [], shown

    def answer(self, path: str, make: Callable[[Any], Any]) -> None:
        """From now on have the page get what ``make`` makes of the controller's answer to ``path``."""

        def handle(route: Any) -> None:
            found = route.fetch()
            # With its tag the page would follow the controller's own answer, and show that at the next change.
            headers = {name: value for name, value in found.headers.items() if name != "etag"}
            route.fulfill(response=found, headers=headers, json=make(found.json()))

        self.page.route(re.compile(re.escape(self.base + path) + r"(\?.*)?$"), handle)

    def answer_lines(self, pattern: str, lines: list[dict[str, Any]]) -> None:
        """From now on have the page get these lines of JSON instead of the controller's answer."""
        body = "".join(f"{json.dumps(line)}\n" for line in lines)
        self.page.route(
            pattern,
            lambda route: route.fulfill(status=200, content_type="application/x-ndjson", body=body),
        )
