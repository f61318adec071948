"""Answers that the page follows on the stream of changes: what is told makes of each what a call would answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from tests.integration.controller.calls.web.test_shared_answers import LISTS, SECRET, grant, submitted
from tests.integration.controller.calls.web.test_shared_answers import rendered as rendered
from tests.integration.controller.calls.web.test_shared_answers import site as site
from tests.integration.controller.calls.web.test_web import Site
from tests.integration.controller.web import WITHIN_S

from holdfast.v1 import access_pb2, cluster_pb2
from holdfast_controller.shell.rest import following as answers_followed
from holdfast_controller.shell.rest import shared_answers, streams

ROWS, HOSTS = LISTS[0], "/v1/hosts?pageSize=1000"


class Follower:
    """A page that shows some answers, each made of what it had and what it was told."""

    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines
        self.tags: dict[str, str] = {}
        self.held: dict[str, Any] = {}
        self.told: list[dict[str, Any]] = []

    async def until(self, there: Callable[[dict[str, Any]], bool]) -> None:
        """Read on until what is held is as it should be."""
        while not there(self.held):
            await self.event()

    async def event(self) -> str:
        """The next event's name."""
        name = ""
        async for line in self._lines:
            key, _, value = line.partition(": ")
            if key == "event":
                name = value
            elif key == "data" and name == "answer":
                self._take(json.loads(value))
            elif not line and name:
                return name
        raise AssertionError("it ended")

    def _take(self, told: dict[str, Any]) -> None:
        self.told.append(told)
        path = told["path"]
        if "tag" not in told:
            self.held.pop(path, None)
            return
        assert told["from"] in ("", self.tags.get(path))
        self.tags[path] = told["tag"]
        if "answer" in told:
            self.held[path] = told["answer"]
            return
        old = self.held.get(path, {}).get(told["list"], [])
        entries: list[Any] = []
        for part in told["parts"]:
            entries += old[part[0] : part[1] + 1] if isinstance(part, list) else [part]
        self.held[path] = {told["list"]: entries, "nextPageToken": told["nextPageToken"]}


@asynccontextmanager
async def following(browser: httpx.AsyncClient, *asked: str) -> AsyncIterator[Follower]:
    headers = {"Accept": "text/event-stream"}
    async with (
        asyncio.timeout(WITHIN_S),
        browser.stream("GET", "/v1/changes", params={"follow": asked}, headers=headers) as stream,
    ):
        assert stream.status_code == 200, await stream.aread()
        assert stream.headers["content-encoding"] == "gzip"
        yield Follower(stream.aiter_lines())


async def test_what_is_told_makes_of_each_answer_what_a_call_would_answer(site: Site) -> None:
    async with site.signed_in("user/vera") as vera, following(vera, ROWS, "/v1/status", HOSTS) as page:
        await page.until(lambda held: len(held) == 3)
        jobs = [await submitted(vera, "vision") for _ in range(3)]
        async with site.controller.agent("host-0"), site.controller.agent("host-1"):
            await page.until(lambda held: len(held[ROWS]["jobs"]) == 3 and len(held[HOSTS]["hosts"]) == 2)
            await vera.post(f"/v1/jobs/{jobs[1]}:cancel", json={})
            await page.until(lambda held: held["/v1/status"]["jobs"]["CANCELLED"] == 1)
            await page.until(lambda held: sum(len(one["jobIds"]) for one in held[HOSTS]["hosts"]) == 2)
            assert page.held[ROWS] == (await vera.get(ROWS)).json()
            hosts = (await vera.get(HOSTS)).json()
            for one in (*hosts["hosts"], *page.held[HOSTS]["hosts"]):
                del one["lastSeen"]
            assert page.held[HOSTS] == hosts
    changed = [each for each in page.told if each.get("list") == "jobs" and each["from"]]
    assert any(isinstance(part, list) for each in changed for part in each["parts"]), "what stays is not sent again"


async def test_who_has_an_answer_is_sent_what_differs_from_it(site: Site) -> None:
    async with site.signed_in("user/vera") as vera:
        await submitted(vera, "vision")
        asked = await vera.get(ROWS)
        tag = asked.headers["etag"].strip('"')
        async with following(vera, f"{ROWS}#{tag}", "/v1/status#of-another-controller") as page:
            page.tags[ROWS], page.held[ROWS] = tag, asked.json()
            await page.until(lambda held: "/v1/status" in held)
            assert [each["path"] for each in page.told] == ["/v1/status"]
            await submitted(vera, "vision")
            await page.until(lambda held: len(held[ROWS]["jobs"]) == 2)
            assert page.told[-1]["from"] == tag or page.told[-1]["path"] != ROWS
            assert page.held[ROWS] == (await vera.get(ROWS)).json()


async def test_followers_with_equal_rights_share_one_rendering_of_each_change(
    rendered: list[Any], site: Site
) -> None:
    async with (
        site.signed_in("user/vera") as vera,
        site.signed_in("user/otto") as otto,
        following(vera, ROWS) as one,
        following(otto, ROWS) as other,
    ):
        for page in (one, other):
            await page.until(lambda held: ROWS in held)
        before = rendered[0].rendered
        await submitted(vera, "vision")
        for page in (one, other):
            await page.until(lambda held: len(held[ROWS]["jobs"]) == 1)
        assert rendered[0].rendered - before == 1
        assert one.told[-1] == other.told[-1]


async def test_a_change_is_written_once_for_all_streams(monkeypatch: pytest.MonkeyPatch, site: Site) -> None:
    written = list[int]()

    def noted(change: cluster_pb2.WatchChangesResponse) -> bytes:
        written.append(change.cursor)
        return streams.change_event(change)

    monkeypatch.setattr(answers_followed, "change_event", noted)
    async with (
        site.signed_in("user/vera") as vera,
        site.signed_in("user/otto") as otto,
        following(vera, ROWS) as one,
        following(otto, ROWS) as other,
    ):
        for page in (one, other):
            await page.until(lambda held: ROWS in held)
        for _ in range(2):
            await submitted(vera, "vision")
            for page in (one, other):
                before = len(page.held[ROWS]["jobs"])
                await page.until(lambda held, before=before: len(held[ROWS]["jobs"]) > before)  # type: ignore[misc]
    assert written and len(written) == len(set(written))


async def test_followers_with_other_rights_are_told_of_theirs_alone(site: Site) -> None:
    async with site.signed_in("user/vera") as vera, site.signed_in("user/elsa") as elsa:
        hers = await submitted(vera, "vision", env=[SECRET])
        job = f"/v1/jobs/{hers}"
        async with following(vera, ROWS, job) as one, following(elsa, ROWS, job) as other:
            await one.until(lambda held: len(held) == 2)
            await other.until(lambda held: ROWS in held)
            theirs = await submitted(elsa, "speech")
            await other.until(lambda held: [row["id"] for row in held[ROWS]["jobs"]] == [theirs])
            await submitted(vera, "vision")
            await one.until(lambda held: len(held[ROWS]["jobs"]) == 2)
            assert "speech" not in json.dumps(one.told) and "vision" not in json.dumps(other.held)
            assert "hunter2" in json.dumps(one.held[job])
            assert {"path": job} in other.told, "that it may not be seen is for a call to say"


async def test_what_only_its_owner_sees_of_a_job_is_told_to_no_other(site: Site) -> None:
    async with site.signed_in("user/vera") as vera, site.signed_in("user/otto") as otto:
        job = f"/v1/jobs/{await submitted(vera, 'vision', env=[SECRET])}"
        async with following(otto, job) as other, following(vera, job) as owner:
            await owner.until(lambda held: job in held)
            await other.until(lambda held: job in held)
            assert "hunter2" in json.dumps(owner.held) and "hunter2" not in json.dumps(other.held)
            await vera.post(f"{job}:cancel", json={})
            await other.until(lambda held: held[job]["state"] == "JOB_STATE_CANCELLED")
            await owner.until(lambda held: held[job]["state"] == "JOB_STATE_CANCELLED")
            assert "hunter2" in json.dumps(owner.held) and "hunter2" not in json.dumps(other.told)


async def test_rights_that_change_count_from_the_next_answer_on(site: Site) -> None:
    async with site.signed_in("user/vera") as vera, site.signed_in("user/otto") as otto:
        hers = await submitted(vera, "vision")
        async with following(otto, ROWS) as page:
            await page.until(lambda held: ROWS in held and bool(held[ROWS]["jobs"]))
            await grant(site, "otto", "speech")
            gone = access_pb2.RemoveUserRequest(name="otto", project="vision")
            await site.people.RemoveUser(gone, timeout=WITHIN_S)
            await page.until(lambda held: held[ROWS]["jobs"] == [])
            before = len(page.told)
            await submitted(vera, "vision")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(2.0):
                    await page.until(lambda held: bool(held[ROWS]["jobs"]))
            assert hers not in json.dumps(page.told[before:])


async def test_a_user_who_is_removed_is_told_no_more(site: Site) -> None:
    async with site.signed_in("user/vera") as vera, site.signed_in("user/otto") as otto:
        await submitted(vera, "vision")
        async with following(otto, ROWS) as page:
            await page.until(lambda held: ROWS in held)
            await site.people.RemoveUser(access_pb2.RemoveUserRequest(name="otto"), timeout=WITHIN_S)
            with pytest.raises((httpx.HTTPError, AssertionError)):
                await page.until(lambda held: False)


async def test_what_is_not_followed_is_left_to_calls(site: Site) -> None:
    """Not what no address answers, what changes something, what goes on, or what is not shared."""
    wrong = ("/v1/none", "/v1/jobs/none", "/v1/changes", "/v1/me", "/assets/x", "v1/status", "", "/v1/hosts?page=1")
    async with site.signed_in("user/vera") as vera, following(vera, *wrong, "/v1/status") as page:
        await page.until(lambda held: "/v1/status" in held)
        assert page.held.keys() == {"/v1/status"}
        assert {each["path"] for each in page.told} <= {"/v1/jobs/none", "/v1/hosts?page=1", "/v1/me", "/v1/status"}


async def test_parts_of_hosts_that_are_no_change_are_brought_up_to_date_all_the_same(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_answers, "AGED_S", 0.0)
    async with site.signed_in("user/vera") as vera, site.controller.agent("host-0"), following(vera, HOSTS) as page:
        await page.until(lambda held: bool(held.get(HOSTS, {}).get("hosts")))
        before = len(page.told)
        await submitted(vera, "vision")
        await page.until(lambda _: len(page.told) > before)
        assert page.told[-1]["from"] == "" and page.told[-1]["parts"][0]["name"] == "host-0"


async def test_who_takes_no_gzip_hears_of_changes_alone(site: Site) -> None:
    plain = {"Accept": "text/event-stream", "Accept-Encoding": "identity"}
    asked = {"follow": "/v1/status"}
    async with (
        site.signed_in("user/vera") as vera,
        asyncio.timeout(WITHIN_S),
        vera.stream("GET", "/v1/changes", params=asked, headers=plain) as stream,
    ):
        assert "content-encoding" not in stream.headers
        assert (await anext(stream.aiter_lines())).startswith("id: ")
