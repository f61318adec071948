"""Access rules: one for each RPC, and one decision. A call without a rule is refused.

A caller is known by its certificate: a kind (host, user, controller), a name, and when it was issued. Users have
roles in projects. A rule says which kinds may call, and of users which role it takes and where:

- in the **cluster**: the role over all projects (a role in project ``*``);
- in **some project**: the role anywhere; what is shown is then limited to what the caller may see;
- in the **project** that a new job names;
- in the **job's project**;
- for **one's own job** that role, for another user's the role of admin in the job's project, or, where a call acts with
  the rights of the job's account, none at all;
- for **one's own** of what isn't in a project that role anywhere, for other users' that of admin over all projects;
- for **one's own schedule or template** that role in its project, for another user's that of admin there;
- for **one's own secret** that role anywhere, for a project's the role of admin there, for other users' that of
  admin over all projects.

A job in a project in which the caller has no role doesn't exist for it: the answer is that of an id that was never
given. A job that the caller may look at but not act on is refused with the name of its owner.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping

from holdfast._base.dataclass import dataclass
from holdfast._base.identity import Credential, Kind
from holdfast._base.projects import EVERY_PROJECT
from holdfast.errors import Denied, HoldfastError, InvalidInput, Unauthenticated, Violation
from holdfast_controller.core.access.audit import Trail
from holdfast_controller.core.model.accounts.users import People, Role, role_in
from holdfast_controller.core.step.lookup import unknown_job


class Where(enum.Enum):
    """The scope in which a user needs the role that a rule names."""

    CLUSTER = "the cluster"
    SOME_PROJECT = "some project"
    NEW_JOB = "the project of the new job"
    JOB = "the job's project"
    OWN_JOB = "own job"
    OWN_JOB_ONLY = "own job, whatever the role"
    SECRET = "own secret"
    OWN = "own"
    PLAN = "own schedule or template"


@dataclass(frozen=True)
class Rule:
    """The kinds of parties that may call; of users, with which role and where. ``changes``: the call is audited."""

    kinds: frozenset[Kind]
    role: Role | None = None
    where: Where = Where.CLUSTER
    changes: bool = False
    anyone: bool = False
    """No certificate is asked for."""


def _user(role: Role | None, where: Where, *, changes: bool = False) -> Rule:
    return Rule(frozenset({Kind.USER}), role, where, changes)


_LOOK = _user(Role.VIEWER, Where.JOB)
_ACT = _user(Role.USER, Where.OWN_JOB, changes=True)
_LOOK_AROUND = _user(Role.VIEWER, Where.SOME_PROJECT)
_ADMIN = _user(Role.ADMIN, Where.CLUSTER, changes=True)
_HOST = Rule(frozenset({Kind.HOST}))
_CERTIFIED = Rule(frozenset(Kind))
_ANYONE = Rule(frozenset(), anyone=True)

RULES: Mapping[str, Rule] = {
    "holdfast.v1.JobService/CreateJob": _user(Role.USER, Where.NEW_JOB, changes=True),
    "holdfast.v1.JobService/DryRunJob": _user(Role.USER, Where.NEW_JOB),
    "holdfast.v1.JobService/GetJob": _LOOK,
    "holdfast.v1.JobService/GetGoodput": _LOOK,
    "holdfast.v1.JobService/GetSeries": _LOOK,
    "holdfast.v1.JobService/ListJobs": _LOOK_AROUND,
    "holdfast.v1.JobService/CancelJob": _ACT,
    "holdfast.v1.JobService/RestartJob": _ACT,
    "holdfast.v1.JobService/PauseJob": _ACT,
    "holdfast.v1.JobService/ResumeJob": _ACT,
    "holdfast.v1.JobService/DeleteJob": _ACT,
    "holdfast.v1.JobService/WatchJob": _LOOK,
    "holdfast.v1.JobService/StreamLogs": _LOOK,
    # What is typed is done by the account that the job runs as.
    "holdfast.v1.JobService/WriteTerminal": _user(Role.USER, Where.OWN_JOB_ONLY, changes=True),
    "holdfast.v1.JobService/OpenShell": _user(Role.USER, Where.OWN_JOB_ONLY, changes=True),
    # The shell's beginning and end are on record, as are commands that it was opened with.
    "holdfast.v1.JobService/WriteShell": _user(Role.USER, Where.OWN_JOB_ONLY),
    "holdfast.v1.JobService/InjectFault": _ACT,
    "holdfast.v1.HangService/HoldJob": _ACT,
    # Dumping a rank stops it for a moment.
    "holdfast.v1.HangService/TakeStacks": _ACT,
    "holdfast.v1.HangService/GetHangEvidence": _LOOK,
    "holdfast.v1.HangService/RecordSamples": _LOOK,
    "holdfast.v1.HostService/ListHosts": _LOOK_AROUND,
    "holdfast.v1.HostService/GetHost": _LOOK_AROUND,
    "holdfast.v1.HostService/ListHostEvents": _LOOK_AROUND,
    "holdfast.v1.HostService/WatchHosts": _LOOK_AROUND,
    "holdfast.v1.HostService/Cordon": _ADMIN,
    "holdfast.v1.HostService/Uncordon": _ADMIN,
    "holdfast.v1.HostService/Drain": _ADMIN,
    "holdfast.v1.HostService/FenceHost": _ADMIN,
    "holdfast.v1.HostService/DismissWork": _ADMIN,
    "holdfast.v1.HostService/CancelMaintenance": _ADMIN,
    "holdfast.v1.HostService/CheckHost": _ADMIN,
    "holdfast.v1.ClusterService/GetStatus": _LOOK_AROUND,
    "holdfast.v1.ClusterService/SumGoodput": _LOOK_AROUND,
    "holdfast.v1.ClusterService/ListShares": _LOOK_AROUND,
    "holdfast.v1.ClusterService/SetShare": _ADMIN,
    "holdfast.v1.ClusterService/SetGuarantee": _ADMIN,
    "holdfast.v1.ClusterService/ListQuotas": _LOOK_AROUND,
    "holdfast.v1.ClusterService/SetQuota": _ADMIN,
    "holdfast.v1.ClusterService/ListReservations": _LOOK_AROUND,
    "holdfast.v1.ClusterService/CreateReservation": _ADMIN,
    "holdfast.v1.ClusterService/DeleteReservation": _ADMIN,
    "holdfast.v1.ClusterService/WatchChanges": _LOOK_AROUND,
    # It counts over all projects.
    "holdfast.v1.ClusterService/GetMetrics": _user(Role.VIEWER, Where.CLUSTER),
    "holdfast.v1.BundleService/GetBundle": _user(Role.USER, Where.SOME_PROJECT),
    "holdfast.v1.BundleService/UploadBundle": _user(Role.USER, Where.SOME_PROJECT, changes=True),
    "holdfast.v1.BundleService/FetchBundle": _HOST,
    "holdfast.v1.SecretService/SetSecret": _user(Role.USER, Where.SECRET, changes=True),
    "holdfast.v1.SecretService/ListSecrets": _user(Role.USER, Where.SECRET),
    "holdfast.v1.SecretService/RemoveSecret": _user(Role.USER, Where.SECRET, changes=True),
    "holdfast.v1.ScheduleService/CreateSchedule": _user(Role.USER, Where.NEW_JOB, changes=True),
    "holdfast.v1.ScheduleService/ListSchedules": _LOOK_AROUND,
    "holdfast.v1.ScheduleService/PauseSchedule": _user(Role.USER, Where.PLAN, changes=True),
    "holdfast.v1.ScheduleService/ResumeSchedule": _user(Role.USER, Where.PLAN, changes=True),
    "holdfast.v1.ScheduleService/RemoveSchedule": _user(Role.USER, Where.PLAN, changes=True),
    "holdfast.v1.ScheduleService/CreateTemplate": _user(Role.USER, Where.NEW_JOB, changes=True),
    "holdfast.v1.ScheduleService/ListTemplates": _LOOK_AROUND,
    "holdfast.v1.ScheduleService/RemoveTemplate": _user(Role.USER, Where.PLAN, changes=True),
    "holdfast.v1.AgentService/Session": _HOST,
    "holdfast.v1.AgentService/Transfer": _HOST,
    "holdfast.v1.AccessService/GetCaller": _user(None, Where.CLUSTER),
    "holdfast.v1.AccessService/AddUser": _ADMIN,
    "holdfast.v1.AccessService/MapUser": _ADMIN,
    "holdfast.v1.AccessService/ListUsers": _user(Role.ADMIN, Where.CLUSTER),
    "holdfast.v1.AccessService/RemoveUser": _ADMIN,
    "holdfast.v1.AccessService/SetMotd": _ADMIN,
    "holdfast.v1.AccessService/CreateToken": _ADMIN,
    "holdfast.v1.AccessService/RemoveHost": _ADMIN,
    "holdfast.v1.AccessService/ReadAudit": _user(Role.ADMIN, Where.CLUSTER),
    "holdfast.v1.AccessService/ExportAudit": _user(Role.ADMIN, Where.CLUSTER),
    "holdfast.v1.WebService/CreateLogin": _user(Role.VIEWER, Where.SOME_PROJECT, changes=True),
    "holdfast.v1.WebService/ListSessions": _user(Role.VIEWER, Where.OWN),
    # Each request is held to the rule of the call that it stands for.
    "holdfast.v1.WebService/Relay": _user(Role.VIEWER, Where.SOME_PROJECT),
    "holdfast.v1.WebService/EndSession": _user(Role.VIEWER, Where.OWN, changes=True),
    "holdfast.v1.EnrolmentService/GetAuthority": _ANYONE,
    "holdfast.v1.EnrolmentService/Enrol": _ANYONE,
    "holdfast.v1.EnrolmentService/Renew": _ANYONE,
    "holdfast.v1.EnrolmentService/GetProvider": _ANYONE,
    "holdfast.v1.EnrolmentService/SignIn": _ANYONE,
    "grpc.health.v1.Health/Check": _CERTIFIED,
    "grpc.health.v1.Health/List": _CERTIFIED,
    "grpc.health.v1.Health/Watch": _CERTIFIED,
    "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": _LOOK_AROUND,
}
"""By SERVICE/METHOD, the service with its package."""

ANSWERED_ALIKE = frozenset(
    {
        *(f"holdfast.v1.JobService/{name}" for name in ("GetJob", "GetGoodput", "GetSeries", "ListJobs")),
        *(f"holdfast.v1.ClusterService/{name}" for name in ("GetStatus", "ListShares", "SumGoodput")),
        *(f"holdfast.v1.HostService/{name}" for name in ("ListHosts", "GetHost", "ListHostEvents")),
    }
)
"""Calls whose answers depend on nothing of a user but the projects that are seen, and whether the job is the user's."""


@dataclass(frozen=True)
class Target:
    """The job, secret, schedule or such that a call is about; empty for other calls.

    ``owner`` is None where there is no such job (yet), and empty for a secret or session of the caller's own.
    """

    job_id: str = ""
    project: str = ""
    owner: str | None = None


@dataclass(frozen=True)
class Registry:
    """The facts that decide access: the cluster's name, its users, and the admins that its configuration names."""

    cluster: str
    people: People
    admins: frozenset[str]

    def grants(self, user: str) -> Mapping[str, Role]:
        """The roles of a user, by project."""
        if user in self.admins:
            return {EVERY_PROJECT: Role.ADMIN}
        return self.people.roles.get(user, {})

    def knows(self, user: str) -> bool:
        """Whether a user of that name has a role, or has ever signed in."""
        return bool(self.grants(user)) or user in self.people.signed_in

    def trail(self, caller: Credential | None) -> Trail:
        """The part of the audit log that a caller's calls are kept in."""
        if caller is None:
            return Trail.UNKNOWN
        admin = caller.identity.kind is Kind.USER and _covers(
            self.grants(caller.identity.name).get(EVERY_PROJECT), Role.ADMIN
        )
        return Trail.ADMINS if admin and not is_void(self.people, caller) else Trail.USERS

    def sees(self, user: str) -> Callable[[str], bool]:
        """A function of a project's name: whether the user may see the project's jobs."""
        seen = self.seen(user)
        if EVERY_PROJECT in seen:
            return lambda project: True
        return seen.__contains__

    def seen(self, user: str) -> frozenset[str]:
        """The projects that the user may see; ``EVERY_PROJECT`` alone where that is so."""
        grants = self.grants(user)
        return frozenset({EVERY_PROJECT}) if EVERY_PROJECT in grants else frozenset(grants)


def refusal(registry: Registry, method: str, caller: Credential | None, target: Target) -> HoldfastError | None:
    """The error that refuses the call; None when it is allowed. ``method`` is a key of ``RULES``."""
    rule = RULES.get(method)
    if rule is None:
        return Denied(f"No rule says who may call {method}.", fix="Use a release that knows this call.")
    if rule.anyone:
        return None
    if caller is None:
        return Unauthenticated("This call takes a certificate of the cluster.", fix=_LOG_IN)
    who = caller.identity
    if who.cluster != registry.cluster:
        return Denied(f"{who} is of another cluster; this one is {registry.cluster!r}.")
    if is_void(registry.people, caller):
        return Unauthenticated(
            f"The certificate of {who.kind.value} {who.name} is void: it was removed.", fix=_AGAIN
        )
    if who.kind not in rule.kinds:
        wanted = " or ".join(sorted(kind.value for kind in rule.kinds))
        return Denied(f"{who} is a {who.kind.value}; this call is for a {wanted}.")
    if who.kind is not Kind.USER or rule == _CERTIFIED:
        return None
    return _user_refusal(registry, rule, who.name, target)


def is_void(people: People, caller: Credential) -> bool:
    """Whether the certificate was issued before its holder was removed."""
    until = people.void_until.get(caller.party)
    return until is not None and caller.issued_at <= until


def _user_refusal(registry: Registry, rule: Rule, user: str, target: Target) -> HoldfastError | None:
    grants = registry.grants(user)
    if not grants and user in registry.people.signed_in:
        return Unauthenticated(f"The sign-in of {user} has ended.", fix=SIGN_IN)
    if not grants:
        return Denied(f"There is no user {user} in this cluster.", fix=f"Ask an admin: holdfast user add {user}")
    needed = rule.role
    if needed is None:
        return None
    match rule.where:
        case Where.CLUSTER:
            if _covers(grants.get(EVERY_PROJECT), needed):
                return None
            return Denied(f"This takes the role of {_word(needed)} over all projects.", fix=_has(user, grants))
        case Where.SOME_PROJECT:
            return None if any(role.covers(needed) for role in grants.values()) else _lacks(user, grants, needed)
        case Where.NEW_JOB:
            if _covers(role_in(grants, target.project), needed):
                return None
            return Denied(f"{user} may not submit jobs to project {target.project}.", fix=_has(user, grants))
        case Where.JOB | Where.OWN_JOB | Where.OWN_JOB_ONLY:
            return _job_refusal(grants, needed, rule.where, user, target)
        case Where.PLAN:
            return _plan_refusal(grants, needed, user, target)
        case Where.SECRET:
            return _secret_refusal(grants, needed, user, target)
        case Where.OWN:
            return _own_refusal(grants, needed, user, target, "Other users' sessions")


def _job_refusal(
    grants: Mapping[str, Role], needed: Role, where: Where, user: str, target: Target
) -> HoldfastError | None:
    role = role_in(grants, target.project) if target.owner is not None else None
    if role is None:
        return unknown_job(target.job_id)
    if where is Where.OWN_JOB_ONLY and target.owner != user:
        return Denied(f"The job {target.job_id} is {target.owner}'s; only its owner may do that.")
    if where is Where.OWN_JOB and target.owner != user:
        if role is Role.ADMIN:
            return None
        problem = f"The job {target.job_id} is {target.owner}'s; only its owner and admins may do that."
        return Denied(problem, fix=_has(user, grants))
    if role.covers(needed):
        return None
    problem = f"This takes the role of {_word(needed)} in project {target.project}."
    return Denied(problem, fix=_has(user, grants))


def _plan_refusal(grants: Mapping[str, Role], needed: Role, user: str, target: Target) -> HoldfastError | None:
    """The refusal for a schedule or template; one that isn't there is refused by the call itself."""
    role = role_in(grants, target.project)
    if not _covers(role, needed):
        return Denied(
            f"This takes the role of {_word(needed)} in project {target.project}.", fix=_has(user, grants)
        )
    if target.owner and target.owner != user and role is not Role.ADMIN:
        problem = f"It is {target.owner}'s; only its owner and admins may do that."
        return Denied(problem, fix=_has(user, grants))
    return None


def _secret_refusal(grants: Mapping[str, Role], needed: Role, user: str, target: Target) -> HoldfastError | None:
    if target.project and target.owner:
        return InvalidInput([Violation("user", "goes without project", "leave one of them out")])
    if target.project:
        if _covers(role_in(grants, target.project), Role.ADMIN):
            return None
        problem = f"This takes the role of admin in project {target.project}: all its jobs may use its secrets."
        return Denied(problem, fix=_has(user, grants))
    return _own_refusal(grants, needed, user, target, "Other users' secrets")


def _own_refusal(
    grants: Mapping[str, Role], needed: Role, user: str, target: Target, others: str
) -> HoldfastError | None:
    if target.owner and target.owner != user:
        if _covers(grants.get(EVERY_PROJECT), Role.ADMIN):
            return None
        return Denied(f"{others} are for admins of all projects.", fix=_has(user, grants))
    return None if any(role.covers(needed) for role in grants.values()) else _lacks(user, grants, needed)


def _lacks(user: str, grants: Mapping[str, Role], needed: Role) -> Denied:
    return Denied(f"This takes the role of {_word(needed)} in some project.", fix=_has(user, grants))


def _covers(role: Role | None, needed: Role) -> bool:
    return role is not None and role.covers(needed)


def _word(role: Role) -> str:
    return role.name.lower()


def _has(user: str, grants: Mapping[str, Role]) -> str:
    roles = [
        f"{_word(role)} everywhere" if project == EVERY_PROJECT else f"{_word(role)} in {project}"
        for project, role in sorted(grants.items())
    ]
    return f"{user} is {', '.join(roles)}. Ask an admin."


SIGN_IN = "Sign in again: holdfast login --oidc"
_LOG_IN = "Ask an admin for a token: holdfast user token NAME"
_AGAIN = "If that was a mistake, ask an admin to add it again, and for a new token."
