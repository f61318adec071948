"""Draw ``docs/access.md`` from the rules in the code: ``python docs/draw_access.py [--check]``."""

from __future__ import annotations

import sys
from pathlib import Path

from holdfast.identity import Kind
from holdfast_controller.core.access import RULES, Rule, Where

PAGE = Path(__file__).with_name("access.md")
HEAD = """# Who may do what
The table is drawn from the code by `python docs/draw_access.py`; a test keeps this page current, and another one
tries every call by every sort of caller (`tests/integration/controller/access_table.py`).

Everybody who calls has a certificate of the cluster's CA, and is who it says: `holdfast://CLUSTER/host/NAME`, or
`…/user/NAME`. What a user may do is looked up at each call, so a right that is given or taken counts at once. An
open stream (`logs -f`, `run`, a host's session) is looked at again when the rights of its reader change, and ends,
with the reason, if it may not go on.

## Roles
`holdfast user add NAME [--role ROLE] [--project PROJECT]` gives a role in one project, or everywhere:

| role | may |
|---|---|
| viewer | look at jobs and hosts, and read output |
| user | submit jobs, and act on their own |
| admin | act on everybody's jobs; everywhere also on hosts, users and tokens, and read the audit log |

- Whose a job is: who submitted it. It stays theirs when they leave; then admins act on it.
- A job in a project where the caller has no role **does not exist** for the caller: the same answer as for an id
  that was never given, and no place in lists. A job that the caller may look at but not act on is **refused**,
  with its owner's name.
- Hosts are shown to everybody who has a role somewhere, with the ids of the jobs that they hold.
- `admins` in `controller.toml` names users who are admins whatever roles they were given; so there is a first one.
- `holdfast user remove NAME` voids every certificate that NAME has. Added again, NAME needs a new token.
- Secrets are a user's own, or a project's, which its admins set and all who submit to it use. Nobody
  can read one back; see [secrets](secrets.md).
- `holdfast whoami` says who you are and what you may do.

## Calls
"""
TAIL = """
What has no rule is refused to everybody. The enrolment calls are served on a port of their own, where nothing else
is; see [joining](joining.md).

## Bounds
One user may have 128 calls in progress and 512 streams open, a host 32 of each; what comes then is refused with
RESOURCE_EXHAUSTED until some have ended. A message has 4 MB at most. What else is kept from whom:
[security](security.md).

## The audit log
`holdfast audit` shows the calls that change something (● in the table), who made each and how it ended, and all
refusals. It is `audit.jsonl` in the controller's state directory: JSON lines, on disk half a second after the call
at the latest, eight files of 16 MiB. A caller who is refused again and again is written down 20 times, then every
5 s; what was only counted stands with the next entry. Callers whom TLS turns away (no certificate, or one of
another CA) reach nothing, and are not in it.
"""
KINDS = {Kind.HOST: "hosts", Kind.USER: "users", Kind.CONTROLLER: "controllers"}
WHERE = {
    Where.CLUSTER: "everywhere",
    Where.SOME_PROJECT: "somewhere",
    Where.NEW_JOB: "in the new job's project",
    Where.JOB: "in the job's project",
    Where.SECRET: "somewhere for their own, admin of a project for its own, admin everywhere for any",
}


def who(rule: Rule) -> str:
    """Who may make a call, in words."""
    if rule.anyone:
        return "anyone, without a certificate"
    if rule.kinds == frozenset(Kind):
        return "anyone with a certificate"
    if rule.kinds != {Kind.USER}:
        return ", ".join(sorted(KINDS[kind] for kind in rule.kinds)) + ", for themselves"
    if rule.role is None:
        return "users"
    role = rule.role.name.lower()
    if rule.where is Where.OWN_JOB:
        return f"{role} in the job's project for their own job, admin there for any"
    return f"{role} {WHERE[rule.where]}"


def row(call: str, rule: Rule) -> str:
    """One call."""
    service, _, method = call.rpartition(".")[2].partition("/")
    return f"| {service} | {method} | {who(rule)} | {'●' if rule.changes else ''} |".replace("|  |", "| |")


def page() -> str:
    """The whole page."""
    rows = [row(call, rule) for call, rule in RULES.items()]
    return "\n".join([HEAD.rstrip("\n"), "| service | call | who | audited |", "|---|---|---|---|", *rows, TAIL])


if __name__ == "__main__":
    if "--check" in sys.argv and PAGE.read_text() != page():
        sys.exit("docs/access.md is out of date: run python docs/draw_access.py")
    if "--check" not in sys.argv:
        PAGE.write_text(page())
