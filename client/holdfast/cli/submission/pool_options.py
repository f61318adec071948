"""Worker pools as another service's command line has them: ``machine-type=…,replica-count=…``."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Any

from holdfast.cli.kit.parameters import wrong
from holdfast.cli.submission.packaging import CodeOptions
from holdfast.cli.submission.reference_options import split_list
from holdfast.errors import Violation

_MACHINE = {
    "machine-type": "machineType",
    "accelerator-type": "acceleratorType",
    "accelerator-count": "acceleratorCount",
    "gpu-partition-size": "gpuPartitionSize",
    "cpu-count": "cpuCount",
    "memory-mb": "memoryMb",
}
_TASK = ("container-image-uri", "executor-image-uri", "python-module")
_PACKAGING = ("local-package-path", "script", "requirements", "extra-packages", "extra-dirs", "output-image-uri")
KEYS = (*_MACHINE, "replica-count", *_TASK, *_PACKAGING)
_PRIMARY = "--worker-pool-spec[0]"
_OF_POOL = re.compile(r"(?:(?:jobSpec|job_spec)\.)?workerPoolSpecs\[(\d+)\](?:\.(.+))?")
_KEYS = {
    **{f"machineSpec.{name}": key for key, name in _MACHINE.items()},
    "replicaCount": "replica-count",
    "containerSpec.imageUri": "container-image-uri",
    "pythonPackageSpec.executorImageUri": "executor-image-uri",
    "pythonPackageSpec.pythonModule": "python-module",
}


def code_of(pools: Sequence[str]) -> CodeOptions | None:
    """The local code that the first pool names, for it and all pools that name nothing to run; None without any.

    Lists have semicolons. Raises ``InvalidInput``.
    """
    found = None
    for index, text in enumerate(pools):
        where = f"--worker-pool-spec[{index}]"
        words = _words(text, where)
        packaging = [key for key in words if key in _PACKAGING]
        if not packaging:
            continue
        if index:
            raise wrong(where, f"{packaging[0]} belongs to the first pool, whose code all pools run", "remove it")
        if "script" in words and "python-module" in words:
            raise wrong(where, "has both a script and a python-module", "keep one of them")
        if "script" not in words and "python-module" not in words:
            raise wrong(where, "has local code, but not what to run of it", "add script=FILE or python-module=NAME")
        lists = {key: _list(words.get(key, "")) for key in ("requirements", "extra-packages", "extra-dirs")}
        found = CodeOptions(
            folder=words.get("local-package-path", "."),
            script=words.get("script", ""),
            module=words.get("python-module", ""),
            requirements=lists["requirements"],
            packages=lists["extra-packages"],
            folders=lists["extra-dirs"],
            of_pool=where,
        )
    return found


def _list(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(";") if item.strip())


def spec_of(pools: Sequence[str], package_uris: str = "") -> dict[str, Any]:
    """The job spec, as a file would hold it, of one or more ``--worker-pool-spec``.

    ``package_uris`` is a list with commas, for pools with a python-module. Raises ``InvalidInput``.
    """
    uris = [uri for uri in package_uris.split(",") if uri]
    return {"workerPoolSpecs": [_pool(text, f"--worker-pool-spec[{at}]", uris) for at, text in enumerate(pools)]}


def _pool(text: str, where: str, uris: list[str]) -> dict[str, Any]:
    words = _words(text, where)
    if not words:
        return {}
    pool: dict[str, Any] = {"replicaCount": words.get("replica-count", "1")}
    if machine := {name: words[key] for key, name in _MACHINE.items() if key in words}:
        if "accelerator-type" in words or "gpu-partition-size" in words:
            machine.setdefault("acceleratorCount", "1")
        pool["machineSpec"] = machine
    if "container-image-uri" in words:
        pool["containerSpec"] = {"imageUri": words["container-image-uri"]}
    packaged = any(key in _PACKAGING for key in words)
    if not packaged and ("executor-image-uri" in words or "python-module" in words):
        given = {"executorImageUri": words.get("executor-image-uri"), "pythonModule": words.get("python-module")}
        pool["pythonPackageSpec"] = {
            name: value for name, value in ({"packageUris": list(uris)} | given).items() if value
        }
    return pool


def check_what_runs(pools: Sequence[str], package_uris: str, *, code: bool) -> None:
    """Raises ``InvalidInput`` for pools that name nothing to run, or more than one thing, in the words of the options.

    ``code``: local code is there for pools that name nothing.
    """
    modules = False
    for index, text in enumerate(pools):
        where = f"--worker-pool-spec[{index}]"
        words = _words(text, where)
        packaged = any(key in _PACKAGING for key in words)
        module = "python-module" in words and not packaged
        modules |= module
        if "container-image-uri" in words and (packaged or any(key in words for key in _TASK[1:])):
            raise wrong(where, "has both a container image and something else to run", "keep one of them")
        if module and not package_uris:
            fix = "add --python-package-uris=URI,… or, for local code, local-package-path=DIR"
            raise wrong(where, "has a python-module, but no packages that hold it", fix)
        if "executor-image-uri" in words and not packaged and not module:
            fix = "add python-module=NAME, or use container-image-uri"
            raise wrong(where, "has an executor-image-uri, but no python-module to run", fix)
        if words and not code and not any(key in words for key in _TASK):
            fix = "add container-image-uri=IMAGE, or local-package-path=DIR with script=FILE or python-module=NAME"
            raise wrong(where, "names nothing to run", fix)
    if package_uris and not modules:
        raise wrong("--python-package-uris", "no pool has a python-module to run", "add python-module=NAME to one")


def as_options(violation: Violation) -> Violation:
    """A violation in a spec that ``spec_of`` made, with the option and key that the user wrote for its path."""
    found = _OF_POOL.fullmatch(violation.path)
    if found is None:
        return violation
    key = {**_KEYS, "pythonPackageSpec.packageUris": "--python-package-uris"}.get(found[2] or "", found[2] or "")
    return Violation(f"--worker-pool-spec[{found[1]}] {key}".strip(), violation.problem, violation.fix)


def _words(text: str, where: str) -> dict[str, str]:
    words: dict[str, str] = {}
    if not text and where != _PRIMARY:
        return words  # its role is skipped
    for part in split_list((text,)) or [""]:
        key, equals, value = part.partition("=")
        if not equals or not key:
            raise wrong(where, f"{part!r} is not KEY=VALUE", "such as machine-type=big,replica-count=1")
        if key not in KEYS:
            near = difflib.get_close_matches(key[:60], KEYS, n=1)
            raise wrong(where, f"{key} is no known key", f"did you mean {near[0]}?" if near else ", ".join(KEYS))
        if key in words:
            raise wrong(where, f"{key} is given twice", "keep one of them")
        words[key] = value
    return words
