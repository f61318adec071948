"""Worker pools as another service's command line has them: ``machine-type=…,replica-count=…``."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from holdfast.errors import InvalidInput, Violation

_MACHINE = {
    "machine-type": "machineType",
    "accelerator-type": "acceleratorType",
    "accelerator-count": "acceleratorCount",
}
_TASK = ("container-image-uri", "executor-image-uri", "python-module")
_PACKAGING = ("local-package-path", "script", "requirements", "extra-packages", "extra-dirs")
KEYS = (*_MACHINE, "replica-count", *_TASK, *_PACKAGING)


def spec_of(pools: Sequence[str], package_uris: str = "") -> dict[str, Any]:
    """The job spec, as a file would hold it, of one or more ``--worker-pool-spec``.

    ``package_uris`` is a list with commas, for pools with a python-module. Raises ``InvalidInput``.
    """
    uris = [uri for uri in package_uris.split(",") if uri]
    return {"workerPoolSpecs": [_pool(text, f"--worker-pool-spec[{at}]", uris) for at, text in enumerate(pools)]}


def _pool(text: str, where: str, uris: list[str]) -> dict[str, Any]:
    words = _words(text, where)
    if packaging := [key for key in words if key in _PACKAGING]:
        raise _wrong(
            where,
            f"{packaging[0]} asks for local code to be packaged, which does not work yet",
            "run it from a directory that all hosts see: holdfast run -- python SCRIPT",
        )
    pool: dict[str, Any] = {"replicaCount": words.get("replica-count", "1")}
    if machine := {name: words[key] for key, name in _MACHINE.items() if key in words}:
        pool["machineSpec"] = machine
    if "container-image-uri" in words:
        pool["containerSpec"] = {"imageUri": words["container-image-uri"]}
    if "executor-image-uri" in words or "python-module" in words:
        given = {"executorImageUri": words.get("executor-image-uri"), "pythonModule": words.get("python-module")}
        pool["pythonPackageSpec"] = {"packageUris": uris or None, **given}
    return pool


def _words(text: str, where: str) -> dict[str, str]:
    words: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not equals or not key:
            raise _wrong(where, f"{part!r} is not KEY=VALUE", "such as machine-type=big,replica-count=1")
        if key not in KEYS:
            near = difflib.get_close_matches(key[:60], KEYS, n=1)
            raise _wrong(where, f"{key} is no known key", f"did you mean {near[0]}?" if near else ", ".join(KEYS))
        if key in words:
            raise _wrong(where, f"{key} is given twice", "keep one of them")
        words[key] = value
    return words


def _wrong(where: str, problem: str, fix: str) -> InvalidInput:
    return InvalidInput([Violation(where, problem, fix)], what="The command line")
