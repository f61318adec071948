"""Why a job waits for hosts: they are silent, lost, or have yet to report what they ran before a restore."""

from __future__ import annotations

from holdfast._base.dataclass import dataclass, replace
from holdfast_controller.core.model.clock import time_of_day
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.hosts.host import Host, Liveness, job_of
from holdfast_controller.core.model.job import Job, Leaving, Unreconciled


@dataclass(frozen=True)
class Pending:
    """Why a job isn't running. ``command`` changes that now; without ``by_itself`` nothing else is certain to."""

    why: str
    command: str = ""
    by_itself: bool = True

    def __str__(self) -> str:
        return f"{self.why}: {self.command}" if self.command else self.why

    def after(self, doing: str) -> Pending:
        """The same, behind the words for what the job was about to do."""
        return replace(self, why=f"{doing}; {self.why}")


def unreconciled(cluster: Cluster, job: Job) -> Pending:
    """The reason of a job that is not reconciled after a restore."""
    if job.unreconciled is Unreconciled.CLEARING:
        hosts = [h.name for h in cluster.hosts.values() if any(s.job == job.id for s in h.orphans.values())]
        where = ", ".join(sorted(hosts)) or "its hosts"
        return Pending(f"waits for what it ran before the restore to be gone from {where}")
    silent = sorted(
        h.name for h in cluster.hosts.values() if h.unreconciled and h.name not in cluster.reported_hosts
    )
    if not silent:
        return Pending("restored from a backup; where it stands is being found out")
    shown = ", ".join(silent[:3]) + (f" and {len(silent) - 3} more" if len(silent) > 3 else "")
    fence, lost = f"holdfast host fence {silent[0]}", cluster.hosts[silent[0]].lost
    return Pending(f"restored from a backup; waits for word from {shown}, or for", fence, by_itself=not lost)


def out_of_sight(cluster: Cluster, job: Job) -> Pending | None:
    """The reason of a job with hosts that are not heard from; None where there are none, or its primary is done."""
    silent = silent_hosts(cluster, job) if job.launch.primary_done_at is None else []
    return silence(cluster, job, silent) if silent else None


def silent_hosts(cluster: Cluster, job: Job) -> list[str]:
    """Hosts of the job's workers, those that are over left out, that are not heard from."""
    hosts = dict.fromkeys(job.places[index].host for index in job.awaited)
    return [name for name in hosts if cluster.presence_of(name).liveness is not Liveness.READY]


def lost_before(cluster: Cluster, job: Job, reason: str) -> Pending:
    """``reason``, and the lost host on which the job holds something of its last attempt, where there is one."""
    known = (cluster.hosts.get(place.host) for place in job.places)
    lost = next((host.name for host in known if host is not None and host.lost and _is_held(host, job)), None)
    if lost is None:
        return Pending(reason)
    since = f" since {time_of_day(seen)}" if (seen := cluster.presence_of(lost).last_seen_wall) else ""
    why = f"{reason}; {lost} is lost{since}, and what it held is free once it returns, or by"
    return Pending(why, f"holdfast host fence {lost}")


def _is_held(host: Host, job: Job) -> bool:
    return any(job_of(key) == job.id for key in host.allocations)


def silence(cluster: Cluster, job: Job, silent: list[str]) -> Pending:
    """The next step of a job with silent hosts, its time, and the command that takes it now."""
    first = silent[0]
    presence, lost = cluster.presence_of(first), cluster.hosts[first].lost
    shown = ", ".join(silent[:3]) + (f" and {len(silent) - 3} more" if len(silent) > 3 else "")
    since = f" since {time_of_day(presence.last_seen_wall)}" if presence.last_seen_wall else ""
    heard, fence = f"nothing is heard from {shown}{since}", f"holdfast host fence {first}"
    if job.outcome is not None:
        return Pending(f"{heard}; the job ends without it at {time_of_day(presence.lost_at)}; now by", fence)
    done = "paused" if job.vacating is Leaving.PAUSE else "moved"
    moves = job.gang.replace_when_lost or job.gang.replace_if_isolated
    quiet = set(silent)
    elsewhere = any(place.host not in quiet for place in job.places)
    if moves and not lost and (elsewhere or job.gang.replace_when_lost):
        unless = "it returns" if job.gang.replace_when_lost else "it returns or its peers still reach it"
        return Pending(
            f"{heard}; the job is {done} at {time_of_day(presence.lost_at)} unless {unless}; now by", fence
        )
    if not job.gang.replace_if_isolated:
        why = "its ranks may run on there, so the job waits for it, or for"
    elif not elsewhere:
        why = "no other host of the job can tell whether its ranks run on; waits for it, or for"
    else:
        why = "but its peers may still reach it, and its ranks run on"
        return Pending(f"{heard}, {why}; the job is {done} once a peer misses it; now by", fence)
    return Pending(f"{heard}; {why}", fence, by_itself=not lost)
