"""Jobs of templates: the job that a request means, and the template's job as JSON."""

from __future__ import annotations

import json
from typing import Any

from holdfast import spec
from holdfast._base.job_file.secret_names import looks_secret
from holdfast._base.secret import HIDDEN
from holdfast.errors import InvalidInput, InvalidSpec, Violation
from holdfast.spec.rules.notifications import redacted
from holdfast.v1 import job_pb2, schedule_pb2
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.scheduling.templates import version_of
from holdfast_controller.shell.calls.audit_words import DEFAULT_PROJECT
from holdfast_controller.shell.calls.slices import apart

TEMPLATE, PATCH = "template", "template-patch"
"""Annotations of a job that was made of a template: NAME@VERSION, and the patch as JSON."""
MOST_CHARS = 60_000
"""Of a patch: it is kept with the job."""


Asked = job_pb2.CreateJobRequest | job_pb2.DryRunJobRequest | schedule_pb2.CreateScheduleRequest
"""Requests for a job of the caller's own, or of a template's with a patch."""


async def job_of(cluster: Cluster, asked: Asked) -> job_pb2.CustomJob:
    """The job that a request means. Raises ``NotFound`` for the template, ``InvalidSpec`` for what comes of it."""
    if not asked.template:
        if asked.patch:
            raise InvalidInput([Violation("patch", "goes with template", "name one, or write it into the job")])
        return asked.job
    if asked.job.HasField("job_spec"):
        raise InvalidInput(
            [Violation("job.jobSpec", "is the template's", "change it by patch, or leave template out")]
        )
    project = asked.job.project or DEFAULT_PROJECT
    number, version = version_of(cluster, project, asked.template)
    name = f"{asked.template.partition('@')[0]}@{number}"
    return await apart(_patched, version.job_json, name, asked.patch, asked.job)


def _patched(job_json: str, name: str, patch: str, around: job_pb2.CustomJob) -> job_pb2.CustomJob:
    data: Any = json.loads(job_json)
    changes: Any = {}
    if patch:
        if len(patch) > MOST_CHARS:
            problem = f"has {len(patch):,} characters; at most {MOST_CHARS:,} are allowed"
            raise InvalidInput([Violation("patch", problem, "make another template")])
        from holdfast.spec.parse import text as spec_text  # with PyYAML, which no start needs

        changes = spec_text.load_json(patch, source="The patch")
        if not isinstance(changes, dict):
            raise InvalidInput([Violation("patch", "must be a JSON object", 'such as {"labels": {"a": "b"}}')])
        data = _merged(data, _camel(changes))
    what = f"The template {name} with the patch" if patch else f"The template {name}"
    job = spec.job_to_proto(spec.parse(data, what=what))
    if job.project not in ("", around.project or DEFAULT_PROJECT):
        raise InvalidInput([Violation("patch", f"sets the project to {job.project!r}", "name it in job.project")])
    job.project = around.project
    job.display_name = around.display_name or job.display_name
    job.labels.update(around.labels)
    job.annotations.update(around.annotations)
    job.annotations[TEMPLATE] = name
    if patch:
        job.annotations[PATCH] = json.dumps(_shown(changes), separators=(",", ":"))
    return job


def _shown(changes: Any) -> Any:
    """A patch as all may read it: without what a job's spec hides, which are URLs and variables that look secret."""
    if isinstance(changes, list):
        return [_shown(each) for each in changes]
    if not isinstance(changes, dict):
        return changes
    found = {key: _shown(value) for key, value in changes.items()}
    for one in _entries(found, "notifications"):
        if one.get("url"):
            one["url"] = redacted(str(one["url"]))
    for one in _entries(found, "env"):
        if one.get("value") and looks_secret(str(one.get("name"))):
            one["value"] = HIDDEN
    return found


def _entries(of: dict[str, Any], name: str) -> list[dict[str, Any]]:
    held = of.get(name)
    return [each for each in held if isinstance(each, dict)] if isinstance(held, list) else []


def _camel(patch: Any, path: str = "", *, names: bool = True) -> Any:
    """A patch with its names in camelCase, as the stored job has them; keys of labels and such stay as they are.

    Raises ``InvalidSpec`` where a field is given twice, by whichever names, as a job file's reader does.
    """
    if isinstance(patch, list):
        return [_camel(each, f"{path}[{number}]") for number, each in enumerate(patch)]
    if not isinstance(patch, dict):
        return patch
    found: dict[str, Any] = {}
    twice = list(getattr(patch, "repeated", ()))
    for key, value in patch.items():
        first, *rest = key.split("_")
        name = first + "".join(word.title() for word in rest) if names else key
        twice += [name] if name in found else []
        below = f"{path}.{name}".removeprefix(".")
        found[name] = _camel(value, below, names=name not in ("labels", "avoidLabels", "annotations"))
    if twice:
        where = f"{path}.{twice[0]}".removeprefix(".")
        raise InvalidSpec([Violation(where, "is given twice", "keep one of them")], what="The patch")
    return found


def as_json(job: spec.JobFile) -> str:
    """A job as a template keeps it: the fields that its user set, but for the project."""
    found = spec.to_dict(job)
    found.pop("project", None)
    return json.dumps(found, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def read(job_json: str, project: str) -> job_pb2.CustomJob:
    """The job that a template keeps."""
    job = spec.job_to_proto(spec.parse(json.loads(job_json), what="The template"))
    job.project = project
    return job


def _merged(target: Any, patch: Any) -> Any:
    """A JSON merge patch, RFC 7396: objects go into one another, null removes, all else replaces."""
    if not isinstance(patch, dict):
        return patch
    found = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = _merged(found.get(key), value)
    return found
