"""Leaves out a variable's old name where the rank's torch knows the new one, and warns of the old on every rank.

The agent sets the size of torch's flight recorder under both names, since it can't know which torch a rank imports.
Here, in a rank's child before its program, as the rank's user, that is looked up as its Python would: in PYTHONPATH,
beside the program, and beside the first Python on PATH. Where no torch is found both names stay.
"""

from __future__ import annotations

import os

OLD, NEW = b"TORCH_NCCL_TRACE_BUFFER_SIZE", b"TORCH_FR_BUFFER_SIZE"
RENAMED_IN = (2, 9)
MOST_BYTES = 4096
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    Env = dict[bytes, bytes]


def leave_out_old(argv: list[bytes], env: Env) -> None:
    """Remove the old name where both are set alike, which no user does, and the rank's torch is new enough."""
    if NEW not in env or env.get(OLD) != env[NEW]:
        return
    for folder in folders(argv, env):
        version = version_in(folder)
        if version is not None:
            if version >= RENAMED_IN:
                del env[OLD]
            return


def folders(argv: list[bytes], env: Env) -> Iterator[bytes]:
    """The folders in which the rank's Python looks for packages, in its order, as far as they show from outside."""
    yield from filter(None, env.get(b"PYTHONPATH", b"").split(b":"))
    home = env.get(b"HOME", b"")
    binaries = [folder for folder in env.get(b"PATH", b"").split(b":") if has_python(folder)][:1]
    if b"/" in argv[0]:
        binaries.insert(0, os.path.dirname(argv[0]))
    for root in (home + b"/.local", *map(os.path.dirname, binaries)):
        lib = os.path.join(root, b"lib")
        try:
            names = sorted(name for name in os.listdir(lib) if name.startswith(b"python3"))
        except OSError:
            continue
        for name in names:
            for packages in (b"site-packages", b"dist-packages"):
                yield os.path.join(lib, name, packages)


def has_python(folder: bytes) -> bool:
    """Whether a folder of PATH has a Python."""
    return any(os.access(os.path.join(folder, name), os.X_OK) for name in (b"python3", b"python"))


def version_in(folder: bytes) -> tuple[int, int] | None:
    """The version of the torch that lies in ``folder``, such as (2, 9); None where there is none."""
    try:
        with open(os.path.join(folder, b"torch/version.py"), "rb") as file:
            text = file.read(MOST_BYTES)
    except OSError:
        return None
    for line in text.splitlines():
        name, _, value = line.partition(b"=")
        if name.partition(b":")[0].strip() == b"__version__":
            parts = value.strip().strip(b"'\"").split(b".")
            if len(parts) > 1 and parts[0].isdigit() and parts[1].isdigit():
                return int(parts[0]), int(parts[1])
    return None
