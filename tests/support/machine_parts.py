"""Parts of a machine that tests may need: ``@pytest.mark.require("netns")``. Each is tried for real, once."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from tests.support import bmc, dead_file_server, postgres, s3, slurm_cluster, ssh_hosts
from tests.support.podman_view import has_podman

ROOT = Path(__file__).parents[2]
OIDC = ROOT / "tests/support/oidc"
"""A provider of OpenID Connect, and what npm fetches for it."""
SYSTEM_PYTHON = "/usr/bin/python3"
ANOTHER_USER = (shutil.which("setpriv") or "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
"""Runs a command as one who owns nothing."""


def _works(*command: str) -> bool:
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _cc() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text('#include <stdio.h>\nint probe(void) { return puts(""); }\n')
        return _works("cc", "-shared", "-fPIC", "-o", f"{folder}/probe.so", str(source))


def _torch() -> bool:
    # Not by an import, which takes two seconds in each process of a run: one that fails shows in the test.
    return importlib.util.find_spec("torch") is not None


def _netns() -> bool:
    return _works("unshare", "-n", "ip", "link", "set", "lo", "up")


def _iptables() -> bool:
    """Whether a network of ours can have limits by address."""
    limit = "-A INPUT -p tcp -m hashlimit --hashlimit-name probe --hashlimit-mode srcip --hashlimit-upto 1/second"
    return _works("unshare", "-n", "iptables", *limit.split(), "-j", "ACCEPT")


def _mount() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        return _works("unshare", "-m", "mount", "-t", "tmpfs", "none", folder)


def _fuse() -> bool:
    """Whether a file system of a process's own can be mounted."""
    try:
        with tempfile.TemporaryDirectory() as folder, dead_file_server.mounted(Path(folder, "mount")):
            return True
    except OSError:
        return False


def _loop() -> bool:
    """Whether an ext4 of ours can be mounted, and have its power cut."""
    from tests.faults import disk

    with tempfile.TemporaryDirectory() as folder:
        return disk.works(Path(folder))


def cgroup_mount() -> str:
    """Where cgroup v2 is mounted; empty where it isn't."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        if rest.startswith("cgroup2 "):
            return fields.split()[4]
    return ""


def _cgroup() -> bool:
    """Whether a cgroup v2 can be made, and killed whole."""
    probe = Path(cgroup_mount() or os.devnull, f"holdfast-probe-{os.getpid()}")
    try:
        probe.mkdir()
        found = (probe / "cgroup.kill").exists()
        probe.rmdir()
    except OSError:
        return False
    return found


def _memcg() -> bool:
    """Whether the top of the cgroup v2 tree has the memory controller to give."""
    controllers = Path(cgroup_mount() or os.devnull, "cgroup.controllers")
    return _cgroup() and "memory" in controllers.read_text().split()


def pids_tree() -> Path:
    """Where cgroups can be made that count and bound processes: of the first version, or of the second."""
    first = Path("/sys/fs/cgroup/pids")
    return first if first.is_dir() else Path(cgroup_mount() or os.devnull)


def _pids() -> bool:
    """Whether processes can be counted and bounded by a cgroup."""
    tree = pids_tree()
    probe = tree / f"holdfast-probe-{os.getpid()}"
    try:
        if (tree / "cgroup.subtree_control").exists():
            (tree / "cgroup.subtree_control").write_text("+pids")
        probe.mkdir()
        found = (probe / "pids.max").exists()
        probe.rmdir()
    except OSError:
        return False
    return found


def _freeze() -> bool:
    """Whether a file can be mounted as a disk, and frozen."""
    with tempfile.TemporaryDirectory() as folder:
        image, mount = Path(folder, "image"), Path(folder, "mount")
        image.touch()
        os.truncate(image, 16 << 20)
        mount.mkdir()
        steps = "mkfs.ext4 -q {0} && mount -o loop {0} {1} && fsfreeze -f {1} && fsfreeze -u {1} && umount {1}"
        return _works("unshare", "-m", "sh", "-c", steps.format(image, mount))


def _ptrace() -> bool:
    """Whether a sibling's memory may be read, and its stack dumped."""
    spy = Path(sys.executable).with_name("py-spy")
    target = subprocess.Popen(
        [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"], stdout=subprocess.PIPE
    )
    try:
        assert target.stdout is not None
        target.stdout.readline()
        return _works(str(spy), "dump", "--nonblocking", "--pid", str(target.pid))
    finally:
        target.kill()
        target.communicate()


def browser() -> str | None:
    """The path of a browser: of chromium without windows, which takes two thirds of the processor's time, or with."""
    return shutil.which("chromium-headless-shell") or shutil.which("chromium")


def _chromium() -> bool:
    """Whether the page can be looked at: it was built by ``make web``, and there is a browser with what drives it."""
    if not (ROOT / "controller/holdfast_controller/page/index.html").is_file():
        return False
    found = browser() if importlib.util.find_spec("playwright") is not None else None
    return found is not None and _works(found, "--version")


def _node() -> bool:
    """Whether the page can be built: Node is there, and so is what ``make web`` fetches for it."""
    return (ROOT / "web/node_modules/esbuild").is_dir() and _works("node", "--version")


def _frameworks(environment: str) -> Callable[[], bool]:
    """Whether ``make frameworks`` has installed all of an environment of its programs."""
    return (ROOT / "build/frameworks" / environment / ".ready").exists


def _pypi() -> bool:
    """Whether pip can fetch a package; the one that is tried has 14 kB."""
    with tempfile.TemporaryDirectory() as folder:
        pip = (sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir", "--dest", folder)
        return _works(*pip, "annotated-types")


def _system_python() -> bool:
    """Whether users have a Python that Holdfast runs on, with pip."""
    asked = "import pip, sys; sys.exit(sys.version_info < (3, 11))"
    return _works(*ANOTHER_USER, SYSTEM_PYTHON, "-c", asked)


@functools.cache
def other_pythons() -> dict[tuple[int, int], str]:
    """Pythons of other versions on this machine, by version: in PATH, or of pyenv."""
    found: dict[tuple[int, int], str] = {}
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    paths = [shutil.which(f"python3.{minor}") for minor in range(8, 20)]
    for path in [*paths, *map(str, sorted(pyenv.glob("3.*/bin/python")))]:
        if path and _works(path, "-c", ""):
            said = subprocess.run([path, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True)
            major, minor = map(int, said.stdout.split())
            if (major, minor) != sys.version_info[:2]:
                found[major, minor] = path  # of those in PATH some are shims of pyenv, which may lead elsewhere
    return found


def _systemd() -> bool:
    return Path("/run/systemd/system").is_dir() and _works("systemctl", "show", "--property=Version")


PROBES: dict[str, Callable[[], bool]] = {
    "cc": _cc,
    "cgroup": _cgroup,
    "chromium": _chromium,
    "curl": lambda: _works("curl", "--version"),
    "deepspeed": _frameworks("deepspeed"),
    "fish": lambda: _works("fish", "--version"),
    "frameworks": _frameworks("frameworks"),
    "freeze": _freeze,
    "fuse": _fuse,
    "git": lambda: _works("git", "--version"),
    "ipmi": lambda: not bmc.missing(),
    "iptables": _iptables,
    "lintian": lambda: _works("lintian", "--version"),
    "loop": _loop,
    "memcg": _memcg,
    "mount": _mount,
    "netns": _netns,
    "newer_python": lambda: any(version > sys.version_info[:2] for version in other_pythons()),
    "node": _node,
    "oidc": lambda: (OIDC / "node_modules/oidc-provider").is_dir() and _works("node", "--version"),
    "old_python": lambda: any((3, 8) <= version < (3, 11) for version in other_pythons()),
    "openmpi": _frameworks("openmpi"),
    "pids": _pids,
    "podman": has_podman,
    "postgres": lambda: not postgres.missing(),
    "prometheus": lambda: _works("prometheus", "--version"),
    "promtool": lambda: _works("promtool", "--version"),
    "pypi": _pypi,
    "ptrace": _ptrace,
    "redfish": lambda: _works(bmc.EMULATOR, "--help"),
    "root": lambda: os.geteuid() == 0,
    "s3": lambda: not s3.missing(),
    "slurm": lambda: not slurm_cluster.missing(),
    "sshd": lambda: not ssh_hosts.missing(),
    "system_python": _system_python,
    "systemd": _systemd,
    "tensorflow": _frameworks("tensorflow"),
    "torch": _torch,
    "zsh": lambda: _works("zsh", "--version"),
}


class UnknownPart(ValueError):
    """A name that no probe stands for."""

    def __init__(self, part: str) -> None:
        super().__init__(f"no part of a machine is called {part!r}; known: {', '.join(PROBES)}")


@functools.cache
def has(part: str) -> bool:
    """Whether this machine has ``part``. Raises ``UnknownPart``."""
    if part not in PROBES:
        raise UnknownPart(part)
    return PROBES[part]()


def demanded(environ: Mapping[str, str] = os.environ) -> frozenset[str]:
    """The parts that ``HOLDFAST_REQUIRE`` (a comma list) says must be there. Raises ``UnknownPart``."""
    parts = frozenset(part.strip() for part in environ.get("HOLDFAST_REQUIRE", "").split(",")) - {""}
    for part in sorted(parts - PROBES.keys()):
        raise UnknownPart(part)
    return parts


def missing(parts: Iterable[str]) -> list[str]:
    """Those of ``parts`` that this machine lacks. Raises ``UnknownPart``."""
    return [part for part in parts if not has(part)]
