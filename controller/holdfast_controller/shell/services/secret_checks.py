"""Whether the secrets that a job names are there, and whose they are, before the job is accepted."""

from __future__ import annotations

import difflib

from holdfast import spec
from holdfast.errors import InvalidSpec, Violation
from holdfast_controller.core.access.secrets import holder_of
from holdfast_controller.core.model.users import People


def check_secrets(job: spec.JobSpec, people: People, owner: str, project: str) -> dict[str, str]:
    """The holder of each secret that the job names. Raises ``InvalidSpec`` for what isn't there.

    A name that isn't there is not repeated: it may be a value that was written in its place.
    """
    holders: dict[str, str] = {}
    wrong = []
    for path, variable in spec.secret_variables(job):
        if not variable.secret:
            continue
        if holder := holder_of(people, owner, project, variable.secret):
            holders[variable.secret] = holder
        else:
            problem = f"neither user {owner} nor project {project} has a secret of this name"
            wrong.append(Violation(f"{path}.secret", problem, _fix(people, owner, project, variable.secret)))
    if wrong:
        raise InvalidSpec(wrong)
    return holders


def _fix(people: People, owner: str, project: str, name: str) -> str:
    known = {*people.secrets.get(f"user/{owner}", ()), *people.secrets.get(f"project/{project}", ())}
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else "keep it first: holdfast secret set NAME"
