"""Accounts that workers run as, and how the login manager treats them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast._base.dataclass import dataclass
from holdfast.doctor.findings import Finding, error, ok, warning

ORDINARY_UID = 1000
"""From here on users are people's, which is what logind goes by (SYS_UID_MAX of login.defs is below)."""


@dataclass(frozen=True, slots=True)
class AccountFacts:
    """The user that the settings name for workers, as this host knows it."""

    agent_is_root: bool
    worker_user: str = ""
    """Empty: workers run as the agent's own user."""
    uid: int | None = None
    """None where there is no such user."""
    allows_root: bool = False
    private_shm: bool = True
    logind: bool = False
    """systemd's login manager runs."""
    logind_conf: tuple[str, ...] = ()
    """Texts of its configuration, those that count more later."""


def check(facts: AccountFacts) -> Iterator[Finding]:
    """Check that the accounts exist, then that logging out does not destroy their shared memory."""
    yield _user(facts)
    yield _ipc(facts)


def _user(facts: AccountFacts) -> Finding:
    name = facts.worker_user
    if name and facts.uid is None:
        fix = (f"useradd --system --create-home {name}", "or correct worker_user in agent.toml")
        return error("accounts.worker", f"there is no user {name!r}", "The agent refuses to start.", *fix)
    if name and not facts.agent_is_root and facts.uid:
        why = "Only root can start processes of another user."
        return error(
            "accounts.worker", f"worker_user is {name} and the agent is not root", why, "Start it as root."
        )
    as_root = facts.uid == 0 if name else facts.agent_is_root
    if not as_root:
        return ok("accounts.worker", f"workers run as {name or 'the agent does'} (uid {facts.uid})")
    if facts.allows_root:
        why = "A job can do to this host whatever it likes (allow_root_workers is set)."
        return warning("accounts.worker", "workers run as root", why, *_NAME_ONE)
    why = "They are refused: only jobs that name an account run here."
    return warning("accounts.worker", "workers of jobs without an account would run as root", why, *_NAME_ONE)


_NAME_ONE = ("useradd --system --create-home trainer", 'agent.toml: worker_user = "trainer"')


def _ipc(facts: AccountFacts) -> Finding:
    if not facts.logind:
        return ok("accounts.ipc", "no login manager removes shared memory")
    if last_setting(facts.logind_conf, "RemoveIPC", "yes").lower() in ("no", "false", "0", "off"):
        return ok("accounts.ipc", "logind leaves users' shared memory alone")
    if facts.private_shm and facts.agent_is_root:
        return ok("accounts.ipc", "logind removes users' shared memory; workers have one of their own")
    # A root agent also starts workers of jobs that name an account.
    if not facts.agent_is_root and (facts.uid is None or facts.uid < ORDINARY_UID):
        return ok("accounts.ipc", "logind removes users' shared memory, though not that of system users")
    why = "When the user's last login ends, shared memory of running workers goes: NCCL and loaders fail."
    path = "/etc/systemd/logind.conf.d/holdfast.conf"
    fix = (f"printf '[Login]\\nRemoveIPC=no\\n' > {path}", "systemctl restart systemd-logind")
    return warning("accounts.ipc", "logind removes users' shared memory at logout", why, *fix)


def last_setting(texts: Iterable[str], key: str, default: str) -> str:
    """Value of a key in files like systemd's: the last one counts, an empty one restores the default."""
    value = default
    for text in texts:
        for line in text.splitlines():
            name, equals, said = line.strip().partition("=")
            if equals and name.strip() == key:
                value = said.strip() or default
    return value
