"""The brake on findings about hardware: what befalls many hosts at once is likelier one fault elsewhere.

A switch, a cooling that fails, a new driver or a rule of ours that is wrong make all hosts look ill together, and a
cluster without hosts is worse than a fault that is noticed late. So no more hosts than a share of all are kept from
work by such findings at one time. While more than that have them, the others are only reported. Once no more than
that have them, each counts as it says. A host that was kept from work before the brake held stays so.
"""

from __future__ import annotations

from holdfast._base.dataclass import replace
from holdfast_controller.core import events as ev
from holdfast_controller.core.model.hosts.health import ill, in_words, most
from holdfast_controller.core.model.hosts.host import FailedCheck, Host, Waiver
from holdfast_controller.core.step.actions import Note
from holdfast_controller.core.step.step import Step


def applied(step: Step, host: Host, failed: FailedCheck) -> FailedCheck:
    """The finding, waived where the brake holds. Notes a common cause when the brake begins to hold."""
    if failed.health is None or not failed.keeps_work_away:
        return failed
    kept, spared = ill(step.cluster)
    allowed = most(len(step.cluster.hosts), step.policies.health_cordons_pct)
    if host.name in kept or (len(kept) < allowed and not spared):
        return failed
    if not spared and allowed:
        hosts = tuple(sorted({*kept, host.name}))
        words = in_words(len(hosts), len(kept))
        step.emit(ev.CommonCauseNoticed(at=step.now.wall, sentence=words, jobs=(), hosts=hosts))
        step.do(Note("health.common_cause", (("hosts", ", ".join(hosts)),)))
    return replace(failed, waived=Waiver.BRAKE)


def released(step: Step) -> list[tuple[Host, FailedCheck]]:
    """The findings that the brake has waived and no longer does."""
    kept, spared = ill(step.cluster)
    hosts = step.cluster.hosts
    if not spared or len({*kept, *spared}) > most(len(hosts), step.policies.health_cordons_pct):
        return []
    return [
        (hosts[name], replace(failed, waived=None))
        for name in sorted(spared)
        for failed in list(hosts[name].failed_checks.values())
        if failed.waived is Waiver.BRAKE
    ]
