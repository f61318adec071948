"""Notes on a job before it is sent: what the user's shell has that it won't find, and what may be meant otherwise."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import termios
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from holdfast._base.job_file.launcher import is_login_shell
from holdfast.cli.kit.shell_words import shell_line
from holdfast.cli.submission.programs import program_of

if TYPE_CHECKING:
    from holdfast.v1 import job_pb2

_ENVIRONMENTS = ("VIRTUAL_ENV", "CONDA_PREFIX")


def notes(job: job_pb2.CustomJob, environ: Mapping[str, str], *, by_run: bool) -> list[str]:
    """All that is said of a job before it is sent, whether it is kept then or only tried."""
    directory = not_executable(job) if by_run else unsent_directory(job, os.getcwd())
    return [*single_index(job.job_spec.scheduling.array), *directory, *unsent(job, environ, by_run=by_run)]


def unsent(job: job_pb2.CustomJob, environ: Mapping[str, str], *, by_run: bool) -> list[str]:
    """A note for each variable of the shell that changes which Python or modules a program finds, and isn't sent.

    Containers bring their own, and code that is packaged is run by the hosts' Python on purpose.
    """
    return list(dict.fromkeys(_notes(job, environ, by_run)))


def _notes(job: job_pb2.CustomJob, environ: Mapping[str, str], by_run: bool) -> Iterator[str]:
    for pool in job.job_spec.worker_pool_specs:
        task = pool.process_spec
        if not task.command:
            continue
        sent = {variable.name for variable in task.env} | {variable.name for variable in task.secret_env}
        if environ.get("PYTHONPATH") and "PYTHONPATH" not in sent:
            way = "--env PYTHONPATH sends it" if by_run else "the job's env can name it"
            yield f"PYTHONPATH is set here and not sent: {way}"
        if "PATH" in sent and is_login_shell((*task.command, *task.args)):
            yield (
                f"{task.command[0]} -l takes PATH from the hosts' profile, not the one that is sent: programs may be "
                "others there; to keep yours, write it without -l"
            )
        active = next((name for name in _ENVIRONMENTS if environ.get(name)), "")
        program = task.command[0]
        path = f"{environ.get(active)}/bin/{program}"
        own = "PATH" not in sent and "/" not in program and os.path.exists(path)
        if active and own and not task.HasField("packaged_code"):
            yield f"{active} is set here and not sent: {program} is the hosts' own; to run yours, write {path}"


def unsent_directory(job: job_pb2.CustomJob, cwd: str) -> list[str]:
    """A note for each file of this directory that a job names by a relative path, and will look for elsewhere."""
    found = []
    for pool in job.job_spec.worker_pool_specs:
        task = pool.process_spec
        if task.working_directory or task.HasField("packaged_code"):
            continue
        words = [*task.command, *task.args]
        # A program without a slash is looked for on the PATH.
        named = [word for at, word in enumerate(words) if (at or "/" in word) and not word.startswith(("-", "/"))]
        found += [word for word in named if os.path.isfile(os.path.join(cwd, word))][:1]
    return [
        f"{word} is in this directory, and submit does not carry your directory: set processSpec.workingDirectory, "
        "or use holdfast run"
        for word in dict.fromkeys(found)
    ]


def not_executable(job: job_pb2.CustomJob) -> list[str]:
    """A note where the program is a file of this machine that has no permission to be run."""
    for pool in job.job_spec.worker_pool_specs:
        task = pool.process_spec
        if task.HasField("packaged_code") or not task.command or "/" not in task.command[0]:
            continue
        program = task.command[0].replace("$$", "$")
        with contextlib.suppress(OSError):
            path = os.path.join(task.working_directory, program)
            mode = os.stat(path).st_mode
            if stat.S_ISREG(mode) and not mode & 0o111:
                with open(path, errors="replace") as file:
                    runs = program_of(program, file.readline(200)) or ["bash"]
                return [
                    f"{program} is not executable: {shell_line([*runs, program.removeprefix('./')])}, "
                    f"or chmod +x {shell_line([program.removeprefix('./')])}"
                ]
    return []


def single_index(array: str) -> list[str]:
    """A note where an array is one number, which may have been meant as how many jobs there are."""
    number = array.partition("%")[0]
    if not number.isdecimal() or int(number) < 2:
        return []
    return [f"array {number} is the index {number} only; {number} jobs are 1-{number}"]


def unsent_input(fd: int = 0) -> list[str]:
    """A note where something waits on stdin that no rank will read; none for an empty pipe, as in scripts and CI."""
    with contextlib.suppress(OSError):  # it is closed, or of a kind that can't be asked
        about = os.fstat(fd)
        if stat.S_ISREG(about.st_mode):
            waits = about.st_size > os.lseek(fd, 0, os.SEEK_CUR)
        else:
            is_pipe = stat.S_ISFIFO(about.st_mode) or stat.S_ISSOCK(about.st_mode)
            waits = is_pipe and any(fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0"))
        if waits:
            return [
                "stdin is not sent: the program reads an empty one. Put the data in a file that the hosts can read, or "
                "in a folder that --package sends, and have the program open it"
            ]
    return []
