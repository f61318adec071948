"""Whether the code and the secrets that a job names are there, and which jobs its user may not see."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Callable

from holdfast.errors import InvalidSpec, NotFound, Violation
from holdfast.spec import JobSpec
from holdfast.spec.models.references import bundles, secret_variables, unusable_packages
from holdfast_controller.core.access.secrets import holder_of
from holdfast_controller.core.lifecycle.dependencies import unseen
from holdfast_controller.core.model.accounts.users import People
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.shell.bundles.bundle_store import BundleStore


async def check_code(job: JobSpec, store: BundleStore | None, owner: str) -> None:
    """Raises ``InvalidSpec`` for bundles that ``owner`` has not uploaded, and packages that no host can fetch.

    Without a ``store`` bundles are taken as uploaded.

    Bundles that are there count as used now, so that they stay until the job is created.
    """
    wrong = unusable_packages(job)
    for path, digest in bundles(job):
        if store is None:
            break
        try:
            await asyncio.to_thread(store.use, digest, owner)
        except NotFound:
            fix = "submit the job from its folder, which uploads it"
            wrong.append(Violation(path, f"the bundle {digest[:12]}… is not here", fix))
    if wrong:
        raise InvalidSpec(wrong)


def check_secrets(job: JobSpec, people: People, owner: str, project: str) -> dict[str, str]:
    """The holder of each secret that the job names. Raises ``InvalidSpec`` for what isn't there.

    A name that isn't there is not repeated: it may be a value that was written in its place.
    """
    holders: dict[str, str] = {}
    wrong = []
    for path, variable in secret_variables(job):
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


def unseen_dependencies(job: JobSpec, cluster: Cluster, sees: Callable[[str], bool]) -> frozenset[str]:
    """The jobs to wait for that the caller may not see. They are refused with those that aren't there, in one place."""
    return unseen(cluster, (each.job for each in job.scheduling.after), sees)


def _fix(people: People, owner: str, project: str, name: str) -> str:
    known = {*people.secrets.get(f"user/{owner}", ()), *people.secrets.get(f"project/{project}", ())}
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else "keep it first: holdfast secret set NAME"
