"""Whether work may run here as an account that a job names: the host's own word, whatever the controller says.

The controller sends a name that an admin of the cluster has allowed to the job's owner. Whom it means on this
host, and whether that somebody may run work here, is decided by what this host's admin has written. So neither a
mistake in the cluster's mapping nor a controller in wrong hands reaches root, or an account of the system's, where
the host does not allow it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AccountRules:
    """``agent.toml`` on accounts. ``agent_uid`` is whom the agent runs as."""

    agent_uid: int
    worker_user: str = ""
    lowest_uid: int = 1000
    allowed: frozenset[str] = frozenset()
    """Accounts below ``lowest_uid`` that may run work all the same."""
    root_allowed: bool = False


def why_not(name: str, uid: int, rules: AccountRules) -> str:
    """Why no work runs here as an account, without the host's name or a full stop; empty where it may."""
    if rules.agent_uid not in (0, uid):
        return f"only an agent that runs as root starts workers as {name}"
    if uid == 0:
        forbidden = f"{name} has uid 0 here, and this host starts no workers as root"
        return "" if rules.root_allowed else f"{forbidden} (agent.toml: allow_root_workers)"
    if uid >= rules.lowest_uid or name == rules.worker_user or name in rules.allowed:
        return ""
    below = f"{name} has uid {uid} here, and those below {rules.lowest_uid} are the system's"
    return f"{below} (agent.toml: lowest_uid, allowed_accounts)"
