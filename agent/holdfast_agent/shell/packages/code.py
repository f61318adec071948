"""Makes the code of a worker ready: its own copy of the bundle, and an environment with what has to be installed.

All workers of a job on a host share one copy. It lies in the job's scratch directory, belongs to the workers' user
and may be written to; it stays through restarts in place and goes with the job's last worker. After a reboot it is
unpacked again, since it is unknown how much of the old one had reached the disk.
"""

from __future__ import annotations

import collections
import errno
import hashlib
import os
import tempfile
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread

from holdfast._session.assignment import PackagedCode
from holdfast.bundles import archive
from holdfast.errors import BundleRefused
from holdfast_agent.core.launch.environment import HostFacts, WorkerUser
from holdfast_agent.core.model.launch import PreparedCode
from holdfast_agent.shell.base import host_errors
from holdfast_agent.shell.base.programs import NO_LIMITS, Limits
from holdfast_agent.shell.output.log_index import own_directory
from holdfast_agent.shell.packages.as_user import EnvironmentsByUser
from holdfast_agent.shell.packages.bundles import BundleCache
from holdfast_agent.shell.packages.environments import Wanted
from holdfast_agent.shell.packages.settings import CodeProblem, Packages
from holdfast_agent.shell.packages.unpack import Owner, unpack
from holdfast_agent.shell.shims import shim_files
from holdfast_agent.shell.users import safe_paths

T = TypeVar("T")
UNPACKS_AT_ONCE = 2
_HOST_ERRNOS = host_errors.ERRNOS | {errno.EACCES}


@dataclass
class Code:
    """Packaged code on this host. ``staging`` is the agent's alone, on the scratch's file system."""

    staging: Path
    settings: Packages
    bundles: BundleCache
    environments: EnvironmentsByUser

    def __post_init__(self) -> None:
        self._locks: dict[str, anyio.Lock] = collections.defaultdict(anyio.Lock)
        self._threads = anyio.CapacityLimiter(UNPACKS_AT_ONCE)

    def clean(self, jobs: Collection[str]) -> None:
        """Remove leftovers of earlier runs, once at the agent's start. ``jobs`` are those that have a worker here."""
        safe_paths.try_to_remove(self.staging)
        self.environments.clean(jobs)

    def known(self, code: PackagedCode, before: PreparedCode) -> bool:
        """Whether the directories of the earlier preparation are still there; their contents are not checked."""
        paths = [before.directory] if code.bundle else []
        paths += [before.environment] if code.requirements or code.packages else []
        return all(path and os.path.isdir(path) for path in paths)

    async def prepare(
        self,
        job: str,
        code: PackagedCode,
        facts: HostFacts,
        say: Callable[[str], None],
        limits: Limits = NO_LIMITS,
    ) -> PreparedCode:
        """Fetch, unpack and install what isn't here yet. ``say`` gets what takes long, in a few words.

        ``limits``: those of an installation. Raises ``CodeProblem``. Cancelling it leaves nothing half done.
        """
        try:
            async with self._locks[job]:
                directory = await self._unpacked(job, code, facts, say) if code.bundle else ""
            environment = ""
            if code.requirements or code.packages:
                environment = await self._installed(job, code, facts.user, say, limits)
        except OSError as error:
            problem = f"{error.filename or self.staging}: {error.strerror}"
            raise CodeProblem(problem, host_fault=error.errno in _HOST_ERRNOS) from error
        except BundleRefused as refused:
            raise CodeProblem(f"the packaged code is refused: {refused.message.rstrip('.')}") from refused
        return PreparedCode(directory, environment)

    def release(self, job: str) -> None:
        """The job has left this host; its copy goes with its scratch directory."""
        self._locks.pop(job, None)
        self.environments.release(job)

    async def _unpacked(self, job: str, code: PackagedCode, facts: HostFacts, say: Callable[[str], None]) -> str:
        scratch = Path(facts.scratch_dir, job)
        boot = shim_files.boot_id()[:8]
        target = scratch / f"package-{code.bundle[:12]}-{boot}"
        if not target.is_dir():
            async with self.bundles.held(code.bundle, lambda: say("fetching the packaged code")) as bundle:
                os.makedirs(facts.scratch_dir, mode=0o711, exist_ok=True)
                own_directory(str(scratch), facts, mode=0o700)
                await self._thread(partial(self._unpack, bundle, target, _owner(facts)))
            await self._thread(partial(_remove_of_other_boots, scratch, boot))
        return str(target)

    def _unpack(self, bundle: Path, target: Path, owner: Owner | None) -> None:
        self.staging.mkdir(mode=0o700, parents=True, exist_ok=True)
        unpack(bundle, target, self.staging, self.settings.limits, owner)

    async def _installed(
        self, job: str, code: PackagedCode, user: WorkerUser, say: Callable[[str], None], limits: Limits
    ) -> str:
        environments = self.environments.of(user)
        uris = tuple(package for package in code.packages if ":" in package)
        paths = [package for package in code.packages if ":" not in package]

        def on_build() -> None:
            say("installing requirements" if code.requirements else "installing packages")

        if not paths:
            wanted = Wanted(code.requirements, uris)
            return str(await environments.get(wanted, job, on_build, limits))
        # Not from the job's own copy, which it may change: other jobs will use this environment too.
        folder = Path(tempfile.mkdtemp(dir=self._made_staging(), prefix="packages-"))
        try:
            tree = folder / "bundle"
            async with self.bundles.held(code.bundle, lambda: say("fetching the packaged code")) as bundle:
                await self._thread(partial(self._unpack, bundle, tree, None))
            files = await self._thread(partial(_hashed, tree, paths, code.bundle))
            wanted = Wanted(code.requirements, uris, tuple(files))
            return str(await environments.get(wanted, job, on_build, limits))
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(safe_paths.try_to_remove, folder)

    def _made_staging(self) -> Path:
        self.staging.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self.staging

    async def _thread(self, work: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(work, limiter=self._threads)


def _remove_of_other_boots(scratch: Path, boot: str) -> None:
    for other in scratch.glob("package-*"):
        if not other.name.endswith(boot):
            safe_paths.try_to_remove(other)


def _hashed(tree: Path, paths: list[str], bundle: str) -> list[tuple[Path, str]]:
    """Each file or folder of the tree with its hash. A folder counts as the whole bundle. Raises ``CodeProblem``."""
    found = []
    for path in paths:
        if path != ".":
            archive.check_path(path)
        source = tree / path
        if source.is_symlink() or not source.exists():
            raise CodeProblem(f"there is no {path} in the packaged code")
        if source.is_dir():
            found.append((source, f"{bundle}/{path}"))
        else:
            with source.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            found.append((source, f"{source.name} {digest}"))
    return found


def _owner(facts: HostFacts) -> Owner | None:
    user = facts.user
    return None if user.uid is None or user.gid is None else (user.uid, user.gid)
