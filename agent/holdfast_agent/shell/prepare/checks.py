"""Whether a worker can run here, found out before anything is promised. A refusal is a sentence with the host."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from holdfast._session.assignment import Assignment, Launch
from holdfast_agent.core.launch.environment import HostFacts, search_path, working_directory
from holdfast_agent.core.model.launch import PreparedCode
from holdfast_agent.shell.base import host_errors
from holdfast_agent.shell.users import secret_files
from holdfast_agent.shell.users.fs_identity import files_as


def root_problem(facts: HostFacts, *, root_allowed: bool) -> str:
    """Why nothing of a job may run here as the user that workers have; empty where it may."""
    if not root_allowed and (facts.user.uid == 0 or (facts.user.uid is None and os.geteuid() == 0)):
        return (
            f"{facts.name}: workers would run as root, which this host does not allow "
            "(agent.toml: worker_user, or allow_root_workers = true)."
        )
    return ""


def problem(
    assignment: Assignment, facts: HostFacts, *, root_allowed: bool, code: PreparedCode | None = None
) -> str:
    """Why the job's program can't run here; empty where it can. May block on a dead file server.

    Raises ``OSError`` where the host can't find out.
    """
    launch = assignment.launch
    if launch is None:
        return f"{facts.name}: the assignment says nothing about what to run."
    if refusal := root_problem(facts, root_allowed=root_allowed):
        return refusal
    if unreadable := secret_files.unreadable(launch, facts):
        return unreadable
    if launch.task.image:
        return ""  # its program is in the image
    try:
        with files_as(facts.user):
            return _program_problem(assignment, launch, facts, code)
    except OSError:
        # Somewhere on the way the worker's account may not look, or a file server is gone: perhaps one that only this
        # job uses, for which the host is not to be cordoned. The shim will tell.
        return ""


def _program_problem(assignment: Assignment, launch: Launch, facts: HostFacts, code: PreparedCode | None) -> str:
    directory = working_directory(facts, assignment.key, launch, code=code)
    if launch.task.working_directory:
        if not os.path.isabs(directory):
            return f"{facts.name}: the working directory {directory} is not an absolute path."
        if (found := _status(directory)) is None:
            return f"{facts.name}: the working directory {directory} does not exist."
        if not stat.S_ISDIR(found.st_mode):
            return f"{facts.name}: the working directory {directory} is no directory."
    try:
        path = search_path(launch, facts, code)
    except ValueError as error:
        return f"{facts.name}: {error}."
    return _command_problem(launch, facts, path, directory)


def _command_problem(launch: Launch, facts: HostFacts, path: str, directory: str) -> str:
    command = launch.task.command[0]
    if "$(" in command:
        return ""  # may need the rendezvous; the shim will tell
    if "/" in command:
        found = Path(directory, command)
        if _status(found) is None:
            return f"{facts.name}: the command {command} does not exist."
        return "" if _is_program(found) else f"{facts.name}: the command {command} is not an executable file."
    if _is_on(path, directory, command):
        return ""
    hint = ""
    if command == "python" and _is_on(path, directory, "python3"):
        hint = "; python3 is"
    elif (script := _status(Path(directory, command))) is not None and stat.S_ISREG(script.st_mode):
        by = {".py": "python3 ", ".sh": "bash "}.get(Path(command).suffix, "./")
        hint = f"; it is a file of the working directory: write {by}{command}"
    return f"{facts.name}: the command {command!r} is not on the worker's PATH ({path}){hint}."


def _is_on(path: str, directory: str, command: str) -> bool:
    """Raises ``PermissionError`` where it is nowhere else than perhaps in a folder that can't be looked into."""
    hidden: PermissionError | None = None
    for folder in path.split(":"):
        try:
            if _is_program(Path(directory, folder, command)):
                return True
        except PermissionError as error:
            hidden = error
    if hidden is not None:
        raise hidden
    return False


def _is_program(path: Path) -> bool:
    status = _status(path)
    return status is not None and stat.S_ISREG(status.st_mode) and bool(status.st_mode & 0o111)


def _status(path: Path | str) -> os.stat_result | None:
    """The status of what is there, if anything. Raises ``OSError`` where the host or its permissions keep it."""
    try:
        return os.stat(path)
    except (OSError, ValueError) as error:
        if isinstance(error, PermissionError) or (isinstance(error, OSError) and error.errno in host_errors.ERRNOS):
            raise
        return None
