"""Looks up the account that a job names on this host."""

from __future__ import annotations

import ctypes
import errno
import os
import pwd
from dataclasses import dataclass, field

from holdfast_agent.core.launch.accounts import AccountRules, why_not
from holdfast_agent.core.launch.environment import WorkerUser
from holdfast_agent.shim.processes import printable

_SAYS_NO = frozenset({0, errno.ENOENT, errno.ESRCH, errno.EBADF, errno.EPERM})
"""Answers of the C library that mean that there is no such account: getpwnam(3)."""
_ENTRY_BYTES, _TEXT_BYTES = 256, 64 << 10
"""Room for ``struct passwd``, and for the texts of an entry."""


class NoAccount(Exception):
    """Nothing runs here as that account, and why: a sentence without the host's name or a full stop.

    ``host_fault``: another host may know the account, or this one later.
    """

    def __init__(self, problem: str, *, host_fault: bool = False) -> None:
        super().__init__(problem)
        self.host_fault = host_fault


@dataclass
class Accounts:
    """Accounts of this host. ``default`` is used by workers whose job names none."""

    default: WorkerUser
    rules: AccountRules
    _known: dict[str, WorkerUser] = field(default_factory=dict)

    def at_hand(self, name: str) -> WorkerUser | None:
        """The account as last looked up, without a new look-up; None if there was none."""
        return self._known.get(name) if name else self.default

    def look_up(self, name: str) -> WorkerUser:
        """The account as the host knows it now, with its groups. Raises ``NoAccount``.

        Blocks: the answer may come from a directory service. Looked up again for every preparation,
        except for a restart in place.
        """
        if not name:
            return self.default
        try:
            entry = pwd.getpwnam(name)
        except (KeyError, ValueError) as error:  # a NUL in it
            raise _not_found(name, was_here=name in self._known) from error
        self._known.pop(name, None)
        if problem := why_not(name, entry.pw_uid, self.rules):
            raise NoAccount(problem)
        found = user_of(entry)
        self._known[name] = found
        return found


def _not_found(name: str, *, was_here: bool) -> NoAccount:
    """Why an account was not found. A directory service that is away is no answer, though Python takes it for one."""
    shown = printable(name.encode())
    error = 0 if "\0" in name else _getpwnam_error(name)
    if error not in _SAYS_NO:
        problem = f"whether there is an account {shown} can't be found out: {os.strerror(error)}"
        return NoAccount(f"{problem}; is a service of nsswitch.conf away?", host_fault=True)
    if was_here:
        problem = f"the account {shown} was there before and isn't found any more"
        return NoAccount(f"{problem}; is a service of nsswitch.conf away?", host_fault=True)
    return NoAccount(f"there is no account {shown} on this host")


def _getpwnam_error(name: str) -> int:
    """The C library's own error for a look-up that finds nothing, which Python leaves out; 0 without one."""
    entry, texts = ctypes.create_string_buffer(_ENTRY_BYTES), ctypes.create_string_buffer(_TEXT_BYTES)
    look_up, found = ctypes.CDLL(None).getpwnam_r, ctypes.c_void_p()
    return int(look_up(os.fsencode(name), entry, texts, ctypes.c_size_t(_TEXT_BYTES), ctypes.byref(found)))


def user_of(entry: pwd.struct_passwd) -> WorkerUser:
    """The account of a passwd entry, with its groups, as ranks use it."""
    known = WorkerUser(entry.pw_name, entry.pw_dir or "/", entry.pw_shell or "/bin/sh")
    if entry.pw_uid == os.geteuid():
        return known
    groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
    return WorkerUser(known.name, known.home, known.shell, entry.pw_uid, entry.pw_gid, groups)
