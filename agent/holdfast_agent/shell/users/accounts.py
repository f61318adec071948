"""Looks up the account that a job names on this host."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass, field

from holdfast_agent.core.launch.accounts import AccountRules, why_not
from holdfast_agent.core.launch.environment import WorkerUser
from holdfast_agent.shim.processes import printable


class NoAccount(Exception):
    """Nothing runs here as that account, and why: a sentence without the host's name or a full stop."""


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
        self._known.pop(name, None)
        try:
            entry = pwd.getpwnam(name)
        except (KeyError, ValueError) as error:  # a NUL in it
            raise NoAccount(f"there is no account {printable(name.encode())} on this host") from error
        if problem := why_not(name, entry.pw_uid, self.rules):
            raise NoAccount(problem)
        found = user_of(entry)
        self._known[name] = found
        return found


def user_of(entry: pwd.struct_passwd) -> WorkerUser:
    """The account of a passwd entry, with its groups, as ranks use it."""
    known = WorkerUser(entry.pw_name, entry.pw_dir or "/", entry.pw_shell or "/bin/sh")
    if entry.pw_uid == os.geteuid():
        return known
    groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
    return WorkerUser(known.name, known.home, known.shell, entry.pw_uid, entry.pw_gid, groups)
