"""Checks that machines make of themselves, and their clocks: what fails is recorded once, and once that it is over.

A host reports all of its failed checks whenever that set changes, so the newest report is all that counts; its agent
waits until a check has passed for a while before it reports that, so no check flaps. Clocks are compared here: each
heartbeat says what its host's clock shows (see ``Presence.behind_s``).
"""

from __future__ import annotations

from holdfast_controller.core import events as ev
from holdfast_controller.core.hosts import comparison, health_brake
from holdfast_controller.core.hosts.comparison import UNLIKE
from holdfast_controller.core.messages.maintenance import span
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.hosts.caution import LEMON
from holdfast_controller.core.model.hosts.host import CLOCKS_TOGETHER_S, CheckStatus, FailedCheck, Host
from holdfast_controller.core.model.hosts.measurements import PREFIX
from holdfast_controller.core.step.host_commands import ChecksReported, ControllerChecked, Judged
from holdfast_controller.core.step.step import Step

CLOCK = "time.controller"
"""The doctor has a check of the same name."""
OURS = frozenset({CLOCK, LEMON, UNLIKE})
"""Judged here, as are those that begin with ``PREFIX``: no host's report says that they fail, or that they pass."""
APART_S = 2.0
"""A clock is wrong that differs by more in a whole window, and right again below ``CLOCKS_TOGETHER_S``."""
FAR_APART_S = 300.0
"""Certificates are made valid from so long before their issue; beyond that fresh ones seem not to have begun."""
MOST = 64
"""Failed checks that are kept of a host: more than the doctor has."""


def on_checks(step: Step, told: ChecksReported) -> None:
    """Record which of a host's checks fail now that did not before, and which pass again."""
    host = step.cluster.hosts[told.host]
    found = {failed.check: failed for failed in told.failed[:MOST] if not _is_ours(failed.check)}
    unfit = host.unfit is not None
    over = [] if told.partial else [name for name in host.failed_checks if name not in found and not _is_ours(name)]
    for check in over:
        _pass(step, host, check)
    for failed in found.values():
        if _is_news(failed, host.failed_checks):
            _fail(step, host, health_brake.applied(step, host, failed))
    release(step)
    step.capacity_freed |= unfit and host.unfit is None


def _is_ours(check: str) -> bool:
    return check in OURS or check.startswith(PREFIX)


def found(step: Step, host: Host, failed: FailedCheck) -> None:
    """Record what the controller has found of a host, as far as it is news."""
    if _is_news(failed, host.failed_checks):
        _fail(step, host, health_brake.applied(step, host, failed))


def passed(step: Step, host: Host, check: str) -> None:
    """Record that what was found of a host is over."""
    _pass(step, host, check)
    release(step)
    step.capacity_freed = True


def release(step: Step) -> None:
    """Let findings count that the brake has waived, once no more hosts have any than may be kept from work."""
    for host, failed in health_brake.released(step):
        _fail(step, host, failed)


def on_clock(step: Step, host: Host, sent_at: Wall) -> None:
    """Compare the clock of a host, as its heartbeat shows it, with ours."""
    presence = step.cluster.presence_of(host.name)
    presence.clock_behind_s.append(step.now.wall - sent_at)
    behind_s = presence.behind_s
    if behind_s is None:
        return
    known = host.failed_checks.get(CLOCK)
    if abs(behind_s) < CLOCKS_TOGETHER_S and known is not None:
        step.emit(ev.HostCheckPassed(host=host.name, at=step.now.wall, check=CLOCK))
    elif abs(behind_s) > APART_S:
        failed = _wrong_clock(behind_s, step.now.wall)
        if _is_news(failed, host.failed_checks):
            _fail(step, host, failed)


def on_judged(step: Step, found: Judged) -> None:
    """Take a judgement of the controller's process: of its machine, or of all hosts."""
    if isinstance(found, ControllerChecked):
        _on_controller_checked(step, found)
        return
    for host, failed in comparison.lemons(step.cluster, found.hosts, step.now.wall):
        _fail(step, host, failed)
    for host in comparison.no_lemons(step.cluster, found.hosts):
        _pass(step, host, LEMON)
    for host, excess in comparison.excesses(step.cluster, found.hosts):
        _set_excess(step, host, excess)
    _compare(step)


def repaired(step: Step, host: Host) -> None:
    """A host was repaired: it is no lemon, and as good as any, until it has failed often again."""
    if LEMON in host.failed_checks:
        _pass(step, host, LEMON)
    _set_excess(step, host, 0)
    for check in [name for name in host.failed_checks if name.startswith(PREFIX)]:
        _pass(step, host, check)


def _set_excess(step: Step, host: Host, excess: int) -> None:
    if host.excess != excess:
        host.excess = excess
        step.cluster.free_capacity.changed(host.name)


def _compare(step: Step) -> None:
    unlike = comparison.unlike(step.cluster, step.now.wall)
    for host in list(step.cluster.hosts.values()):
        failed, known = unlike.get(host.name), host.failed_checks.get(UNLIKE)
        if failed is None and known is not None:
            _pass(step, host, UNLIKE)
        elif failed is not None and (known is None or known.saw != failed.saw):
            _fail(step, host, failed)


def _pass(step: Step, host: Host, check: str) -> None:
    health = host.failed_checks[check].health
    step.emit(ev.HostCheckPassed(host=host.name, at=step.now.wall, check=check, health=health))


def _on_controller_checked(step: Step, checked: ControllerChecked) -> None:
    """Record which checks of the controller fail now that did not before, and which pass again."""
    known = step.cluster.failed_checks
    found = {failed.check: failed for failed in checked.failed}
    for check in [name for name in known if name not in found]:
        step.emit(ev.ControllerCheckPassed(at=step.now.wall, check=check))
    for failed in found.values():
        if _is_news(failed, known):
            step.emit(
                ev.ControllerCheckFailed(
                    at=step.now.wall,
                    check=failed.check,
                    status=failed.status,
                    saw=failed.saw,
                    why=failed.why,
                    fix=failed.fix,
                )
            )


def _is_news(failed: FailedCheck, known: dict[str, FailedCheck]) -> bool:
    """Whether it fails for the first time, or not as it did: other figures alone are no news."""
    before = known.get(failed.check)
    return before is None or (before.status, before.keeps_work_away) != (failed.status, failed.keeps_work_away)


def _fail(step: Step, host: Host, failed: FailedCheck) -> None:
    step.emit(
        ev.HostCheckFailed(
            host=host.name,
            at=step.now.wall,
            check=failed.check,
            status=failed.status,
            saw=failed.saw,
            why=failed.why,
            fix=failed.fix,
            keeps_work_away=failed.keeps_work_away,
            health=failed.health,
            waived=failed.waived,
        )
    )


def _wrong_clock(behind_s: float, now: Wall) -> FailedCheck:
    way = "behind" if behind_s > 0 else "ahead of"
    if abs(behind_s) >= FAR_APART_S:
        status, why = CheckStatus.ERROR, "Fresh certificates seem not to have begun, or to have ended."
    else:
        status, why = CheckStatus.WARNING, "Times in logs and tables of several hosts don't match."
    saw = f"its clock is {span(abs(behind_s))} {way} the controller's"
    return FailedCheck(CLOCK, status, saw, why, ("timedatectl set-ntp true",), now)
