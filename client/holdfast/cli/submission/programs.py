"""Programs that are taken for job files, and files that are taken for programs."""

from __future__ import annotations

from pathlib import PurePosixPath

from holdfast.cli.kit.shell_words import shell_line
from holdfast.errors import InvalidSpec, Violation


def program_of(name: str, text: str) -> list[str]:
    """The words before ``name`` that run it, where the text is a program and no job file; else none."""
    suffix, first = PurePosixPath(name).suffix, text.partition("\n")[0]
    if not first.startswith("#!") and suffix not in (".sh", ".bash", ".py"):
        return []
    return ["python" if suffix == ".py" or (first.startswith("#!") and "python" in first) else "bash"]


def refuse_program(what: str, text: str) -> None:
    """Raises ``InvalidSpec`` for a program that was given as a job file, with the command that runs it."""
    runs = program_of(what, text)
    if not runs:
        return
    fix = f"run it with: holdfast run -- {shell_line([*runs, what])}"
    if "\n#SBATCH" in text and text.startswith("#!"):
        fix = f"submit a script of Slurm with: holdfast submit {shell_line([what])}"
    elif "\n#SBATCH" in f"\n{text}":
        fix = "begin a script of Slurm with #!/bin/bash, and holdfast submit takes it"
    elif "\n#PBS" in text or "\n#BSUB" in text:
        fix += " (lines for another scheduler count for nothing: give options in their place)"
    raise InvalidSpec([Violation("", "is a program, not a job file", fix)], what=what)
