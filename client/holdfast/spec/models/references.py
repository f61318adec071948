"""References of a spec to things outside it, with the path of each field: bundles, packages and secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.errors import Violation
from holdfast.spec.models.job import JobSpec
from holdfast.spec.models.secret_env import SecretEnvVar

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?=:)")
FETCHED = ("http", "https", "file")
"""Schemes of URIs that hosts can install from."""


def scheme(uri: str) -> str:
    """``https`` of ``https://…``, lower-case; empty for a path."""
    found = _SCHEME.match(uri)
    return found[0].lower() if found else ""


def bundles(job: JobSpec) -> Iterator[tuple[str, str]]:
    """(path of the field, digest) of every bundle that the job names."""
    for path, bundle, _ in _codes(job):
        if bundle:
            yield f"{path}.bundle", bundle


def unusable_packages(job: JobSpec) -> list[Violation]:
    """One violation for each package that is neither a URI that hosts can fetch nor a path within a bundle."""
    found = []
    for path, bundle, packages in _codes(job):
        name = "packageUris" if path.endswith("pythonPackageSpec") else "packages"
        for index, package in enumerate(packages):
            place, kind = f"{path}.{name}[{index}]", scheme(package)
            if kind and kind not in FETCHED:
                fix = "put it where hosts reach it by https:// or file://, or give a local path to holdfast submit"
                found.append(Violation(place, f"hosts can't fetch {kind}: URIs", fix))
            elif not kind and not bundle:
                fix = "submit it with holdfast submit, which uploads the file, or write file:// and a path on hosts"
                found.append(Violation(place, "is a local path, and no bundle is named that holds it", fix))
            elif not kind and (package.startswith("/") or ".." in package.split("/")):
                found.append(
                    Violation(place, "is no path within the bundle", "write it from the bundle's top, without ..")
                )
    return found


def _codes(job: JobSpec) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for index, pool in enumerate(job.worker_pool_specs):
        place = f"jobSpec.workerPoolSpecs[{index}]"
        if pool.process_spec is not None and (code := pool.process_spec.packaged_code) is not None:
            yield f"{place}.processSpec.packagedCode", code.bundle, code.packages
        if (package := pool.python_package_spec) is not None:
            yield f"{place}.pythonPackageSpec", package.bundle, package.package_uris


def secret_variables(job: JobSpec) -> Iterator[tuple[str, SecretEnvVar]]:
    """(path of the field, variable) of every secret variable of the job."""
    for index, pool in enumerate(job.worker_pool_specs):
        tasks = {
            "processSpec": pool.process_spec,
            "containerSpec": pool.container_spec,
            "pythonPackageSpec": pool.python_package_spec,
        }
        for kind, task in tasks.items():
            for number, variable in enumerate(task.secret_env if task is not None else ()):
                yield f"jobSpec.workerPoolSpecs[{index}].{kind}.secretEnv[{number}]", variable
