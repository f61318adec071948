"""Templates: job files with a name, kept in versions that never change."""

from __future__ import annotations

from holdfast._base import projects
from holdfast.errors import Denied, InvalidInput, NotFound, Violation
from holdfast_controller.core import events as ev
from holdfast_controller.core.access.rules import Registry
from holdfast_controller.core.model.accounts.users import Role, role_in
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.schedules import Template, TemplateVersion, key_of
from holdfast_controller.core.step.actions import Refuse, Reply
from holdfast_controller.core.step.schedule_commands import TemplateAsked, TemplateRemovalAsked
from holdfast_controller.core.step.step import Step

MOST_OF_ONE, MOST = 100, 10_000
"""Templates of one user, and of all."""
MOST_CHARS, MOST_CHARS_OF_ALL = 1 << 18, 1 << 22
"""Of one version, and of all versions of a template."""
MOST_BYTES, VERSION_BYTES = 16 << 20, 1 << 10
"""Of all versions of all templates of one user, each of which counts as so much more than its text."""
_SEE = "See: holdfast template list"


def on_template(step: Step, asked: TemplateAsked | TemplateRemovalAsked) -> None:
    """Keep a template's next version, or remove a template. What is the newest version already makes no other."""
    key = key_of(asked.project, asked.name)
    template = step.cluster.templates.get(key)
    if isinstance(asked, TemplateRemovalAsked):
        if template is None:
            step.do(Refuse(asked.token, _unknown(asked.project, asked.name)))
            return
        step.emit(ev.TemplateRemoved(project=asked.project, name=asked.name, at=step.now.wall, by=asked.by))
        step.do(Reply(asked.token, key))
        return
    if template is not None and not _may_change(step, template, asked.by):
        problem = f"The template {asked.name} is {template.owner}'s; only its owner and admins may change it."
        step.do(Refuse(asked.token, Denied(problem, fix="Choose another name.")))
        return
    if (wrong := _violation(step.cluster, asked, template)) is not None:
        step.do(Refuse(asked.token, InvalidInput([wrong])))
        return
    version = template.newest if template is not None else 0
    if template is None or template.versions[version].job_json != asked.job_json:
        version += 1
        step.emit(
            ev.TemplateCreated(
                project=asked.project,
                name=asked.name,
                at=step.now.wall,
                version=version,
                job_json=asked.job_json,
                by=asked.by,
            )
        )
    step.do(Reply(asked.token, f"{key}@{version}"))


def _may_change(step: Step, template: Template, user: str) -> bool:
    grants = Registry(step.policies.cluster_name, step.cluster.people, step.policies.admins).grants(user)
    return user == template.owner or role_in(grants, template.project) is Role.ADMIN


def _violation(cluster: Cluster, asked: TemplateAsked, template: Template | None) -> Violation | None:
    if not projects.is_project(asked.name):
        return Violation("name", f"must {projects.MUST}", "such as train")
    if not projects.is_project(asked.project):
        return Violation("job.project", f"must {projects.MUST}", "such as vision")
    if len(asked.job_json) > MOST_CHARS:
        problem = f"has {len(asked.job_json):,} characters, and a template keeps {MOST_CHARS:,} at most"
        return Violation("job", problem, "put what is long into a file of the job's")
    owner = template.owner if template is not None else asked.by
    if bytes_of(cluster, owner) + _size(asked.job_json) > MOST_BYTES:
        problem = f"the templates of {owner} together have more than {MOST_BYTES:,} bytes"
        return Violation("job", problem, "remove one: holdfast template remove NAME")
    if template is not None:
        if sum(len(each.job_json) for each in template.versions.values()) + len(asked.job_json) > MOST_CHARS_OF_ALL:
            problem = f"all versions of {asked.name} together have more than {MOST_CHARS_OF_ALL:,} characters"
            return Violation("job", problem, "go on under another name")
    elif len(cluster.templates) >= MOST:
        return Violation("name", f"there are {MOST:,} templates already", "remove some")
    elif sum(each.owner == asked.by for each in cluster.templates.values()) >= MOST_OF_ONE:
        return Violation("name", f"{asked.by} has {MOST_OF_ONE} templates already", "remove some")
    return None


def bytes_of(cluster: Cluster, owner: str) -> int:
    """How much all templates of a user take."""
    mine = (template for template in cluster.templates.values() if template.owner == owner)
    return sum(_size(version.job_json) for template in mine for version in template.versions.values())


def _size(job_json: str) -> int:
    return VERSION_BYTES + (len(job_json) if job_json.isascii() else len(job_json.encode(errors="replace")))


def version_of(cluster: Cluster, project: str, reference: str) -> tuple[int, TemplateVersion]:
    """The version that ``NAME`` (the newest) or ``NAME@3`` means, and its number. Raises ``NotFound``."""
    name, _, number = reference.partition("@")
    template = cluster.templates.get(key_of(project, name))
    if template is None:
        raise _unknown(project, name)
    if not number and "@" not in reference:
        return template.newest, template.versions[template.newest]
    if number.isascii() and number.isdecimal() and len(number) < 9 and int(number) in template.versions:
        return int(number), template.versions[int(number)]
    problem = f"The template {name} has no version {number!r}; its newest is {template.newest}."
    raise NotFound(problem, fix=f"See: holdfast template show {name}")


def _unknown(project: str, name: str) -> NotFound:
    return NotFound(f"There is no template {name!r} in project {project}.", fix=_SEE)
