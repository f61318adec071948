"""Sessions of hosts: connection, silence, loss and return, and cordons."""

from __future__ import annotations

from holdfast.errors import InvalidInput, Violation, WrongState
from holdfast_controller.core import events as ev
from holdfast_controller.core.hosts import fence_command, gpu_faults
from holdfast_controller.core.hosts.checks import on_clock, release, repaired
from holdfast_controller.core.lifecycle.drain import give_back_kept, set_timers
from holdfast_controller.core.lifecycle.exits import lose_workers, on_place_vanished
from holdfast_controller.core.lifecycle.lost_hosts import go_on_without
from holdfast_controller.core.lifecycle.stop import settle
from holdfast_controller.core.model.clock import NEVER, Mono
from holdfast_controller.core.model.hosts import lease
from holdfast_controller.core.model.hosts.host import Host, Liveness, Presence, Waiver
from holdfast_controller.core.model.hosts.throttling import HOUR_S
from holdfast_controller.core.model.job import Job, Unreconciled
from holdfast_controller.core.restore import reconcile
from holdfast_controller.core.step.actions import CloseSession, Note, Refuse, Reply, Welcome
from holdfast_controller.core.step.assignment import on_host, quarantined
from holdfast_controller.core.step.commands import (
    CordonAsked,
    FenceAsked,
    HostBeat,
    HostConnected,
    HostDisconnected,
    HostOverRate,
    HostTurnedAway,
    UncordonAsked,
)
from holdfast_controller.core.step.lookup import find_host
from holdfast_controller.core.step.step import Step
from holdfast_controller.core.step.timers import ClusterTimer, HostTimer, JobTimer

SHORT_QUEUE = 200
"""So many waiting jobs are looked at for each host that returns."""
RETURNS_S = 1.0
"""More are looked at so long after the first host that returned: at most a tenth of the loop with 10,000 jobs."""
_JUDGE_SILENCE = frozenset({JobTimer.TIMEOUT, JobTimer.END_GRACE, JobTimer.SETTLE, ClusterTimer.RECONCILE})


def on_connected(step: Step, hello: HostConnected) -> None:
    """Apply a host's hello. The newest session of a host is its only one.

    Everything that the controller wants there is sent again. A worker that was launched there and of which
    the host has no record is lost; it is not launched a second time.
    """
    presence = step.cluster.presence_of(hello.host)
    if presence.session is not None and presence.session != hello.session:
        step.do(CloseSession(hello.host, presence.session, "a newer session of this host replaces it"))
    begun = len(step.actions)
    step.cluster.begin_session(hello.host, hello.session)
    presence.forgetting.clear()
    presence.silent_peers.clear()
    presence.heard_before = presence.last_seen_wall
    known = step.cluster.hosts.get(hello.host)
    rebooted = known is not None and known.boot_id not in ("", hello.boot_id)
    if known is None or known.refused or known.agent_stopped_at or _news(known, hello):
        step.emit(
            ev.HostJoined(
                host=hello.host,
                at=step.now.wall,
                address=hello.address,
                boot_id=hello.boot_id,
                agent_version=hello.agent_version,
                inventory=hello.inventory,
                labels=hello.labels,
                known=known is not None and bool(known.boot_id),
                rebooted=rebooted,
                previous_version=_previous_version(known, hello),
                agent_stopped_at=known.agent_stopped_at if known is not None else NEVER,
                had_gpu_problems=known is not None and known.inventory.has_gpu_problems,
            )
        )
    gpu_faults.compare(step, step.cluster.hosts[hello.host], rebooted=rebooted)
    heard(step, hello.host)
    reconcile.on_hello(step, hello)
    reported = {report.key for report in hello.places}
    placed = [
        (job, index)
        for job, index in on_host(step.cluster, hello.host)
        if job.unreconciled is not Unreconciled.OPEN
    ]
    uncertain = step.cluster.hosts[hello.host].unreconciled or known is None
    tell_all = bool(step.cluster.gaps) and uncertain
    # Before orders that its report has led to: an agent closes a session that begins with anything else.
    step.actions.insert(begun, Welcome(hello.host, hello.session, len(placed), tell_all))
    for job, index in placed:
        step.touch(job, index)
        if (job.id, job.gang.members[index].name) not in reported:
            on_place_vanished(step, job, index, rebooted=rebooted)
    for key in quarantined(step.cluster, hello.host):
        job_id, _, number = key.rpartition("/")
        if (job_id, step.cluster.jobs[job_id].gang.members[int(number)].name) not in reported:
            step.emit(ev.HostPlaceFreed(host=hello.host, at=step.now.wall, place=key))
    _look_at_queue(step)


def on_refused(step: Step, refused: HostTurnedAway) -> None:
    """Record an agent that was turned away. Its call renews no lease, since its workers are not reported."""
    name, presence = refused.host, step.cluster.presence_of(refused.host)
    if presence.session is not None:
        step.do(CloseSession(name, presence.session, "a newer agent of this host was turned away"))
        step.cluster.end_session(name)
    known = step.cluster.hosts.get(name)
    if known is None:
        presence.last_seen = step.now.mono  # it is silent from now on, and lost in time
        _watch(step, name, presence)
    if known is None or (known.refused, known.agent_version) != (refused.problem, refused.agent_version):
        step.emit(
            ev.HostRefused(
                host=name, at=step.now.wall, agent_version=refused.agent_version, problem=refused.problem
            )
        )
    _is_known(step, name)


def _previous_version(known: Host | None, hello: HostConnected) -> str:
    return known.agent_version if known is not None and known.agent_version != hello.agent_version else ""


def _news(known: Host, hello: HostConnected) -> bool:
    now = (known.address, known.boot_id, known.agent_version, known.inventory, known.labels)
    return now != (hello.address, hello.boot_id, hello.agent_version, hello.inventory, hello.labels)


def on_disconnected(step: Step, gone: HostDisconnected) -> None:
    """End a session. The host is suspect only once it has been silent for long enough."""
    if step.cluster.presence_of(gone.host).session == gone.session:
        step.cluster.end_session(gone.host)


def on_over_rate(step: Step, over: HostOverRate) -> None:
    """Record that a host is throttled: once an hour for each kind, for as long as it goes on."""
    host = step.cluster.hosts.get(over.host)
    if host is None:
        return
    since = host.throttled.get(over.kind)
    if since is None or step.now.wall - since >= HOUR_S:
        step.emit(
            ev.HostThrottled(host=host.name, at=step.now.wall, kind=over.kind, per_hour_bytes=over.per_hour_bytes)
        )


def on_beat(step: Step, beat: HostBeat) -> None:
    """Renew a host's lease, and apply its inventory where that has changed."""
    host = step.cluster.hosts.get(beat.host)
    if host is not None and beat.sent_at:
        on_clock(step, host, beat.sent_at)
    if host is not None and beat.inventory is not None and beat.inventory != host.inventory:
        step.emit(
            ev.HostJoined(
                host=host.name,
                at=step.now.wall,
                address=host.address,
                boot_id=host.boot_id,
                agent_version=host.agent_version,
                inventory=beat.inventory,
                labels=host.labels,
                known=True,
                had_gpu_problems=host.inventory.has_gpu_problems,
            )
        )
        gpu_faults.compare(step, host)
        step.capacity_freed = True


def heard(step: Step, name: str) -> None:
    """Start a host's lease again, upon any message from it."""
    presence = step.cluster.presence_of(name)
    if step.now.mono - presence.last_seen >= step.policies.leases.suspect_s:
        _spare_the_others(step)
    presence.last_seen, presence.last_seen_wall = step.now.mono, step.now.wall
    _is_known(step, name)
    if presence.liveness is not Liveness.READY:
        step.cluster.judge_presence(name, Liveness.READY)
        _look_at_queue(step)
        fence_command.on_heard(step, name)
    _watch(step, name, presence)
    host = step.cluster.hosts.get(name)
    if host is not None and host.lost:
        step.emit(ev.HostReturned(host=name, at=step.now.wall, silent_since=host.silent_since))


def _look_at_queue(step: Step) -> None:
    """Look for jobs that a host's return lets start; where many wait, once for all hosts that return by then.

    A look at ten thousand jobs takes as long as dozens of hellos: one for each of a thousand hosts would leave their
    heartbeats unread for so long that they seem silent, and return again.
    """
    if len(step.cluster.queue) <= SHORT_QUEUE:
        step.capacity_freed = True
    elif (ClusterTimer.RETURNS, "") not in step.timers.due:
        step.timers.set((ClusterTimer.RETURNS, ""), step.now.mono_in(RETURNS_S))


def _is_known(step: Step, name: str) -> None:
    """Wait for this host no longer: it has connected, or did not in time."""
    if name in step.cluster.awaited_hosts:
        step.cluster.awaited_hosts.discard(name)
        step.capacity_freed |= not step.cluster.awaited_hosts


def _watch(step: Step, name: str, presence: Presence) -> None:
    due = lease.next_change(step.policies.leases, presence, step.now.mono, step.cluster.listening_since)
    if due is not None:
        step.timers.set((HostTimer.LEASE, name), due)


def on_stood_still(step: Step) -> None:
    """Begin every lease again: what hosts have said while the controller stood still is read only from now on.

    The same holds for other deadlines that end something because a host has not said otherwise.
    """
    step.cluster.listening_since = step.now.mono
    soon = step.now.mono_in(step.policies.leases.suspect_s)
    for key, due in list(step.timers.due.items()):
        if due < soon and key[0] in _JUDGE_SILENCE:
            step.timers.set(key, soon)
    if (ClusterTimer.RECONCILE, "") in step.timers.due:
        step.cluster.reconcile_until = soon


def on_silence(step: Step, names: list[str], late_s: float = 0.0) -> None:
    """Deadlines of hosts passed; most often they were heard since.

    Where that is noticed ``late_s`` after the time it was the controller that stood still. What hosts have said
    meanwhile may not have been read yet, so they are given time for it.
    """
    policy, now, since = step.policies.leases, step.now.mono, step.cluster.listening_since
    spared = late_s > lease.LATE_S or now < step.cluster.spared_until
    kept: list[str] = []
    lost: list[tuple[str, float]] = []
    for name in names:
        presence = step.cluster.presence_of(name)
        verdict = lease.liveness(policy, presence, now, since)
        if verdict is Liveness.READY:
            verdict = presence.liveness  # only its own word makes a silent host ready again
        if verdict is Liveness.LOST and presence.liveness is not Liveness.LOST:
            if spared or kept or (not lost and _mass_silence(step)):
                step.cluster.judge_presence(name, Liveness.SUSPECT)
                presence.lost_at = step.now.wall_in(policy.suspect_s)
                step.timers.set((HostTimer.LEASE, name), step.now.mono_in(policy.suspect_s))
                kept.append(name)
                continue
            lost.append((name, now - presence.last_seen))
        if verdict is not Liveness.READY:
            _is_known(step, name)
        if verdict is Liveness.SUSPECT or verdict is not presence.liveness:
            presence.lost_at = step.now.wall_of(Mono(max(presence.last_seen, since) + policy.lost_s))
        if verdict is not presence.liveness:
            step.cluster.judge_presence(name, verdict)
            step.do(Note("host.silent", (("host", name), ("state", verdict.name))))
        if not spared and fence_command.is_due(step, name) and not _mass_silence(step):
            fence_command.call(step, name)
        _watch(step, name, presence)
    if kept:
        if not spared:
            step.cluster.spared_until = step.now.mono_in(policy.suspect_s)
            _record_mass_silence(step)
        shown = ", ".join(kept[:8])
        step.do(Note("host.mass_silence", (("hosts", shown), ("kept", str(len(kept))))))
    elif step.cluster.mass_silence:
        step.cluster.mass_silence = _mass_silence(step)
    for name, silent_s in lost:
        _lose(step, name, silent_s)


def _mass_silence(step: Step) -> bool:
    """Asked once per step, since it looks at every host. Hosts that were given up before are no part of it."""
    cluster = step.cluster
    watched = [cluster.presence_of(name) for name, host in cluster.hosts.items() if not host.lost]
    return lease.brake(step.policies.leases, watched, step.now.mono, cluster.listening_since)


def _record_mass_silence(step: Step) -> None:
    """Record once that most hosts are silent, until they no longer are."""
    cluster = step.cluster
    if cluster.mass_silence:
        return
    cluster.mass_silence = True
    watched = [cluster.presence_of(name) for name, host in cluster.hosts.items() if not host.lost]
    policy, now, since = step.policies.leases, step.now.mono, cluster.listening_since
    silent = sum(lease.liveness(policy, p, now, since) is not Liveness.READY for p in watched)
    step.emit(ev.MostHostsSilent(at=step.now.wall, silent=silent, hosts=len(watched)))


def _spare_the_others(step: Step) -> None:
    """Apply a host's return from silence. If many were silent, the others get time to return as well."""
    cluster, until = step.cluster, step.now.mono_in(step.policies.leases.suspect_s)
    if until - cluster.spared_until > lease.LATE_S and _mass_silence(step):
        cluster.spared_until = until


def _lose(step: Step, name: str, silent_s: float) -> None:
    """Take a host as lost: ending jobs stop waiting for it, others go on without what has stopped there."""
    host = step.cluster.hosts.get(name)
    if host is None or host.lost:
        return
    step.emit(
        ev.HostLost(
            host=name,
            at=step.now.wall,
            silent_s=silent_s,
            shut_down_at=host.going_down_since if host.going_down else NEVER,
            agent_stopped_at=host.agent_stopped_at,
        )
    )
    for job in _jobs_on(step, name):
        if job.unreconciled is None:
            go_on_without(step, job, name)
        else:
            settle(step, job)


def _jobs_on(step: Step, name: str) -> list[Job]:
    jobs: dict[str, Job] = {job.id: job for job, _ in on_host(step.cluster, name)}
    return list(jobs.values())


def on_fence(step: Step, asked: FenceAsked) -> None:
    """Fence a host: an admin vouches that nothing runs there any more, and jobs go on without it."""
    host = find_host(step, asked.token, asked.host)
    if host is None:
        return
    presence = step.cluster.presence_of(host.name)
    if presence.is_connected:
        problem = f"The host {host.name} is connected; fencing is for hosts that can't answer."
        step.do(Refuse(asked.token, WrongState(problem, fix="Drain it, or switch it off first.")))
        return
    if presence.session is not None:
        # A dead host's connection lasts until it is missed; what still comes over it counts no more.
        step.do(CloseSession(host.name, presence.session, "the host was fenced"))
        step.cluster.end_session(host.name)
    step.emit(ev.HostFenced(host=host.name, at=step.now.wall, reason=asked.reason, by=asked.by))
    give_up_work(step, host, f"was fenced by {asked.by}")
    reconcile.end_if_all_told(step)
    step.do(Reply(asked.token, host.name))


def give_up_work(step: Step, host: Host, why: str) -> None:
    """Take a host's workers as gone and all shares as free, after an admin vouched that nothing runs there.

    ``why``: such as "was fenced by ann".
    """
    reconcile.on_vouched(step, host)
    for job in _jobs_on(step, host.name):
        here = [index for index in job.awaited if job.places[index].host == host.name]
        lose_workers(step, job, here, f"{host.name} {why}", vouched=True)
        settle(step, job)
    give_back_kept(step, host.name, why)
    for key in quarantined(step.cluster, host.name):
        step.emit(ev.HostPlaceFreed(host=host.name, at=step.now.wall, place=key))
    step.capacity_freed = True


def on_cordon(step: Step, asked: CordonAsked) -> None:
    """Cordon a host: it gets no new work; its workers run on."""
    host = find_host(step, asked.token, asked.host)
    if host is None:
        return
    if not host.cordoned or host.cordon_reason != asked.reason:
        step.emit(ev.HostCordoned(host=host.name, at=step.now.wall, reason=asked.reason, by=asked.by))
    step.do(Reply(asked.token, host.name))


def on_uncordon(step: Step, asked: UncordonAsked) -> None:
    """Uncordon a host, or put some of its GPUs back into service: they get new work again."""
    host = find_host(step, asked.token, asked.host)
    if host is None:
        return
    if asked.gpus and asked.repaired:
        wrong = Violation("repaired", "is said of the host, and gpus name a part of it", "send one of the two")
        step.do(Refuse(asked.token, InvalidInput([wrong])))
        return
    if asked.gpus:
        refusal = gpu_faults.put_back(step, host, asked.gpus, asked.by)
        step.do(Refuse(asked.token, refusal) if refusal is not None else Reply(asked.token, host.name))
        return
    # What only the brake spares is known too; other checks that fail hide none of it.
    known = [each for each in host.failed_checks.values() if each.health is not None and each.keeps_work_away]
    ill = any(each.waived is not Waiver.ADMIN for each in known)
    if host.cordoned or host.going_down or asked.repaired or ill:
        step.emit(ev.HostUncordoned(host=host.name, at=step.now.wall, by=asked.by, repaired=asked.repaired))
        if asked.repaired:
            repaired(step, host)
        set_timers(step, host)
        release(step)
        step.capacity_freed = True
    step.do(Reply(asked.token, host.name))
