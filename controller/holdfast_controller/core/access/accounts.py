"""Unix accounts that jobs run as: those that an admin has mapped a job's owner to, or the cluster's default.

It is decided once, when the job is submitted, and stands in the log with the job's gang. So whatever is mapped
later counts for later jobs, and a job whose owner was removed goes on as what it is. Accounts are names; whom a
name means on a host, and whether work may run there as that account, is the host's to say: the controller's word
alone makes no process root.
"""

from __future__ import annotations

from holdfast._base.job_file.accounts import NAME_RULE, is_account
from holdfast.errors import AccountDenied, HoldfastError, InvalidInput, NotFound, Violation
from holdfast_controller.core.events import access as ev
from holdfast_controller.core.model.accounts.users import People, RunAs
from holdfast_controller.core.step.access_commands import AccountsAsked
from holdfast_controller.core.step.actions import Refuse, Reply
from holdfast_controller.core.step.step import Policies, Step

MAX_ACCOUNTS = 16
"""Most accounts of one user."""
FIELD = "jobSpec.runAs"


def on_accounts(step: Step, asked: AccountsAsked) -> None:
    """Set the accounts that a known user's jobs may run as. Repeating the command changes nothing."""
    problem: HoldfastError | None = bad_accounts(asked.accounts)
    people, user = step.cluster.people, asked.user
    if user not in people.roles and user not in people.signed_in and user not in step.policies.admins:
        problem = NotFound(f"There is no user {asked.user!r}.", fix=f"First: holdfast user add {asked.user}")
    if problem is not None:
        step.do(Refuse(asked.token, problem))
        return
    map_user(step, asked.user, asked.accounts, asked.by)
    step.do(Reply(asked.token, asked.user))


def map_user(step: Step, user: str, accounts: tuple[str, ...], by: str) -> None:
    """Map a user to ``accounts``, the first being the default, if that changes anything."""
    if step.cluster.people.accounts.get(user, ()) != accounts:
        step.emit(ev.AccountsMapped(at=step.now.wall, user=user, accounts=accounts, by=by))


def bad_accounts(accounts: tuple[str, ...]) -> InvalidInput | None:
    """The error in a list of accounts; None where there is none."""
    if len(accounts) > MAX_ACCOUNTS:
        fix = "map the user to fewer"
        return InvalidInput([Violation("accounts", f"are {len(accounts)}; at most {MAX_ACCOUNTS} may be", fix)])
    for index, name in enumerate(accounts):
        if not is_account(name):
            return InvalidInput([Violation(f"accounts[{index}]", f"{name!r} is no account's name", NAME_RULE)])
        if name in accounts[:index]:
            return InvalidInput([Violation(f"accounts[{index}]", f"{name} stands there twice", "once is enough")])
    return None


def account_for(owner: str, wanted: str, people: People, policies: Policies) -> str:
    """The account that a new job of ``owner`` runs as; empty: each host's own choice.

    Raises ``AccountDenied`` where the job names one that the owner was not mapped to.
    """
    mapped = people.accounts.get(owner, ())
    if not mapped and policies.run_as is RunAs.SAME_NAME:
        mapped = (owner,)
    if not wanted:
        return mapped[0] if mapped else ""
    if wanted in mapped:
        return wanted
    may = f"jobs of {owner} may run as {', '.join(mapped)}, not as {wanted}"
    if not mapped:
        may = f"{owner} is mapped to no account, so their jobs may not run as {wanted}"
    fix = (
        f"leave it out, or ask an admin: holdfast user set {owner} --run-as {' --run-as '.join((*mapped, wanted))}"
    )
    raise AccountDenied([Violation(FIELD, may, fix)], what="The job")
