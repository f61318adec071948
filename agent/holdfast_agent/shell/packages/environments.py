"""Environments for requirements and packages: built once, kept under a hash of all that went into them.

An environment is there from the moment that its ``.ready`` file is; that is written last, after everything else has
reached the disk, so that neither a crash of the agent nor a loss of power leaves half of one in use. Its ``.jobs``
directory names the jobs on this host that were given it: those keep it, of the others the longest unused go first.
Both lie in directories that only the agent writes to. The environment itself belongs to the workers' user while it is
built, as does what uv keeps of its downloads, so that no user's build reaches what another one runs; then it is sealed,
so that no job changes what the next one runs (``sealed_tree``).
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import hashlib
import itertools
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import anyio
import anyio.to_thread

from holdfast._base.dataclass import dataclass
from holdfast._daemon import log
from holdfast_agent.shell.base import host_errors
from holdfast_agent.shell.base.programs import NO_LIMITS, Limits, attended
from holdfast_agent.shell.packages import sealed_tree
from holdfast_agent.shell.packages.installer import CERTIFICATES, Installer, uv
from holdfast_agent.shell.packages.interpreter import DROP_TORN, JOIN, Found, Interpreter
from holdfast_agent.shell.packages.settings import CodeProblem, Packages
from holdfast_agent.shell.users import safe_paths

BUILDS_AT_ONCE = 2
LOOK_S = 30.0
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
        self.downloading: collections.Counter[Path] = collections.Counter()
        """Builds that use each folder of downloads."""


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
        self._downloading = common.downloading
        self._failures: dict[str, tuple[float, CodeProblem]] = {}

    async def get(self, wanted: Wanted, job: str, on_build: Callable[[], None], limits: Limits = NO_LIMITS) -> Path:
        """The environment's directory, built where it isn't here; kept until the job is released.

        ``limits``: those of a build. Raises ``CodeProblem``, ``OSError``. Cancelling it ends the build, and leaves
        nothing of it.
        """
        found = await anyio.to_thread.run_sync(self._interpreter.look, self._downloads, limiter=self._threads)
        try:
            with anyio.fail_after(LOOK_S):  # a host's file may lie on a server that hangs
                key = await anyio.to_thread.run_sync(
                    self._key, wanted, found, abandon_on_cancel=True, limiter=self._threads
                )
        except TimeoutError as error:
            problem = f"looking at the packages took longer than {LOOK_S:g} s; a file server may hang"
            raise CodeProblem(problem, host_fault=True) from error
        async with self._locks[key]:
            path, there = await anyio.to_thread.run_sync(self._take, key, job, limiter=self._threads)
            if not there:
                failed = self._failures.get(key)
                if failed is not None and time.monotonic() - failed[0] < FAILURE_KEPT_S:
                    raise failed[1]
                on_build()
                async with self._builds:
                    await self._build(wanted, found, path, limits)
            os.utime(path.with_suffix(".ready"))
        return path

    def _take(self, key: str, job: str) -> tuple[Path, bool]:
        """The place of the environment, noted as used by the job, so that it stays; and whether it is there.

        One that was changed since it was built goes. While jobs use it, it stays for them, and a new one is made
        beside it.
        """
        for number in itertools.count():
            path = self._directory / (f"{key}-{number}" if number else key)
            ready = path.with_suffix(".ready")
            self._note(path, job)
            if not ready.exists():
                return path, False
            if _is_as_built(path, ready):
                return path, True
            log.warning("environment.changed", path=str(path))
            (path.with_suffix(".jobs") / job).unlink()
            if self._drop(ready):
                self._note(path, job)
                return path, False
        raise AssertionError("numbers do not end")

    def _note(self, path: Path, job: str) -> None:
        users = path.with_suffix(".jobs")
        with self._guard:
            users.mkdir(mode=0o700, parents=True, exist_ok=True)
            (users / job).touch()

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

    async def _build(self, wanted: Wanted, found: Found, path: Path, limits: Limits) -> None:
        started = time.monotonic()
        # Neither the caller who cancelled it nor the next one to ask gets that as a failure.
        problem = await attended(partial(self._build_now, wanted, found, path, limits), self._threads)
        if problem is not None:
            self._failures[path.name] = (time.monotonic(), problem)
            raise problem
        self._failures.pop(path.name, None)
        took_s = round(time.monotonic() - started, 3)
        log.info("environment.built", path=str(path), duration_s=took_s, sources=found.sources.in_words())

    def _build_now(self, wanted: Wanted, found: Found, path: Path, limits: Limits, stop: int) -> CodeProblem | None:
        with self._downloads_in_use():
            return self._build_here(wanted, found, path, limits, stop)

    def _build_here(
        self, wanted: Wanted, found: Found, path: Path, limits: Limits, stop: int
    ) -> CodeProblem | None:
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
                [found.python, "-I", "-S", "-c", DROP_TORN, str(path)],
            ]
            if self._user is not None:
                safe_paths.give(work, *self._user)  # only now: no other user could enter it while it was filled
            self._own(path)
            said = f"Installing from {found.sources.in_words()}\n".encode()
            for command in commands:
                left_s = max(deadline - time.monotonic(), 1.0)
                try:
                    said += self._installer.run(command, work, self._downloads, left_s, stop, found.sources, limits)
                except CodeProblem as problem:
                    problem.log = found.sources.hide(said.decode("utf-8", "replace")).encode() + problem.log
                    raise
            size = safe_paths.size(path)
            sealed_tree.seal(path, self._user)
            _flush(path)
            fresh = path.with_suffix(".new")
            with fresh.open("w") as file:
                json.dump({"bytes": size, "digest": sealed_tree.digest(path)}, file)
                file.flush()
                os.fsync(file.fileno())
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
            (work / name).write_text(text, encoding="utf-8")  # as uv reads it, whatever the locale
        command = [
            uv(),
            "pip",
            "install",
            "--compile-bytecode",
            "--python",
            f"{path}/bin/python",
            "--config-file",
            str(work / "uv.toml"),
        ]
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

    @contextlib.contextmanager
    def _downloads_in_use(self) -> Iterator[None]:
        with self._guard:
            self._downloading[self._downloads] += 1
        try:
            yield
        finally:
            with self._guard:
                self._downloading[self._downloads] -= 1

    def _make_room(self, fresh: Path) -> None:
        """The longest unused environments go until there is room; and uv's downloads, where they are too many."""
        safe_paths.try_to_remove(fresh)
        entries = []
        for ready in self._directory.parent.glob("*/*.ready"):
            with contextlib.suppress(FileNotFoundError):  # another build makes room, too
                entries.append((ready.stat().st_mtime, int(_told(ready).get("bytes", 0)), ready))
        total = sum(size for _, size, _ in entries)
        for _, size, ready in sorted(entries):
            if total <= self._settings.environments_mb << 20:
                break
            total -= size if self._drop(ready) else 0
        kept = sorted((safe_paths.size(folder), folder) for folder in self._downloads.parent.iterdir())
        total = sum(size for size, _ in kept)
        while kept and total > self._settings.downloads_mb << 20:
            size, largest = kept.pop()
            total -= size if self._drop_downloads(largest) else 0
        self._own(self._downloads)

    def _drop_downloads(self, folder: Path) -> bool:
        """Remove a user's downloads unless another build uses them. Whether they have gone."""
        gone = self._work / f"downloads-{folder.name}-{time.monotonic_ns()}"
        with self._guard:
            if self._downloading[folder] > (folder == self._downloads):
                return False
            with contextlib.suppress(FileNotFoundError):
                folder.rename(gone)
        safe_paths.try_to_remove(gone)
        return True

    def _drop(self, ready: Path) -> bool:
        """Remove an environment unless a job uses it. Whether it has gone."""
        path, users = ready.with_suffix(""), ready.with_suffix(".jobs")
        gone = self._work / f"{path.name}-{time.monotonic_ns()}"
        with self._guard:
            if users.exists() and any(users.iterdir()):
                return False
            ready.unlink(missing_ok=True)
            with contextlib.suppress(FileNotFoundError):  # an admin, or a build that makes room too, was first
                path.chmod(0o700)  # or only root could move it
                path.rename(gone)
            safe_paths.try_to_remove(users)
        safe_paths.try_to_remove(gone)
        log.info("environment.evicted", path=str(path))
        return True


def _is_as_built(path: Path, ready: Path) -> bool:
    try:
        return bool(_told(ready).get("digest") == sealed_tree.digest(path))
    except FileNotFoundError:  # it, or a part of it, was removed
        return False


def _told(ready: Path) -> dict[str, Any]:
    """The note beside an environment; empty where a full disk or a loss of power has left half of it."""
    try:
        found = json.loads(ready.read_text())
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _join(found: Found, work: Path) -> list[list[str]]:
    """Command that joins the certificates to trust into one file, as the account; none where there are none."""
    files = found.sources.certificates
    return [[found.python, "-I", "-S", "-c", JOIN, str(work / CERTIFICATES), *files]] if files else []


def _changed(uri: str) -> list[int]:
    """Fingerprint by which a host's file is seen to have changed; other URIs are assumed not to change.

    Raises ``OSError`` where it is the host's fault that there is none.
    """
    if not uri.lower().startswith("file:"):
        return []
    try:
        status = os.stat(unquote(urlsplit(uri).path))
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in host_errors.ERRNOS:
            raise
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
