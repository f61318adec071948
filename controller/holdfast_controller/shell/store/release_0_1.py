"""Payloads of events as release 0.1 stored them: to the next version, and back for clients of that release.

It stored what an event is about as text ("workerpool0-0 rank 3", "host gpu-07", "asked by ann"), what a rank raised
within its exit's message, and rules of the hang detector by their number. This is the only place that reads such text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from holdfast._session.codec import output_uri_in
from holdfast._session.reports import raised_in
from holdfast.hang.judge.finding import NUMBERS, Rule
from holdfast_controller.core.model.recovery import EndReason, RankName, Related, related_in_words

Payload = dict[str, Any]

_RANK = re.compile(r"(\S+) rank (\d+)")


def _ranks(names: list[str]) -> list[Payload]:
    found = map(_RANK.fullmatch, names)
    return [{"worker": named[1], "rank": int(named[2])} for named in found if named]


def _related(text: str) -> Payload:
    for begin, name in (("host ", "host"), ("job ", "job"), ("asked by ", "user")):
        if text.startswith(begin):
            return {name: text.removeprefix(begin)}
    return {"ranks": _ranks(text.split(" and "))}


def _recovery(old: Payload) -> Payload:
    new = {**old, "related": _related(old.get("related", ""))}
    if new.get("recover") == "":
        new["recover"] = None
    return new


def _hang(old: Payload) -> Payload:
    new = {**old, "suspects": _ranks(old.get("suspects", []))}
    if "rule" in old:
        new["rule"] = Rule(old["rule"]).value
    return new


def _exit(old: Payload) -> Payload:
    """Take what a rank raised out of its exit's message."""
    exit_ = old["exit"]
    return {**old, "exit": {**exit_, "raised": raised_in(exit_.get("message", ""))}}


def _submitted(old: Payload) -> Payload:
    """Take the job's base output directory out of its spec."""
    return {**old, "gang": {**old["gang"], "output_uri": output_uri_in(old["spec_json"])}}


NEWER: dict[str, Callable[[Payload], Payload]] = {
    "RestartDecided": _recovery,
    "AttemptEnded": _recovery,
    "CauseFound": _recovery,
    "JobSubmitted": _submitted,
    "RankExited": _exit,
    "LateExitFound": _exit,
    "StrangerEnded": _exit,
    "HangNoticed": _hang,
    "HangDiagnosed": _hang,
    "HangJudged": _hang,
}
"""By type: version 2 of a payload of version 1."""


# --- Back --------------------------------------------------------------------------------------------------------


def as_released(name: str, payload: Payload) -> Payload:
    """The newest payload of an event of a job as release 0.1 had it, for its clients; drop this with 0.3."""
    if name not in NEWER:
        return payload
    old = dict(payload)
    if "related" in old:
        about = old["related"]
        ranks = tuple(RankName(**rank) for rank in about.get("ranks", []))
        related = Related(ranks, about.get("host", ""), about.get("job", ""), about.get("user", ""))
        old["related"] = related_in_words(related, EndReason(old["end_reason"]))
    if "recover" in old:
        old["recover"] = old["recover"] or ""
    if "suspects" in old:
        old["suspects"] = [str(RankName(**rank)) for rank in old["suspects"]]
    if "rule" in old:
        # A rule that is newer than that release keeps its name; of a later finding it knew nothing.
        rule = old.pop("rule")
        if name == "HangNoticed":
            old["rule"] = NUMBERS.get(Rule(rule), rule)
    return old
