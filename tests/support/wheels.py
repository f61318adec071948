"""Wheels and source distributions of a few lines, made here: no test needs an index."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path


def wheel(folder: Path, name: str, version: str = "1.0", tag: str = "py3-none-any", **modules: str) -> Path:
    """A wheel with one module of the wheel's name that holds VERSION, and ``modules`` by name and source."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-{tag}.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        for module, source in {name: f"VERSION = {version!r}\n", **modules}.items():
            archive.writestr(f"{module}.py", source)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(
            f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return path


BACKEND = """
import os, zipfile
{body}
def build_wheel(directory, config=None, metadata=None):
    name = "{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(directory, name), "w") as out:
        out.writestr("{name}.py", "BUILT_BY = %d" % os.geteuid())
        info = "{name}-1.0.dist-info/"
        out.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: {name}\\nVersion: 1.0\\n")
        out.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        out.writestr(info + "RECORD", "")
    return name
"""


def source(folder: Path, name: str, body: str = "") -> Path:
    """A source distribution with a build backend of its own, which runs ``body`` when it is built."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        "backend.py": BACKEND.format(name=name, body=body),
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
    }
    path = folder / f"{name}-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for file, text in files.items():
            info = tarfile.TarInfo(f"{name}-1.0/{file}")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    return path
