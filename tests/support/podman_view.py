"""A podman for tests: real, with a store of its own, in a view of the machine in which it works as root.

Where cgroups are mounted the old way, or in part, podman starts nothing: so a process holds a mount namespace open
in which version 2 is, and ``podman`` is a script that goes there first. What podman keeps in /dev/shm stays there.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("podman", "crun", "catatonit", "busybox", "unshare", "nsenter")
IMAGE = "localhost/box:1"
APPLETS = ("sh", "sleep", "cat", "echo", "kill", "id", "ls", "touch", "mkdir", "env", "true", "false", "grep")
VIEW = """
mount --make-rprivate / && umount -l /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup || exit 1
mount -t tmpfs -o mode=1777 none /dev/shm || exit 1
echo ready
exec sleep infinity
"""
CALL_S = 120


@dataclass(frozen=True)
class PodmanView:
    """``bin`` goes first on a PATH."""

    bin: Path

    def call(self, *args: str, check: bool = True, input: bytes | None = None) -> str:
        """What podman answers."""
        done = subprocess.run(
            [str(self.bin / "podman"), "--cgroup-manager=cgroupfs", *args],
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            timeout=CALL_S,
        )
        assert not check or done.returncode == 0, f"podman {args}: {done.stderr.decode()}"
        return done.stdout.decode()

    def labels(self, job_id: str) -> dict[str, dict[str, str]]:
        """Id and labels of each container of a job's workers."""
        found = json.loads(self.call("ps", "--all", "--format=json", f"--filter=label=holdfast.job={job_id}"))
        return {one["Id"]: one["Labels"] for one in found}

    def containers(self, job_id: str = "") -> dict[str, str]:
        """Id and state of each container, or of those of a job's workers."""
        filters = [f"--filter=label=holdfast.job={job_id}"] if job_id else []
        found = json.loads(self.call("ps", "--all", "--format=json", *filters))
        return {one["Id"]: one["State"] for one in found}


def has_podman() -> bool:
    """Whether all that is needed is here and works."""
    if os.geteuid() != 0 or not all(map(shutil.which, PROGRAMS)):
        return False
    try:
        with tempfile.TemporaryDirectory() as folder, podman_view(Path(folder)):
            return True
    except (OSError, AssertionError, subprocess.SubprocessError):
        return False


@contextlib.contextmanager
def podman_view(folder: Path) -> Iterator[PodmanView]:
    """A podman that has ``IMAGE``: a busybox that prints $GREETING unless it is told otherwise."""
    holder = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", VIEW], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n", "no view with cgroup v2"
        # podman wants the path of its runroot to be short.
        with tempfile.TemporaryDirectory(prefix="box-", dir="/tmp") as short:
            view = PodmanView(_script(folder, Path(short), holder.pid))
            try:
                _import(view, folder)
                yield view
            finally:
                view.call("rm", "--all", "--force", "--time=0", check=False)
    finally:
        holder.kill()
        holder.communicate()


def _script(folder: Path, short: Path, holder: int) -> Path:
    programs = folder / "bin"
    programs.mkdir()
    script = programs / "podman"
    store = [f"--root={folder}/store", f"--runroot={short}/run", f"--tmpdir={folder}/tmp", "--storage-driver=vfs"]
    registries = folder / "registries.conf"
    registries.write_text(
        'unqualified-search-registries = []\n[[registry]]\nlocation = "127.0.0.1"\ninsecure = true\n'
    )
    script.write_text(
        "#!/bin/sh\n"
        f"export CONTAINERS_CONF=/dev/null CONTAINERS_REGISTRIES_CONF={registries}\n"
        f'exec nsenter --mount=/proc/{holder}/ns/mnt {shutil.which("podman")} {" ".join(store)} "$@"\n'
    )
    script.chmod(0o755)
    return programs


def _import(view: PodmanView, folder: Path) -> None:
    packed = folder / "box.tar"
    with tarfile.open(packed, "w") as tar:
        for name in ("tmp", "proc", "dev", "sys", "etc"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            tar.addfile(entry)
        tar.add(str(shutil.which("busybox")), "bin/busybox")
        for applet in APPLETS:
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    changes = ["ENV GREETING=hello", 'ENTRYPOINT ["/bin/sh", "-c"]', 'CMD ["echo the image says $GREETING"]']
    view.call("import", *(f"--change={change}" for change in changes), str(packed), IMAGE)
