"""Guesses of the page's codes and cookies: they wait, are on record, and learn nothing."""

from __future__ import annotations

import pytest
from tests.integration.controller.calls.web.test_web import Site, config, site
from tests.integration.controller.web import WITHIN_S

from holdfast.v1 import access_pb2
from holdfast_controller.shell.web import browsers
from holdfast_controller.shell.web.browsers import COOKIE

__all__ = ["config", "site"]
pytestmark = pytest.mark.anyio


async def test_guessed_codes_are_on_record_and_neither_words_nor_their_number_help_a_guess(site: Site) -> None:
    """One that was used and one that never was get the same answer; of 60 each is counted, and few are written."""
    code = await site.code("user/ann")
    async with site.browser() as browser:
        assert (await browser.post("/web/login", json={"code": code})).status_code == 200
    async with site.browser() as thief:
        used = await thief.post("/web/login", json={"code": code})
        never = await thief.post("/web/login", json={"code": "x" * len(code)})
        assert (used.status_code, used.content) == (never.status_code, never.content)
        for _ in range(58):
            await thief.post("/web/login", json={"code": "y" * len(code)})
    async with site.browser() as browser:
        # Who has the right one is let in beside them.
        assert (await browser.post("/web/login", json={"code": await site.code("user/ann")})).status_code == 200
    answer = await site.people.ReadAudit(access_pb2.ReadAuditRequest(limit=1000), timeout=WITHIN_S)
    found = [each for each in answer.entries if each.call == "WebService/SignIn"]
    refused = [each for each in found if each.outcome != "OK"]
    assert [each.who for each in found if each.outcome == "OK"] == ["user/ann"] * 2
    assert sum(each.unwritten or 1 for each in refused) == 60 and len(refused) < 30
    assert {each.peer for each in refused} == {"127.0.0.1"}
    assert code not in str(answer)


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few requests of an address that is signed in nowhere."""
    monkeypatch.setattr(browsers, "OUTSIDERS_BURST", 10)
    monkeypatch.setattr(browsers, "OUTSIDERS_PER_S", 0.01)


async def test_who_is_signed_in_nowhere_asks_so_often_over_one_connection_and_then_waits_for_another(
    strict: None, site: Site
) -> None:
    """So guesses of cookies wait for handshakes, which are done in turns; who is signed in notices nothing."""
    async with site.signed_in("user/ann") as ann, site.browser() as guesses:
        answers = [
            await guesses.get("/v1/status", headers={"Cookie": f"{COOKIE}=guess-{number}"}) for number in range(12)
        ]
        assert {each.status_code for each in answers} == {401}
        # The first of the ten was to sign in.
        assert [each.headers.get("connection") for each in answers] == [None] * 9 + ["close"] * 3
        document = await guesses.get("/")
        assert (document.status_code, document.headers["connection"]) == (200, "close")
        for _ in range(12):
            answer = await ann.get("/v1/status")
            assert answer.status_code == 200 and "connection" not in answer.headers
