"""The site's fence command: which silent hosts are to be switched off by it, and what follows.

Theory of operation. A silent host may have lost its power, or only its way to us. Where jobs may not go on before that
is known, an admin has to say so, or the site's own command switches the host off and says so itself. It is called once
in each silence, for a host that holds work and has not said that it or its agent ends, and never while so many hosts
are silent that the fault is likelier ours. What it proves is taken as an admin's word; where it fails, nothing changes:
leases, peers and admins decide as they do without it.
"""

from __future__ import annotations

from holdfast_controller.core import events as ev
from holdfast_controller.core.model.hosts.host import CheckStatus, Liveness
from holdfast_controller.core.step.actions import CallFence
from holdfast_controller.core.step.commands import FenceFailed
from holdfast_controller.core.step.step import Step

FENCE = "fence.command"
"""The check by whose name a failure is shown at the host."""


def is_due(step: Step, name: str) -> bool:
    """Whether the command is to be called for a host, but for the brake."""
    after_s, presence, host = (
        step.policies.leases.fence_call_s,
        step.cluster.presence_of(name),
        step.cluster.hosts.get(name),
    )
    silent_s = step.now.mono - max(presence.last_seen, step.cluster.listening_since)
    if not after_s or silent_s < after_s or presence.fence_called or host is None:
        return False
    return bool(host.allocations) and not host.lost and not host.going_down and not host.agent_stopped_at


def call(step: Step, name: str) -> None:
    """Have the command called."""
    presence, host = step.cluster.presence_of(name), step.cluster.hosts[name]
    presence.fence_called = True
    silent_s = step.now.mono - max(presence.last_seen, step.cluster.listening_since)
    step.do(CallFence(name, host.address, silent_s, presence.lost_at))


def on_failed(step: Step, failed: FenceFailed) -> None:
    """Record that the command did not prove a host off."""
    host = step.cluster.hosts.get(failed.host)
    if host is None or step.cluster.presence_of(failed.host).liveness is Liveness.READY:
        return  # it is back
    step.emit(
        ev.HostCheckFailed(
            host=host.name,
            at=step.now.wall,
            check=FENCE,
            status=CheckStatus.ERROR,
            saw=failed.problem,
            why="Jobs that can't go on without knowing that it is off wait for it.",
            fix=(f"holdfast host fence {host.name} --yes-it-is-off",),
        )
    )


def on_heard(step: Step, name: str) -> None:
    """Forget the silence that is over."""
    step.cluster.presence_of(name).fence_called = False
    host = step.cluster.hosts.get(name)
    if host is not None and FENCE in host.failed_checks:
        step.emit(ev.HostCheckPassed(host=name, at=step.now.wall, check=FENCE))
