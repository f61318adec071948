"""Hosts at fault: those on which nothing of a job is launched again, and those that an admin has to examine first."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast_controller.core import events as ev
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.step.actions import Note
from holdfast_controller.core.step.step import Step


def faulty_hosts(step: Step, job: Job, workers: Iterable[int]) -> dict[str, str]:
    """Hosts on which these workers have a condemned GPU, and its fault: nothing is launched there again."""
    places = [job.places[index] for index in workers if index not in job.placement.emptied]
    return {
        place.host: gpu.in_words
        for place in places
        for uuid, gpu in step.cluster.hosts[place.host].condemned.items()
        if uuid in place.gpus
    }


def cordon_faulty(step: Step, name: str, reason: str) -> None:
    """Cordon a host until an admin has examined it.

    Where most hosts would be cordoned the fault is likelier common to them (a prolog, a name server), and taking
    them all away helps no job: an operator finds a warning in the log instead.
    """
    hosts = step.cluster.hosts
    plan = hosts[name].maintenance
    is_for_a_time = plan is not None and plan.begun and hosts[name].cordoned_by != "holdfast"
    if hosts[name].cordoned and not is_for_a_time:
        return
    cordoned = sum(host.cordoned for host in hosts.values() if host.name != name)
    if cordoned and cordoned + 1 > step.policies.leases.mass_share * len(hosts):
        step.do(Note("host.mass_fault", (("host", name), ("cordoned", str(cordoned)), ("reason", reason))))
        return
    step.emit(ev.HostCordoned(host=name, at=step.now.wall, reason=reason, by="holdfast"))
