"""Answers that readers of the page share, on a clock that only renderings and waits move on."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from typing import Any

import pytest
from starlette.responses import Response

from holdfast.errors import TooMany, Unavailable
from holdfast_controller.shell.calls.slices import ASKED_BY, READERS, TURNS
from holdfast_controller.shell.rest import shared_answers
from holdfast_controller.shell.rest.printed import Listed
from holdfast_controller.shell.rest.shared_answers import (
    AGED_S,
    BURST_S,
    FRESH_S,
    LONGEST_S,
    PAUSE_S,
    SHARE,
    Shared,
    SharedAnswers,
)

pytestmark = pytest.mark.anyio


class Site:
    """A log, a clock, and an answer whose text is how many were rendered before."""

    def __init__(self) -> None:
        self.position = 1
        self.now = 100.0
        self.waited: list[float] = []
        self.takes_s = 0.01
        self.gate = asyncio.Event()
        self.gate.set()
        self.places = 0
        self.worked_for: list[str] = []
        self.shared = SharedAnswers(lambda: (self.position, None), lambda: self.now, self.sleep)

    async def sleep(self, seconds: float) -> None:
        self.waited += [seconds] if seconds != PAUSE_S else []
        self.now += seconds
        await asyncio.sleep(0)

    def place(self) -> ExitStack:
        self.places += 1
        held = ExitStack()
        held.callback(self.leave)
        return held

    def leave(self) -> None:
        self.places -= 1

    async def render(self) -> Response:
        count = self.shared.rendered
        self.now += self.takes_s
        self.worked_for.append(ASKED_BY.get())
        await self.gate.wait()
        return Response(f"{count} at {self.position}", media_type="text/plain")

    async def ask(
        self,
        key: str = "overview",
        render: Callable[[], Coroutine[Any, Any, Response]] | None = None,
        by: str = "user/ann",
    ) -> str:
        return (await self.shared.answer(key, by, self.place, render or self.render)).body.decode()


def started(work: Coroutine[Any, Any, str]) -> asyncio.Task[str]:
    return asyncio.get_running_loop().create_task(work)


async def turns() -> None:
    """Let all that can go on do so."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
def site() -> Site:
    return Site()


async def test_who_ask_for_the_same_at_the_same_position_of_the_log_share_one_rendering(site: Site) -> None:
    found = await asyncio.gather(*(site.ask() for _ in range(50)))
    assert (set(found), site.shared.rendered, site.places) == ({"1 at 1"}, 1, 0)
    assert await site.ask() == "1 at 1", "also afterwards"


async def test_others_questions_and_others_rights_get_their_own(site: Site) -> None:
    assert await site.ask("overview of ann") == "1 at 1"
    assert await site.ask("overview of bob") == "2 at 1"
    assert await site.ask("jobs of ann") == "3 at 1"


async def test_what_happened_before_a_question_is_in_its_answer(site: Site) -> None:
    assert await site.ask() == "1 at 1"
    site.position = 2
    assert await site.ask() == "2 at 2"
    site.gate.clear()
    site.position = 3
    early = started(site.ask())
    await turns()
    site.position = 4
    late = started(site.ask())
    await turns()
    site.gate.set()
    assert (await early, await late) == ("3 at 4", "4 at 4"), "a rendering that had begun is no answer"


async def test_what_is_not_in_the_log_is_a_second_old_at_most(site: Site) -> None:
    assert await site.ask() == "1 at 1"
    site.now += FRESH_S
    assert await site.ask() == "2 at 1"


async def test_a_log_that_grows_fast_makes_no_more_than_a_share_of_the_time_of_it(site: Site) -> None:
    began = site.now
    for position in range(200):
        site.position = position
        await site.ask()
    assert site.shared.rendered == 200
    assert site.now - began >= SHARE * (199 * site.takes_s - BURST_S)
    site.takes_s = 1.0
    for position in (-1, -2):
        site.position = position
        await site.ask()
    assert site.waited[-1] == pytest.approx(LONGEST_S - site.takes_s), "but nobody waits for longer"


async def test_one_person_who_goes_from_page_to_page_waits_for_no_rendering(site: Site) -> None:
    site.takes_s = 0.1
    for position in range(round(BURST_S / site.takes_s)):
        site.position = position
        await site.ask()
        site.now += 1.0
    assert site.waited == []
    for position in (-1, -2, -3):
        site.position = position
        await site.ask()
    assert len(site.waited) == 1 and 0 < site.waited[0] < LONGEST_S, "but who goes on asking does"
    site.now += SHARE * BURST_S
    for position in (-4, -5):
        site.position = position
        await site.ask()
    assert len(site.waited) == 1, "and has as much again after a while"


async def test_those_who_wait_for_the_next_rendering_share_it_too(site: Site) -> None:
    await site.ask()
    site.position = 2
    found = await asyncio.gather(*(site.ask() for _ in range(50)))
    assert (set(found), site.shared.rendered) == ({"2 at 2"}, 2)


async def test_what_one_party_alone_waits_for_is_its_own_work(site: Site) -> None:
    """So one that asks for ever new things has the share of one party, and takes nothing from the others."""
    await site.ask(by="user/eve")
    site.position = 2
    await asyncio.gather(*(site.ask(by="user/eve") for _ in range(20)))
    site.position = 3
    await asyncio.gather(*(site.ask(by=f"user/{number}") for number in range(20)))
    assert site.worked_for == ["user/eve", "user/eve", READERS]


async def test_answers_of_one_rendering_leave_one_after_the_other_with_a_pause_between(site: Site) -> None:
    left: list[str] = []

    async def other() -> None:
        for _ in range(20):
            await asyncio.sleep(0)
            left.append("other")

    async def reader() -> None:
        await site.ask()
        await site.shared.in_turn()
        left.append("reader")

    began = site.now
    await asyncio.gather(*(reader() for _ in range(5)), other())
    assert "reader,reader" not in ",".join(left)
    assert site.now - began >= 5 * PAUSE_S


async def test_an_answer_leaves_between_two_commits(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    committed = asyncio.Event()

    async def between_commits() -> None:
        await committed.wait()

    monkeypatch.setattr(TURNS, "between_commits", between_commits)
    leaving = asyncio.get_running_loop().create_task(site.shared.in_turn())
    await turns()
    assert not leaving.done()
    committed.set()
    await leaving


async def test_a_reader_who_goes_away_takes_the_answer_from_no_other(site: Site) -> None:
    site.gate.clear()
    first, second = started(site.ask()), started(site.ask())
    await turns()
    first.cancel()
    await asyncio.wait([first])
    site.gate.set()
    assert (await second, site.places) == ("1 at 1", 0)


async def test_a_refusal_is_not_kept_and_holds_no_place(site: Site) -> None:
    async def refuse() -> Response:
        raise Unavailable("The store is away.")

    for _ in range(2):
        with pytest.raises(Unavailable):
            await site.ask(render=refuse)
    assert (site.shared.rendered, site.places) == (2, 0)
    assert await site.ask() == "3 at 1"


async def test_refused_questions_are_forgotten_as_others_are(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_answers, "KEPT", 3)

    async def refuse() -> Response:
        raise Unavailable("The store is away.")

    for number in range(20):
        with pytest.raises(Unavailable):
            await site.ask(f"host-{number}", render=refuse)
    assert len(site.shared._questions) == 3


async def test_who_has_no_place_left_is_refused_alone(site: Site) -> None:
    def none_left() -> ExitStack:
        raise TooMany("128 calls are in progress.")

    with pytest.raises(TooMany):
        await site.shared.answer("overview", "user/bob", none_left, site.render)
    assert await site.ask() == "1 at 1"
    assert (await site.shared.answer("overview", "user/bob", none_left, site.render)).body == b"1 at 1", (
        "to share takes none"
    )


async def test_only_so_much_is_remembered(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_answers, "KEPT", 2)
    for key in ("a", "b", "c", "b"):
        await site.ask(key)
    assert site.shared.rendered == 3
    await site.ask("a")
    assert site.shared.rendered == 4, "what was asked for longest ago was forgotten"
    monkeypatch.setattr(shared_answers, "KEPT_BYTES", 0)
    await site.ask("d")
    await site.ask("d")
    assert site.shared.rendered == 6


async def test_a_large_answer_is_compressed_once_for_those_who_take_it_so(site: Site) -> None:
    async def large() -> Response:
        return Response(b"x" * 100_000, media_type="application/json")

    found = await site.shared.answer("large", "user/ann", site.place, large)
    plain, packed = await found.response("br, deflate"), await found.response("gzip, br")
    assert bytes(plain.body) == gzip.decompress(bytes(packed.body)) == b"x" * 100_000
    assert "content-encoding" not in plain.headers and packed.headers["content-encoding"] == "gzip"
    assert plain.headers["vary"] == packed.headers["vary"] == "Accept-Encoding"
    small = await site.shared.answer("small", "user/ann", site.place, site.render)
    assert (await small.response("gzip")).headers["content-type"].startswith("text/plain")


async def test_who_follows_takes_an_answer_as_of_what_was_told_or_later(site: Site) -> None:
    async def followed(after: int) -> str:
        found = await site.shared.answer("overview", "user/ann", site.place, site.render, after)
        return found.body.decode()

    site.position = 5
    assert await site.ask() == "1 at 5"
    site.position = 9
    assert (await followed(4), await followed(5)) == ("1 at 5", "1 at 5")
    assert await followed(6) == "2 at 9"
    assert await site.ask() == "2 at 9", "who asks gets what is true now"
    site.now += FRESH_S
    assert await followed(6) == "3 at 9"


def listed(*entries: str, key: str = "jobs", ages: bool = False) -> Listed:
    texts = [f'"{each}"' for each in entries]
    return Listed(key, list(entries), "", texts.__getitem__, ages=ages)


async def told(answer: Shared, known: str) -> dict[str, Any]:
    """What is told to one who has the answer ``known``."""
    frame = await answer.frame("/v1/jobs", known)
    event = zlib.decompressobj(wbits=-15).decompress(frame).decode()
    found: dict[str, Any] = json.loads(event.removeprefix("event: answer\ndata: "))
    return found


@pytest.mark.parametrize(
    ("before", "after", "parts"),
    [
        ("abc", "abcd", [[0, 2], "d"]),
        ("abc", "xabc", ["x", [0, 2]]),
        ("abcdef", "acxf", [[0, 0], [2, 2], "x", [5, 5]]),
        ("abc", "cab", [[2, 2], [0, 1]]),
        ("abc", "", []),
        ("", "ab", ["a", "b"]),
        ("ab", "aab", [[0, 0], [0, 1]]),
    ],
)
async def test_of_a_list_what_differs_is_told(before: str, after: str, parts: list[Any]) -> None:
    first = Shared(listed(*before), None, "1", 0.0)
    second = Shared(listed(*after), first, "2", 0.0)
    found = await told(second, "1")
    assert found == {
        "path": "/v1/jobs",
        "from": "1",
        "tag": "2",
        "list": "jobs",
        "nextPageToken": "",
        "parts": parts,
    }
    whole = await told(second, "0")
    assert (whole["from"], whole["parts"]) == ("", list(after)), "and all of it to others"


async def test_an_answer_that_says_the_same_is_no_news(site: Site) -> None:
    first = Shared(listed("a", "b"), None, "1", 0.0)
    second = Shared(listed("a", "c"), first, "2", 0.0)
    again = Shared(listed("a", "c"), second, "3", 0.0)
    assert again.tag == "2" and await again.frame("/v1/jobs", "2") == b""
    assert (await told(again, "1"))["parts"] == [[0, 0], "c"]
    old = Shared(listed("a", ages=True), None, "1", 0.0)
    known = Shared(listed("a", ages=True), old, "2", AGED_S - 1)
    aged = Shared(listed("a", ages=True), known, "3", AGED_S)
    assert (known.tag, aged.tag) == ("1", "3") and (await told(aged, "1"))["parts"] == ["a"]


@pytest.mark.parametrize("known", ["", "1"])
@pytest.mark.parametrize("count", [3, 3_000])
async def test_what_all_are_told_at_one_moment_is_made_once(known: str, count: int) -> None:
    made: list[int] = []

    def text(number: int) -> str:
        made.append(number)
        return f'"{number:040}"'

    first = Shared(Listed("hosts", list(range(count)), "", text), None, "1", 0.0)
    second = Shared(Listed("hosts", list(range(1, 2 * count, 2)), "", text), first, "2", 0.0)
    made.clear()
    frames = await asyncio.gather(*(second.frame("/v1/hosts", known) for _ in range(50)))
    assert len(set(frames)) == 1 and frames[0]
    assert len(made) <= count + 1, "with one look at its size"
