"""Secrets: set and delete them, and find the holder of a name. Values come here encrypted only.

A secret belongs to a user or to a project. A job names it; whose it is, is decided when the job is submitted, the
owner's own before the project's, and stays so: one of the same name that is set later does not replace it.
"""

from __future__ import annotations

import re

from holdfast._base.secret import NAME_PATTERN, NAME_RULE
from holdfast.errors import InvalidInput, NotFound, Violation, WrongState
from holdfast_controller.core.events import access as ev
from holdfast_controller.core.events.access import holder_in_words
from holdfast_controller.core.model.accounts.users import People
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.gang import Gang
from holdfast_controller.core.step.access_commands import SecretGiven, SecretRemovalAsked
from holdfast_controller.core.step.actions import KeepSecret, Refuse, Reply
from holdfast_controller.core.step.step import Step

MAX_OF_ONE = 100
"""Secrets of one holder."""
MAX_SECRETS = 10_000
SHOWN_JOBS = 5


def on_secret_given(step: Step, asked: SecretGiven) -> None:
    """Store a secret's value, in place of an earlier one of that name and holder."""
    secrets = step.cluster.people.secrets
    own = secrets.get(asked.holder, {})
    problem = None if is_name(asked.name) else Violation("name", "is no name of a secret", NAME_RULE)
    if not is_name(asked.holder.partition("/")[2]):
        problem = Violation("project", "is no name of a project", NAME_RULE)
    if problem is None and asked.name not in own:
        if len(own) >= MAX_OF_ONE:
            problem = Violation(
                "name", f"{holder_in_words(asked.holder)} has {MAX_OF_ONE} secrets already", "remove some"
            )
        elif sum(map(len, secrets.values())) >= MAX_SECRETS:
            problem = Violation("name", f"there are {MAX_SECRETS} secrets already", "remove some")
    if problem is not None:
        step.do(Refuse(asked.token, InvalidInput([problem])))
        return
    step.emit(ev.SecretSet(at=step.now.wall, holder=asked.holder, name=asked.name, by=asked.by))
    step.do(KeepSecret(asked.holder, asked.name, asked.sealed))
    step.do(Reply(asked.token, asked.name))


def on_secret_removal(step: Step, asked: SecretRemovalAsked) -> None:
    """Delete a secret, unless jobs that have not ended need it for their next launch."""
    if asked.name not in step.cluster.people.secrets.get(asked.holder, {}):
        problem = f"{holder_in_words(asked.holder)} has no secret of that name."
        step.do(Refuse(asked.token, NotFound(problem[0].upper() + problem[1:], fix="See: holdfast secret list")))
        return
    jobs = [] if asked.force else users_of(step.cluster, asked.holder, asked.name)
    if jobs:
        more = f" and {len(jobs) - SHOWN_JOBS} more" if len(jobs) > SHOWN_JOBS else ""
        problem = f"It is needed at the next launch of {', '.join(jobs[:SHOWN_JOBS])}{more}."
        fix = "Wait for their end, or remove it with --force: what runs keeps it, what is launched again fails."
        step.do(Refuse(asked.token, WrongState(problem, fix=fix)))
        return
    step.emit(ev.SecretRemoved(at=step.now.wall, holder=asked.holder, name=asked.name, by=asked.by))
    step.do(KeepSecret(asked.holder, asked.name, None))
    step.do(Reply(asked.token, asked.name))


def holder_of(people: People, owner: str, project: str, name: str) -> str:
    """The holder of the secret that a job of that owner and project means by a name; empty if it may use none."""
    for holder in (f"user/{owner}", f"project/{project}"):
        if name in people.secrets.get(holder, {}):
            return holder
    return ""


def users_of(cluster: Cluster, holder: str, name: str) -> list[str]:
    """Ids of the jobs that have not ended and name the secret, oldest first, and schedules whose jobs do."""

    def named_in(gang: Gang) -> bool:
        return any(
            (each.holder, each.secret) == (holder, name) for pool in gang.pools for each in pool.task.secrets
        )

    jobs = [job.id for job in cluster.jobs.whole.values() if not job.terminal and named_in(job.gang)]
    return jobs + [f"schedule {key}" for key, each in cluster.schedules.items() if named_in(each.plan.gang)]


def is_name(name: str) -> bool:
    """Whether ``name`` is a valid name of a secret."""
    return re.fullmatch(NAME_PATTERN, name) is not None
