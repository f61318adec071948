"""Programs that are taken for job files, and files that are taken for programs."""

from __future__ import annotations

from pathlib import PurePosixPath


def program_of(name: str, text: str) -> list[str]:
    """The words before ``name`` that run it, where the text is a program and no job file; else none."""
    suffix, first = PurePosixPath(name).suffix, text.partition("\n")[0]
    if not first.startswith("#!") and suffix not in (".sh", ".bash", ".py"):
        return []
    return ["python" if suffix == ".py" or (first.startswith("#!") and "python" in first) else "bash"]
