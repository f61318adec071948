"""Local code on its way into a job: what the options name is packed, uploaded, and written into the job's spec.

The folder is packed whole, without what its .holdfastignore (or .gitignore) leaves out. Wheels and folders from
elsewhere come along under ``.holdfast/``. Jobs are handled as plain data here, as files hold them, before the spec
reads them: a config file may leave it to the options what its pools run.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from holdfast._base.dataclass import dataclass
from holdfast.cli.kit.parameters import wrong
from holdfast.cli.submission.requirements import lines_of

if TYPE_CHECKING:
    from holdfast.bundles.packing import Bundle
    from holdfast.cli.kit.console import Console
    from holdfast.client import Client
    from holdfast.v1 import job_pb2

EXTRA = ".holdfast"
_BRING_THEIR_OWN = ("containerSpec", "container_spec", "pythonPackageSpec", "python_package_spec")
FIRST_LINE_BYTES = 256
_PYTHON = re.compile(r"(^|[/ ])(python|pypy)[0-9.]*( |$)")
SAY_FROM_BYTES = 8 << 20
"""Uploads from this size on print their progress."""


@dataclass(frozen=True, slots=True)
class CodeOptions:
    """Code that the user named. Paths of packages and folders count from here, or from the folder."""

    folder: str
    script: str = ""
    module: str = ""
    requirements: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    folder_option: str = "--local-package-path"
    """The option by which the user named the folder."""
    of_pool: str = ""
    """The option of the pool that has them as its keys, such as ``--worker-pool-spec[0]``; empty without one."""

    def named(self, option: str) -> str:
        """The option, such as ``--script``, as the user wrote it."""
        return f"{self.of_pool} {option.removeprefix('--')}" if self.of_pool else option


@dataclass
class Packed:
    """Bundles of one job, in a directory that is made for the first of them and goes once they are uploaded."""

    bundles: list[Bundle] = field(default_factory=list)
    _made: tempfile.TemporaryDirectory[str] | None = None

    @property
    def directory(self) -> Path:
        """The directory, made if need be."""
        if self._made is None:
            self._made = tempfile.TemporaryDirectory(prefix="holdfast-")
        return Path(self._made.name)

    def remove(self) -> None:
        """Remove the directory with all bundles."""
        if self._made is not None:
            self._made.cleanup()
            self._made = None

    def code(self, options: CodeOptions) -> dict[str, Any]:
        """The ``packagedCode`` of a folder and what belongs to it. Raises ``InvalidInput``, ``BundleRefused``."""
        folder = Path(options.folder)
        if not os.path.isdir(folder):
            raise wrong(options.named(options.folder_option), f"there is no folder {options.folder}")
        if options.script:
            _check_script(folder, options.script, options.named("--script"))
        if options.module:
            _check_module(folder, options.module, options.named("--python-module"))
        requirements = lines_of(options.requirements, folder)
        extra: list[tuple[str, Path]] = []
        keep = [PurePosixPath(options.script).as_posix()] if options.script else []
        option = options.named("--extra-packages")
        packages = [_place(each, folder, "packages", extra, keep, option) for each in options.packages]
        option = options.named("--extra-dirs")
        for each in options.folders:
            if not os.path.isdir(_find(each, folder, option)):
                raise wrong(option, f"{each} is no folder")
            _place(each, folder, "", extra, keep, option)
        if not packages and not os.path.isfile(folder / "requirements.txt") and os.path.isfile(folder / "setup.py"):
            packages = ["."]
        bundle = self._pack(folder, extra, keep)
        code: dict[str, Any] = {"bundle": bundle.digest}
        return code | {
            key: value for key, value in (("requirements", requirements), ("packages", packages)) if value
        }

    def give(self, job: job_pb2.CustomJob, options: CodeOptions, *, keep_directory: bool) -> None:
        """Write a folder into every pool of a job of processes, which run in their copy of it then."""
        code = self.code(options)
        for pool in job.job_spec.worker_pool_specs:
            process = pool.process_spec
            for name, value in code.items():
                if isinstance(value, str):
                    setattr(process.packaged_code, name, value)
                else:
                    getattr(process.packaged_code, name).extend(value)
            if not keep_directory:
                process.working_directory = ""

    def local_packages(self, task: dict[str, Any], name: str) -> None:
        """Have local files among a Python package's URIs brought along."""
        from holdfast.spec.models.references import scheme

        uris = task.get(name)
        if not isinstance(uris, list) or task.get("bundle") or not all(isinstance(uri, str) for uri in uris):
            return  # the spec's reading says what is wrong with it
        extra: list[tuple[str, Path]] = []
        for index, uri in enumerate(uris):
            if not scheme(uri):
                source = _find(uri, Path(), "packageUris")
                path = f"{index}/{source.name}"
                extra.append((path, source))
                uris[index] = path
        if extra:
            with tempfile.TemporaryDirectory(dir=self.directory) as nothing:
                task["bundle"] = self._pack(Path(nothing), extra, []).digest

    def _pack(self, folder: Path, extra: Sequence[tuple[str, Path]], keep: Sequence[str]) -> Bundle:
        from holdfast.bundles import packing

        out = self.directory / f"{len(self.bundles)}.bundle"
        bundle = packing.pack(folder, out, extra=extra, keep=keep)
        self.bundles.append(bundle)
        return bundle

    async def upload(self, client: Client, console: Console) -> None:
        """Have the cluster hold all of them."""
        from holdfast._sdk.bundle_calls import GIVE_UP_AFTER_S

        for bundle in self.bundles:
            quarters = 0

            def progress(sent: int, size: int) -> None:
                nonlocal quarters
                if size >= SAY_FROM_BYTES and sent * 4 // size > quarters:
                    quarters = sent * 4 // size
                    console.note(f"uploaded {quarters * 25} % of {_amount(size)}")

            files = "1 file" if bundle.files == 1 else f"{bundle.files:,} files"
            about = f"packed {files}, {_amount(bundle.unpacked_bytes)}, into {_amount(bundle.size)}"
            link = console.on_link(f"The upload is tried again for {GIVE_UP_AFTER_S / 60:.0f} minutes")
            sent = await client.upload_bundle(bundle, on_progress=progress, on_link=link)
            console.note(f"{about}; {'uploaded' if sent else 'the cluster has it already'}")
        self.remove()


@contextlib.contextmanager
def packing() -> Iterator[Packed]:
    """A place for bundles that are on their way."""
    packed = Packed()
    try:
        yield packed
    finally:
        packed.remove()


def bring_code(data: dict[str, Any], options: CodeOptions | None, packed: Packed) -> None:
    """Write packaged code into a job's plain data: the options' into pools of processes, local files of packages.

    Raises ``InvalidInput`` where no pool takes the options' code.
    """
    pools = pools_in(data, make=options is not None)
    if options is not None:
        # A pool that says nothing skips its role, unless it is the primary's.
        filled = [pool for index, pool in enumerate(pools) if pool or not index]
        receiving = [pool for pool in filled if not any(name in pool for name in _BRING_THEIR_OWN)]
        if pools and not receiving:
            fix = "submit it without local code, or use a processSpec"
            raise wrong("jobSpec.workerPoolSpecs", "every pool brings code of its own: an image or a package", fix)
        code = packed.code(options)
        for pool in receiving:
            _give_code(pool, code, options)
    for pool in pools:
        for kind, name in (("pythonPackageSpec", "packageUris"), ("python_package_spec", "package_uris")):
            if isinstance(task := pool.get(kind), dict):
                packed.local_packages(task, name if name in task else "packageUris")


def _give_code(pool: dict[str, Any], code: Mapping[str, Any], options: CodeOptions) -> None:
    spelled = next((name for name in ("processSpec", "process_spec") if name in pool), "processSpec")
    task = pool.setdefault(spelled, {})
    if not isinstance(task, dict):
        return
    if command := command_of(options):
        task["command"] = command
        if options.args or "args" not in task:
            task["args"] = list(options.args)
    task["packagedCode"] = dict(code)


def command_of(options: CodeOptions) -> list[str]:
    """Command that starts the script or module; empty without either."""
    if options.module:
        return ["python3", "-m", options.module.replace("$", "$$")]
    if not options.script:
        return []
    words = [*_interpreter(Path(options.folder, options.script)), options.script]
    return [word.replace("$", "$$") for word in words]


def _interpreter(script: Path) -> list[str]:
    """The program that runs a script: by its ending, else by its first line; bash where neither says.

    Python is the one of the job's environment, whichever the first line names.
    """
    if script.suffix in (".py", ".pyz"):  # the latter is a zip, which has a first line only if its maker wanted one
        return ["python3"]
    if script.suffix == ".sh":
        return ["bash"]
    with script.open("rb") as file:
        first = file.readline(FIRST_LINE_BYTES).decode("utf-8", "replace")
    words = first.removeprefix("#!").split() if first.startswith("#!") else []
    if not words:
        return ["bash"]
    return ["python3"] if _PYTHON.search(" ".join(words)) else words


def spec_in(data: dict[str, Any]) -> dict[str, Any] | None:
    """The job spec in a job file's data, whichever way it is spelled; None where that is no mapping."""
    inner = next((data[name] for name in ("jobSpec", "job_spec") if name in data), data)
    return inner if isinstance(inner, dict) else None


def pools_in(data: dict[str, Any], *, make: bool = False) -> list[dict[str, Any]]:
    """The worker pools of a job file's data, whichever way it is spelled; without those that are no mappings.

    Where there are none, one is made if ``make`` says so.
    """
    if (inner := spec_in(data)) is None:
        return []
    found = next((inner[name] for name in ("workerPoolSpecs", "worker_pool_specs") if name in inner), None)
    if found is None and make:
        found = inner["workerPoolSpecs"] = [{"replicaCount": 1}]
    return [pool for pool in found if isinstance(pool, dict)] if isinstance(found, list) else []


def _check_script(folder: Path, script: str, option: str) -> None:
    path = PurePosixPath(script)
    if path.is_absolute() or ".." in path.parts:
        raise wrong(option, f"{script} is not below the folder", "write its path from the folder")
    if not os.path.isfile(folder / script):
        raise wrong(option, f"there is no {script} in {folder}")


def _check_module(folder: Path, module: str, option: str) -> None:
    path = folder.joinpath(*module.split("."))
    if not (os.path.isfile(path.with_name(path.name + ".py")) or os.path.isfile(path / "__main__.py")):
        name = module.replace(".", "/")
        raise wrong(option, f"there is neither {name}.py nor {name}/__main__.py in {folder}")


def _place(
    given: str, folder: Path, below: str, extra: list[tuple[str, Path]], keep: list[str], option: str
) -> str:
    """Path of a file or folder in the bundle; one outside the packaged folder is added to it."""
    found = _find(given, folder, option)
    try:
        inside = found.resolve().relative_to(folder.resolve()).as_posix()
    except ValueError:
        name = found.name if found.name not in ("", "..") else found.resolve().name
        path = f"{EXTRA}/{below}/{name}" if below else name
        extra.append((path, found.resolve()))
        return path
    keep.append(inside)
    return inside


def _find(given: str, folder: Path, option: str) -> Path:
    for path in (folder / given, Path(given)):
        if os.path.exists(path):
            return path
    raise wrong(option, f"there is no {given}")


def _amount(count: int) -> str:
    if count < 1 << 20:
        return f"{max(count, 1) / 1024:,.1f} KiB"
    return f"{count / (1 << 20):,.1f} MiB"
