"""The twin of ``holdfast._base.failpoints``, which a shim can't import; a test holds them alike."""

import errno
import os
import signal

VARIABLE = "HOLDFAST_FAILPOINTS"
_DIRECTORY = os.environ.get(VARIABLE, "")
_passes: dict[str, int] = {}


def hit(name: str) -> None:
    """A point is passed. Raises ``OSError`` where a test wants that; costs a look at one variable otherwise."""
    if _DIRECTORY:
        _passed(name)


def environment() -> dict[str, str]:
    """Environment that a child process needs for its own failpoints to work."""
    return {VARIABLE: _DIRECTORY} if _DIRECTORY else {}


def _passed(name: str) -> None:
    path = f"{_DIRECTORY}/{name}"
    try:
        with open(path) as file:
            action, _, wanted = file.read().strip().partition("@")
    except FileNotFoundError:
        _passes.pop(name, None)  # passes count from the arming on
        return
    _passes[name] = _passes.get(name, 0) + 1
    if _passes[name] < int(wanted or 1):
        return
    try:
        os.rename(path, f"{path}.fired")
    except FileNotFoundError:
        return  # another process was first
    with open(f"{path}.fired", "a") as file:
        file.write(f" {os.getpid()}\n")
    if action == "error":
        raise OSError(errno.EIO, f"failpoint {name}")
    os.kill(os.getpid(), {"exit": signal.SIGKILL, "stop": signal.SIGSTOP}[action])
