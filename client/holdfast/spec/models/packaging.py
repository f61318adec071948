"""Packaged code in a job spec: where it is named, and what of it no host could fetch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from holdfast.errors import Violation
from holdfast.spec.models.base import Model
from holdfast.spec.parse.scalars import Many, Text

if TYPE_CHECKING:
    from holdfast.spec.models.job import JobSpec

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?=:)")
FETCHED = ("http", "https", "file")
"""Schemes of URIs that hosts can install from."""

Digest = Annotated[
    str,
    Text(max_chars=64, pattern="[0-9a-f]{64}|", must="be a SHA-256 of 64 lower-case hexadecimal digits"),
]
Requirement = Annotated[str, Text(max_chars=4096, empty=False)]
Package = Annotated[str, Text(max_chars=4096, empty=False)]


class PackagedCode(Model):
    """A folder that the user has sent along, and what has to be installed for it."""

    bundle: Digest = ""
    """SHA-256 of an uploaded folder, written by `holdfast submit`. Workers start in a copy of it."""
    requirements: Annotated[tuple[Requirement, ...], Many(0, 1000)] = Field(default=(), examples=[["numpy==2.1.0"]])
    """Lines of a requirements file, at most 1,000."""
    packages: Annotated[tuple[Package, ...], Many(0, 100)] = ()
    """Wheels and source distributions: http(s):// or file:// URIs, or paths within the bundle. At most 100."""


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
                found.append(Violation(place, "is no path within the bundle"))
    return found


def _codes(job: JobSpec) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for index, pool in enumerate(job.worker_pool_specs):
        place = f"jobSpec.workerPoolSpecs[{index}]"
        if pool.process_spec is not None and (code := pool.process_spec.packaged_code) is not None:
            yield f"{place}.processSpec.packagedCode", code.bundle, code.packages
        if (package := pool.python_package_spec) is not None:
            yield f"{place}.pythonPackageSpec", package.bundle, package.package_uris
