"""Whether work may run here as an account that a job names: the host decides, whatever the controller says.

The controller sends an account name that a cluster admin has allowed to the job's owner. This host's admin decides
which account that name means here and whether it may run work. So neither a mistake in the cluster's mapping nor a
compromised controller reaches root or a system account where the host does not allow it.
"""

from __future__ import annotations

from holdfast._base.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class AccountRules:
    """The account settings of ``agent.toml``. ``agent_uid`` is the user id that the agent runs as."""

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
