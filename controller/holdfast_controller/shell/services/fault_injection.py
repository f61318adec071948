"""``InjectFault``: a fault is written down, then put into the rank by its host; what it can't do is noted too."""

from __future__ import annotations

from holdfast._base.proto_values import seconds
from holdfast.errors import InvalidInput, Violation, WrongState
from holdfast.v1 import agent_pb2, job_pb2
from holdfast_controller.core.model.injection import Fault
from holdfast_controller.core.step.commands import InjectionAsked, InjectionFailed
from holdfast_controller.shell.calls.committed_views import committed_job, find_job
from holdfast_controller.shell.driver import Driver
from holdfast_controller.shell.services.streams.transfers import UNHEARD, Transfers

LONGEST_S = 3600.0


async def inject(
    driver: Driver, transfers: Transfers, request: job_pb2.InjectFaultRequest, by: str
) -> job_pb2.InjectFaultResponse:
    """Return once the fault is there. Raises ``WrongState`` with the host's reason where it can't be."""
    fault = _checked(request)
    job, rank = await find_job(driver, request.id), request.rank
    member = next((each for each in job.gang.members if rank in each.ranks), job.gang.members[0])
    generation = job.generation_of(member.index)
    host = job.places[member.index].host if job.places else ""
    order = agent_pb2.InjectFault(
        job_id=job.id,
        generation=generation,
        worker=member.name,
        rank=rank,
        fault=fault.name.lower(),
        for_s=seconds(request.duration) if fault is not Fault.KILL else 1.0,
        speed=request.speed_percent or 50,
    )
    for_s = seconds(request.duration)
    if job.launched and not transfers.connected(host):
        raise WrongState(f"The host of rank {rank}, {host}, is not connected; try again once it is.")
    if job.launched and not transfers.injects(host):
        raise WrongState(f"The agent of {host} is of an older release, which injects no faults.", fix="Upgrade it.")
    await driver.ask(
        lambda token: InjectionAsked(token, by, job.id, generation, rank, fault, for_s, request.speed_percent)
    )
    answer = await transfers.inject(host, order)
    if answer.id == UNHEARD:
        # What follows is judged as that of a fault, as it may be.
        problem = f"A fault may have been injected into rank {rank} of the job {job.id}: {answer.problem}."
        raise WrongState(problem, fix=f"See: holdfast job events {job.id}")
    if problem := answer.problem.rstrip("."):
        await driver.ask(lambda token: InjectionFailed(token, job.id, generation, rank, problem))
        raise WrongState(f"No fault was injected into rank {rank} of the job {job.id}: {problem}.")
    return job_pb2.InjectFaultResponse(job=await committed_job(driver, job.id, by))


def _checked(request: job_pb2.InjectFaultRequest) -> Fault:
    """The kind of fault. Raises ``InvalidInput``."""
    kinds = {kind: Fault[name.removeprefix("FAULT_KIND_")] for name, kind in job_pb2.FaultKind.items() if kind}
    fault, for_s, wrong = kinds.get(request.fault), seconds(request.duration), []
    if fault is None:
        wrong.append(
            Violation("fault", "is none of the known kinds", f"use {', '.join(job_pb2.FaultKind.keys()[1:])}")
        )
    elif fault is Fault.KILL and request.HasField("duration"):
        wrong.append(Violation("duration", "is of no use to KILL", "leave it out: the rank is gone at once"))
    elif fault is not Fault.KILL and not 0 < for_s <= LONGEST_S:
        wrong.append(Violation("duration", f"{for_s:.12g} s is out of range", "use more than 0, and 1 h at most"))
    if fault is Fault.SLOW and not 1 <= request.speed_percent <= 99:
        problem = f"{request.speed_percent} is no speed of a slowed rank"
        wrong.append(Violation("speed_percent", problem, "use 1 to 99 percent of the time"))
    elif fault is not Fault.SLOW and request.speed_percent:
        wrong.append(Violation("speed_percent", "is of use to SLOW alone", "leave it out"))
    if fault is None or wrong:
        raise InvalidInput(wrong)
    return fault
