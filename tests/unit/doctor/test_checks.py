"""What the doctor finds in the facts of a host, and what it tells to do about it."""

from __future__ import annotations

import pytest
from tests.unit.doctor.cases import CASES, Case

from holdfast.doctor import client, looks
from holdfast.doctor.findings import Finding, Status

FOUND = [(case, list(case.found)) for case in CASES]


def one(case: Case, found: list[Finding]) -> Finding:
    named = [finding for finding in found if finding.check == case.check]
    assert len(named) == 1, f"{case.check} is found {len(named)} times: {found}"
    return named[0]


@pytest.mark.parametrize(("case", "found"), FOUND, ids=[f"{c.check}-{c.status.value}-{c.saw[:20]}" for c in CASES])
def test_each_check_says_what_it_saw_and_what_mends_it(case: Case, found: list[Finding]) -> None:
    finding = one(case, found)
    assert finding.status is case.status, finding
    assert case.saw in finding.saw
    assert case.fix in "\n".join(finding.fix)


def test_every_check_has_facts_that_are_good_and_facts_that_are_not() -> None:
    seen: dict[str, set[bool]] = {}
    for case, found in FOUND:
        seen.setdefault(case.check, set()).add(one(case, found).status is Status.OK)
        assert {each.check for each in found} <= {other.check for other in CASES}, "a check without facts here"
    assert {check for check, kinds in seen.items() if kinds != {True, False}} == set()


def test_what_is_wrong_comes_with_a_reason_and_a_fix() -> None:
    for _, found in FOUND:
        for finding in found:
            if finding.status in (Status.WARNING, Status.ERROR):
                assert finding.why.endswith((".", ")")), finding
                assert all(finding.fix) and finding.fix, finding


def test_a_user_without_a_role_is_told_who_can_give_one() -> None:
    assert client.known(looks.Caller("ann", ("user in *",))).status is Status.OK
    finding = client.known(looks.Caller("ann"))
    assert finding.status is Status.ERROR
    assert finding.fix == ("holdfast user add ann",)
    refused = client.known(looks.Caller(problem="There is no user ann in this cluster.", fix="Ask an admin."))
    assert (refused.status, refused.fix) == (Status.ERROR, ("Ask an admin.",))
