"""Runs tests on a kernel of their own, with cgroup v2 and its controllers: `python -m tests.kernel.boot [TEST…]`.

Debian's kernel, in QEMU. Its files are this machine's, by 9p and read-only, with memory above them: nothing that a
test does there stays. By KVM where a kernel boots with that, else emulated; then its clock counts instructions
(`-icount`), so that a slow machine is slow for us alone, while the tests' limits of time hold. Leave the tree as it is
meanwhile.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
TREE = HERE.parents[1]
CACHE = Path(os.environ.get("HOLDFAST_KERNELS", "/var/cache/holdfast-kernels"))
TOOLS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "busybox": "busybox-static",
    "modprobe": "kmod",
    "apt-get": "apt",
    "dpkg": "dpkg",
}
"""Programs, and the packages that have them."""
MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay")
TESTS = (
    "tests/security/hosts/test_cgroup_walls.py",
    "tests/integration/shim/test_cgroup.py",
    "tests/integration/agent/launch/test_cgroups.py",
)
KVM = ("-accel", "kvm", "-cpu", "host,-arch-capabilities", "-smp", str(os.cpu_count()))
EMULATED = ("-accel", "tcg,tb-size=512", "-icount", "shift=0", "-cpu", "max,-la57", "-smp", "1")
UP, ENDED = re.compile(rb"^Linux \S+ is up", re.M), re.compile(rb"^pytest ended with (\d+)", re.M)
UP_WITHIN_S = 60.0
"""By KVM. There are hosts that offer it and on which no kernel gets anywhere."""


def kernel() -> Path:
    """A folder with Debian's kernel and its modules, fetched once and then kept."""
    said = subprocess.check_output(["apt-cache", "depends", "--important", "linux-image-amd64"], text=True)
    package = re.findall(r"Depends: (linux-image-\S+)", said)[0]
    folder = CACHE / str(package)
    if not folder.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as fresh:
            subprocess.run(["apt-get", "download", "-qq", package], cwd=fresh, check=True)
            (file,) = Path(fresh).glob("*.deb")
            subprocess.run(["dpkg", "-x", str(file), f"{fresh}/tree"], check=True)
            (version,) = (path.name for path in Path(fresh, "tree/lib/modules").iterdir())
            subprocess.run(["depmod", "-b", f"{fresh}/tree", version], check=True)
            Path(fresh, "tree").rename(folder)
    return folder


def first_files(kernel: Path) -> bytes:
    """An archive (cpio, newc) with what it takes to mount this machine's files: init, busybox, modules."""
    (version,) = (path.name for path in (kernel / "lib/modules").iterdir())
    files = {"init": HERE / "init", "bin/busybox": Path(shutil.which("busybox") or "")}
    for module in MODULES:
        show = ["modprobe", "-d", str(kernel), "-S", version, "--show-depends", module]
        for line in subprocess.check_output(show, text=True).splitlines():
            kind, module_file = line.split()[:2]
            if kind == "insmod":
                files[str(Path(module_file).relative_to(kernel))] = Path(module_file)
    for path in (kernel / "lib/modules" / version).glob("modules.*"):
        files[str(path.relative_to(kernel))] = path
    folders = {str(folder) for name in files for folder in Path(name).parents} - {"."}
    entries = [(name, 0o40755, b"") for name in sorted(folders)]
    entries += [(name, 0o100755, path.read_bytes()) for name, path in files.items()]
    return b"".join(_entry(*entry) for entry in [*entries, ("TRAILER!!!", 0, b"")])


def _entry(name: str, mode: int, data: bytes) -> bytes:
    fields = (0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
    return head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)


def boot(kernel: Path, how: Sequence[str], tests: Sequence[str], up_within_s: float | None) -> bytes:
    """What the kernel and its tests have said, which is printed too. Ended unless it is up in time."""
    (image,) = (kernel / "boot").glob("vmlinuz-*")
    inside = [str(HERE / "inside.sh"), str(TREE), str(kernel / "lib/modules"), *tests]
    words = f"console=ttyS0 quiet panic=-1 mitigations=off random.trust_cpu=on -- {' '.join(inside)}"
    with tempfile.NamedTemporaryFile() as archive:
        archive.write(first_files(kernel))
        archive.flush()
        command = ["qemu-system-x86_64", "-M", "q35", *how, "-m", "3G", "-nodefaults", "-nographic", "-no-reboot"]
        command += ["-serial", "stdio", "-kernel", str(image), "-initrd", archive.name, "-append", words]
        command += ["-fsdev", "local,id=files,path=/,security_model=none,readonly=on,multidevs=remap"]
        command += ["-device", "virtio-9p-pci,fsdev=files,mount_tag=files"]
        said = b""
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as qemu:
            assert qemu.stdout is not None
            late = threading.Timer(up_within_s or 0.0, qemu.kill)
            if up_within_s:
                late.start()
            try:
                while data := os.read(qemu.stdout.fileno(), 1 << 16):
                    said += data
                    if UP.search(said):
                        late.cancel()
                    sys.stdout.buffer.write(data)
                    sys.stdout.flush()
            finally:
                late.cancel()
                qemu.kill()
    return said


def main(tests: Sequence[str]) -> int:
    """The exit status of pytest there; 2 where that can't be had."""
    lacking = sorted(package for tool, package in TOOLS.items() if shutil.which(tool) is None)
    if lacking or os.geteuid():
        print(f"A kernel of the tests' own needs root{''.join(f', {each}' for each in lacking)}.", file=sys.stderr)
        return 2
    found, said = kernel(), b""
    if os.access("/dev/kvm", os.R_OK | os.W_OK):
        said = boot(found, KVM, tests, UP_WITHIN_S)
    if not UP.search(said):
        print("Without KVM: some ten times slower than here.", flush=True)
        said = boot(found, EMULATED, tests, None)
    ended = ENDED.search(said)
    return int(ended[1]) if ended else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or TESTS))
