"""What the table of rights says where the calls of ``test_access`` don't reach."""

from __future__ import annotations

import pytest

from holdfast._base.identity import Credential, Identity, Kind
from holdfast.errors import Denied, NotFound, Unauthenticated
from holdfast_controller.core.access.rules import RULES, Registry, Target, refusal
from holdfast_controller.core.model.accounts.token_buckets import Buckets
from holdfast_controller.core.model.accounts.users import People, Role

GET = "holdfast.v1.JobService/GetJob"
CANCEL = "holdfast.v1.JobService/CancelJob"
CREATE = "holdfast.v1.JobService/CreateJob"
DRAIN = "holdfast.v1.HostService/Drain"
JOB = Target("train-1", "vision", "owen")


def caller(
    name: str = "ann", *, issued_at: float = 100.0, cluster: str = "lab", kind: Kind = Kind.USER
) -> Credential:
    return Credential(Identity(cluster, kind, name), issued_at, issued_at + 1000)


def registry(roles: dict[str, Role] | None = None, **people: object) -> Registry:
    known = {"ann": roles} if roles else {}
    return Registry("lab", People(roles=known, **people), frozenset({"root"}))  # type: ignore[arg-type]


def test_a_call_without_a_rule_is_refused_even_to_an_admin() -> None:
    problem = refusal(registry(), "holdfast.v1.JobService/ShredJob", caller("root"), Target())
    assert isinstance(problem, Denied)
    assert "No rule says who may call holdfast.v1.JobService/ShredJob" in str(problem)


@pytest.mark.parametrize("method", [m for m, rule in RULES.items() if not rule.anyone])
def test_nobody_and_strangers_get_nowhere(method: str) -> None:
    assert isinstance(refusal(registry(), method, None, JOB), Unauthenticated)
    assert isinstance(refusal(registry(), method, caller("root", cluster="other"), JOB), Denied)


def test_only_what_was_issued_until_the_removal_is_void() -> None:
    removed = registry({"*": Role.ADMIN}, void_until={"user/ann": 100.0})
    assert isinstance(refusal(removed, GET, caller(issued_at=100.0), JOB), Unauthenticated)
    assert refusal(removed, GET, caller(issued_at=100.5), JOB) is None
    assert refusal(removed, "holdfast.v1.AgentService/Session", caller(kind=Kind.HOST), JOB) is None


@pytest.mark.parametrize(
    ("target", "allowed"),
    [
        (Target(), {"user in vision", "admin in vision", "admin everywhere"}),
        (Target(owner="ann"), {"user in vision", "admin in vision", "admin everywhere"}),
        (Target(project="vision"), {"admin in vision", "admin everywhere"}),
        (Target(project="speech"), {"admin everywhere"}),
        (Target(owner="bob"), {"admin everywhere"}),
        (Target(owner="*"), {"admin everywhere"}),
        (Target(project="vision", owner="bob"), set()),
    ],
)
def test_secrets_are_for_their_holders_and_for_admins(target: Target, allowed: set[str]) -> None:
    roles = {
        "viewer in vision": {"vision": Role.VIEWER},
        "user in vision": {"vision": Role.USER},
        "admin in vision": {"vision": Role.ADMIN},
        "admin everywhere": {"*": Role.ADMIN},
    }
    for method in ("SetSecret", "ListSecrets", "RemoveSecret"):
        call = f"holdfast.v1.SecretService/{method}"
        let = {who for who, role in roles.items() if refusal(registry(role), call, caller(), target) is None}
        assert let == allowed


def test_the_higher_of_two_roles_counts() -> None:
    both = registry({"*": Role.VIEWER, "vision": Role.ADMIN})
    assert refusal(both, CANCEL, caller(), JOB) is None
    assert isinstance(refusal(both, CANCEL, caller(), Target("j", "speech", "owen")), Denied)
    assert isinstance(refusal(both, DRAIN, caller(), Target()), Denied), "admin of a project is not admin of hosts"


def test_an_owner_who_lost_the_project_lost_the_job() -> None:
    elsewhere = registry({"speech": Role.USER})
    mine = Target("train-1", "vision", "ann")
    assert isinstance(refusal(elsewhere, CANCEL, caller(), mine), NotFound)
    assert isinstance(refusal(registry({"vision": Role.VIEWER}), CANCEL, caller(), mine), Denied)


def test_a_job_that_may_not_be_known_looks_like_one_that_never_was() -> None:
    hidden = refusal(registry({"speech": Role.ADMIN}), GET, caller(), JOB)
    absent = refusal(registry({"*": Role.ADMIN}), GET, caller(), Target("train-1"))
    assert (type(hidden), str(hidden)) == (type(absent), str(absent))


def test_refusals_say_what_one_is_and_whom_to_ask() -> None:
    problem = refusal(registry({"speech": Role.USER, "*": Role.VIEWER}), CREATE, caller(), Target(project="vision"))
    assert str(problem) == (
        "ann may not submit jobs to project vision. ann is viewer everywhere, user in speech. Ask an admin."
    )


def test_buckets_empty_fill_and_forget() -> None:
    buckets = Buckets(burst=2, per_s=0.5, most=2)
    assert [buckets.spend("a", 0.0) for _ in range(3)] == [True, True, False]
    assert buckets.spend("b", 0.0), "one is not the other"
    assert not buckets.has("a", 1.9) and buckets.has("a", 2.1)
    assert [buckets.spend("a", 100.0) for _ in range(3)] == [True, True, False], "no more than the burst"
    buckets.spend("c", 100.0)
    assert buckets.spend("b", 100.0)
    assert len(buckets._left) == 2
