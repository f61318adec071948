"""Whether the code that a job names is there, before the job is accepted."""

from __future__ import annotations

import asyncio

from holdfast import spec
from holdfast.errors import InvalidSpec, NotFound, Violation
from holdfast_controller.shell.bundles.bundle_store import BundleStore


async def check_code(job: spec.JobSpec, bundles: BundleStore, owner: str) -> None:
    """Raises ``InvalidSpec`` for bundles that ``owner`` has not uploaded, and packages that no host can fetch.

    Bundles that are there count as used now, so that they stay until the job is created.
    """
    wrong = spec.unusable_packages(job)
    for path, digest in spec.bundles(job):
        try:
            await asyncio.to_thread(bundles.use, digest, owner)
        except NotFound:
            fix = "submit the job from its folder, which uploads it"
            wrong.append(Violation(path, f"the bundle {digest[:12]}… is not here", fix))
    if wrong:
        raise InvalidSpec(wrong)
