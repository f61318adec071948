"""Names of the accounts of hosts that workers run as, as admins and job files write them.

A name and never a number: one account may have another uid on each host.
"""

from __future__ import annotations

import re

NAME_PATTERN = r"[A-Za-z_][A-Za-z0-9_.@-]{0,63}"
NAME_RULE = "a letter or _, then letters, digits, and . _ @ -; at most 64; no number: uids differ from host to host"
_NAME = re.compile(NAME_PATTERN)


def is_account(name: str) -> bool:
    """Whether an account of a host may have this name."""
    return _NAME.fullmatch(name) is not None
