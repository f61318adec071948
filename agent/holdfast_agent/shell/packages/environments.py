"""Environments for requirements and packages: built once, kept under a hash of all that went into them.

An environment is there from the moment that its ``.ready`` file is; that is written last, after everything else has
reached the disk, so that neither a crash of the agent nor a loss of power leaves half of one in use. Its ``.jobs``
directory names the jobs on this host that were given it: those keep it, of the others the longest unused go first.
Both lie in directories that only the agent writes to; the environment itself belongs to the workers' user, as does
what uv keeps of its downloads, so that no user's build reaches what another one runs.
"""

from __future__ import annotations

import collections
import ctypes
import hashlib
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

import anyio
import anyio.lowlevel
import anyio.to_thread

from holdfast._daemon import log
from holdfast_agent.shell.packages.installer import CERTIFICATES, Installer, uv
from holdfast_agent.shell.packages.interpreter import JOIN, Found, Interpreter
from holdfast_agent.shell.packages.settings import CodeProblem, Packages
from holdfast_agent.shell.users import safe_paths

BUILDS_AT_ONCE = 2
FAILURE_KEPT_S = 20.0
"""All workers of a gang on one host fail of the same build, not each of its own."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Packages to install: lines of requirements, URIs, and files or folders of this host with their hashes."""

    requirements: tuple[str, ...]
    uris: tuple[str, ...] = ()
    files: tuple[tuple[Path, str], ...] = ()


class Common:
    """Limits shared by the environments of all users of a host: builds at once, and disk space."""

    def __init__(self) -> None:
        self.builds = anyio.CapacityLimiter(BUILDS_AT_ONCE)
        self.threads = anyio.CapacityLimiter(BUILDS_AT_ONCE + 8)
        self.guard = threading.Lock()
        """Nothing is taken into use while it is looked whether it may go."""


class Environments:
    """All environments in ``directory``, for the workers of one user."""

    def __init__(
        self,
        directory: Path,
        settings: Packages,
        installer: Installer,
        interpreter: Interpreter,
        common: Common | None = None,
    ) -> None:
        owner = installer.user.uid if installer.user.uid is not None else os.geteuid()
        self._directory = directory / "environments" / str(owner)
        self._downloads = directory / "downloads" / str(owner)
        self._work = directory / "work"
        self._settings, self._installer, self._interpreter = settings, installer, interpreter
        self._locks: dict[str, anyio.Lock] = collections.defaultdict(anyio.Lock)
        common = common or Common()
        self._builds, self._threads, self._guard = common.builds, common.threads, common.guard
        self._failures: dict[str, tuple[float, CodeProblem]] = {}

    async def get(self, wanted: Wanted, job: str, on_build: Callable[[], None]) -> Path:
        """The environment's directory, built where it isn't here; kept until the job is released.

        Raises ``CodeProblem``, ``OSError``. Cancelling it ends the build, and leaves nothing of it.
        """
        found = await anyio.to_thread.run_sync(self._interpreter.look, self._downloads, limiter=self._threads)
        key = self._key(wanted, found)
        path = self._directory / key
        async with self._locks[key]:
            ready = path.with_suffix(".ready")
            if not self._take(path, job):
                failed = self._failures.get(key)
                if failed is not None and time.monotonic() - failed[0] < FAILURE_KEPT_S:
                    raise failed[1]
                on_build()
                async with self._builds:
                    await self._build(wanted, found, path)
            os.utime(ready)
        return path

    def _take(self, path: Path, job: str) -> bool:
        """Note that the job uses an environment, so that it stays. Whether it is there."""
        users = path.with_suffix(".jobs")
        with self._guard:
            users.mkdir(mode=0o700, parents=True, exist_ok=True)
            (users / job).touch()
            return path.with_suffix(".ready").exists()

    def _key(self, wanted: Wanted, found: Found) -> str:
        parts = [
            found.about,
            wanted.requirements,
            [(uri, _changed(uri)) for uri in wanted.uris],
            [digest for _, digest in wanted.files],
            self._settings.system_site_packages,
            found.sources.identity(),
            sorted(found.digests.items()),
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:40]

    async def _build(self, wanted: Wanted, found: Found, path: Path) -> None:
        stop = os.eventfd(0)
        done = anyio.Event()
        started = time.monotonic()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_tell_when_cancelled, stop, done)
                with anyio.CancelScope(shield=True):
                    # A cancellation reaches it by ``stop``; then it cleans up and ends.
                    build = partial(self._build_now, wanted, found, path, stop)
                    problem = await anyio.to_thread.run_sync(build, limiter=self._threads)
                done.set()
        finally:
            os.close(stop)
        # Neither the caller who cancelled it nor the next one to ask gets this as a failure.
        await anyio.lowlevel.checkpoint_if_cancelled()
        if problem is not None:
            self._failures[path.name] = (time.monotonic(), problem)
            raise problem
        self._failures.pop(path.name, None)
        took_s = round(time.monotonic() - started, 3)
        log.info("environment.built", path=str(path), duration_s=took_s, sources=found.sources.in_words())

    def _build_now(self, wanted: Wanted, found: Found, path: Path, stop: int) -> CodeProblem | None:
        deadline = time.monotonic() + self._settings.install_timeout
        for directory in (self._work, self._directory):
            directory.mkdir(mode=0o711, parents=True, exist_ok=True)
        self._downloads.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
        self._own(self._downloads)
        self._make_room(path)
        work = Path(tempfile.mkdtemp(dir=self._work, prefix="install-"))
        try:
            commands = [
                *_join(found, work),
                self._venv(found.python, path),
                self._install(wanted, found, path, work),
            ]
            if self._user is not None:
                safe_paths.give(work, *self._user)  # only now: no other user could enter it while it was filled
            self._own(path)
            with tempfile.TemporaryFile() as said:
                os.write(said.fileno(), f"Installing from {found.sources.in_words()}\n".encode())
                for command in commands:
                    left_s = max(deadline - time.monotonic(), 1.0)
                    self._installer.run(command, work, self._downloads, said, left_s, stop, found.sources)
            size = safe_paths.size(path)
            _flush(path)
            fresh = path.with_suffix(".new")
            fresh.write_text(json.dumps({"bytes": size}))
            fresh.rename(path.with_suffix(".ready"))
        except (CodeProblem, OSError) as error:
            safe_paths.try_to_remove(path)
            if isinstance(error, CodeProblem):
                return error
            return CodeProblem(f"{error.filename or self._directory}: {error.strerror}", host_fault=True)
        finally:
            safe_paths.try_to_remove(work)
        return None

    def _venv(self, python: str, path: Path) -> list[str]:
        site = ["--system-site-packages"] if self._settings.system_site_packages else []
        quietly = ["--quiet", "--no-config", "--no-project", "--allow-existing"]
        return [uv(), "venv", *quietly, *site, "--python", python, str(path)]

    def _install(self, wanted: Wanted, found: Found, path: Path, work: Path) -> list[str]:
        sources = found.sources
        # In files: URLs may hold secrets, and every account can read command lines.
        lines = [*wanted.requirements, *wanted.uris, *(f"-c {place}" for place in sources.constraints)]
        for name, text in (("requirements.txt", "".join(f"{x}\n" for x in lines)), ("uv.toml", sources.uv_toml())):
            (work / name).touch(mode=0o600)
            (work / name).write_text(text)
        command = [uv(), "pip", "install", "--python", f"{path}/bin/python", "--config-file", str(work / "uv.toml")]
        command += ["-r", str(work / "requirements.txt")] if wanted.requirements or wanted.uris else []
        for index, (source, _) in enumerate(wanted.files):
            copy = work / str(index) / source.name
            copy.parent.mkdir()
            _copy(source, copy)
            command.append(str(copy))
        return [*command, "--offline"] if self._settings.offline else command

    @property
    def _user(self) -> tuple[int, int] | None:
        """User and group id that workers run as; None where they are the agent's own."""
        user = self._installer.user
        return None if user.uid is None or user.gid is None else (user.uid, user.gid)

    def _own(self, path: Path) -> None:
        """Make a directory where it isn't there, for the workers' user alone. Its parent is the agent's."""
        path.mkdir(mode=0o700, exist_ok=True)
        if self._user is not None:
            os.chown(path, *self._user, follow_symlinks=False)

    def _make_room(self, fresh: Path) -> None:
        """The longest unused environments go until there is room; and uv's downloads, where they are too many."""
        safe_paths.try_to_remove(fresh)
        found = list(self._directory.parent.glob("*/*.ready"))
        entries = [(r.stat().st_mtime, int(json.loads(r.read_text())["bytes"]), r) for r in found]
        total = sum(size for _, size, _ in entries)
        for _, size, ready in sorted(entries):
            if total <= self._settings.environments_mb << 20:
                break
            total -= size if self._drop(ready) else 0
        kept = sorted((safe_paths.size(folder), folder) for folder in self._downloads.parent.iterdir())
        total = sum(size for size, _ in kept)
        while kept and total > self._settings.downloads_mb << 20:
            size, largest = kept.pop()
            total -= size
            safe_paths.try_to_remove(largest)
        self._own(self._downloads)

    def _drop(self, ready: Path) -> bool:
        """Remove an environment unless a job uses it. Whether it has gone."""
        path, users = ready.with_suffix(""), ready.with_suffix(".jobs")
        gone = self._work / f"{path.name}-{time.monotonic_ns()}"
        with self._guard:
            if users.exists() and any(users.iterdir()):
                return False
            ready.unlink(missing_ok=True)
            path.rename(gone)
            safe_paths.try_to_remove(users)
        safe_paths.try_to_remove(gone)
        log.info("environment.evicted", path=str(path))
        return True


def _join(found: Found, work: Path) -> list[list[str]]:
    """Command that joins the certificates to trust into one file, as the account; none where there are none."""
    files = found.sources.certificates
    return [[found.python, "-I", "-S", "-c", JOIN, str(work / CERTIFICATES), *files]] if files else []


async def _tell_when_cancelled(stop: int, done: anyio.Event) -> None:
    try:
        await done.wait()
    except BaseException:
        os.eventfd_write(stop, 1)
        raise


def _changed(uri: str) -> list[int]:
    """Fingerprint by which a host's file is seen to have changed; other URIs are assumed not to change."""
    if not uri.lower().startswith("file:"):
        return []
    try:
        status = os.stat(unquote(urlsplit(uri).path))
    except (OSError, ValueError):
        return []
    return [status.st_size, status.st_mtime_ns, status.st_ino]


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copyfile(source, target)


def _flush(path: Path) -> None:
    """Everything on the file system of ``path`` reaches the disk."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(handle) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(handle)
