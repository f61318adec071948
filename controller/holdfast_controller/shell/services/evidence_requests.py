"""Requests evidence from agents when the core orders it, and feeds their answers to the driver."""

from __future__ import annotations

import asyncio
from functools import partial

from holdfast._daemon import log
from holdfast._session import hang_wire
from holdfast.hang.evidence.evidence import Evidence
from holdfast.v1 import agent_pb2
from holdfast_controller.core.model.hosts.throttling import PER_HOUR, MessageKind
from holdfast_controller.core.step.actions import TakeEvidence
from holdfast_controller.core.step.commands import EvidenceArrived
from holdfast_controller.shell.driver import Driver
from holdfast_controller.shell.services.host_pacing import HostPacing
from holdfast_controller.shell.services.series import SeriesIntake
from holdfast_controller.shell.services.streams.transfers import Transfers


class EvidenceRequests:
    """Sends the core's requests for evidence to hosts. Each is answered, at the latest when its time is over."""

    def __init__(self, driver: Driver, transfers: Transfers, pacing: HostPacing, series: SeriesIntake) -> None:
        self._driver = driver
        self._series = series
        self._pacing = pacing
        self._transfers = transfers

    def take(self, order: TakeEvidence) -> None:
        """Request the evidence of one worker."""
        wanted = agent_pb2.TakeEvidence(
            job_id=order.job_id,
            generation=order.generation,
            worker=order.worker,
            suspects=order.suspects,
            samples=True,
        )
        self._transfers.examine(order.host, wanted).add_done_callback(partial(self._arrived, order))

    def _arrived(self, order: TakeEvidence, answer: asyncio.Future[agent_pb2.EvidenceReport]) -> None:
        if answer.cancelled():
            return
        report = answer.result()
        problem, content, samples, dumps = report.problem, report.content, report.samples, report.dumps
        if self._pacing.owed_s(order.host, MessageKind.EVIDENCE):
            content = samples = dumps = b""
            most = f"{PER_HOUR[MessageKind.EVIDENCE] >> 20} MiB an hour"
            problem = f"{order.host} has sent more evidence than is kept of one host, {most}"
        self._pacing.charge_bytes(order.host, MessageKind.EVIDENCE, len(content) + len(samples) + len(dumps))
        evidence = None
        try:
            evidence = _checked(order, hang_wire.unpack(content)) if content else None
        except ValueError as error:
            content, problem = b"", f"what it sent is no evidence: {error}"
        if problem:
            log.warning("evidence.missing", worker=f"{order.job_id}/{order.worker}", error=problem)
        self._series.take_of_hang(order.job_id, order.worker, order.generation, report.recording)
        self._driver.feed(
            EvidenceArrived(
                order.host,
                order.job_id,
                order.generation,
                order.worker,
                order.dump,
                evidence,
                content,
                problem,
                samples,
                dumps,
            )
        )


def _checked(order: TakeEvidence, evidence: Evidence) -> Evidence:
    """Evidence of what was ordered. Raises ``ValueError``: a host speaks for no other worker than its own."""
    found = (evidence.job, evidence.worker, evidence.generation)
    if found != (order.job_id, order.worker, order.generation):
        raise ValueError(f"it is of {found[1]} of job {found[0]} in generation {found[2]}")
    return evidence
