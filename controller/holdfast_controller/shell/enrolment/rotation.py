"""The change of a cluster's CA, step by step, while everything runs (ADR 0029).

``ca.pem`` holds every CA that is trusted; the first one issues, and ``ca.key`` is its key.

1. A new CA is made and trusted beside the old one. With each renewal hosts and users get both.
2. Once all have both, the new one issues: the controller's own certificate first, everybody's at the next renewal.
3. Once all have a certificate of it, the old one is trusted no more, and its key is deleted.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Iterable
from typing import Any

from holdfast._daemon import log
from holdfast._security import pki
from holdfast._security.tls import TlsFiles
from holdfast.errors import StoreError, WrongState
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.shell.enrolment.authority import Authority
from holdfast_controller.shell.enrolment.issued import IssuedCertificates


class Stage(enum.Enum):
    """Progress of the rotation."""

    AT_REST = "AT_REST"
    ANNOUNCED = "ANNOUNCED"
    """Both are trusted, the old one issues."""
    ISSUING = "ISSUING"
    """Both are trusted, the new one issues."""


class Rotation:
    """Rotates the CA of one running controller. ``admins`` are users by configuration."""

    def __init__(
        self,
        authority: Authority,
        issued: IssuedCertificates,
        cluster: Cluster,
        admins: Iterable[str],
        own: TlsFiles,
    ) -> None:
        self._authority, self._issued, self._cluster = authority, issued, cluster
        self.admins, self._own = frozenset(admins), own
        self._lock = asyncio.Lock()

    async def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """``{"do": "ca", "step": "status" | "rotate" | "finish", "force": bool}``. Raises ``HoldfastError``."""
        steps: dict[str, Callable[[bool], Any]] = {"rotate": self._rotate, "finish": self._finish}
        async with self._lock:
            step = steps.get(str(asked.get("step")))
            if step is not None:
                await step(bool(asked.get("force")))
            return await self._status()

    @property
    def stage(self) -> Stage:
        """By what is on disk."""
        if len(self._authority.trusted) == 1:
            return Stage.AT_REST
        next_there = (self._authority.directory / pki.NEXT_KEY).exists()
        return Stage.ANNOUNCED if next_there else Stage.ISSUING

    async def _status(self) -> dict[str, Any]:
        stage = self.stage
        return {
            "stage": stage.value,
            "issuer": self._authority.ca_hash,
            "trusted": list(self._authority.trusted),
            "missing": [] if stage is Stage.AT_REST else await self._missing(stage),
        }

    async def _missing(self, stage: Stage) -> list[str]:
        """Hosts and users that the next step would shut out."""
        known = await self._issued.all()
        people = self._cluster.people
        hosts = {f"host/{name}" for name in self._cluster.hosts.keys() | people.joined}
        users = {f"user/{name}" for name in people.roles.keys() | self.admins}
        newest = self._authority.ca_hash if stage is Stage.ISSUING else self._authority.trusted[-1]

        def ready(party: str) -> bool:
            one = known.get(party)
            if one is None:
                return False
            return one.issuer == newest if stage is Stage.ISSUING else newest in one.trusts

        return sorted(party for party in hosts | users if not ready(party))

    async def _rotate(self, force: bool) -> None:
        if self._own.ca.resolve() != (self._authority.directory / "ca.pem").resolve():
            raise WrongState(
                f"The setting ca names {self._own.ca}, and not ca.pem of ca_directory.",
                fix=f'Write ca = "{self._authority.directory / "ca.pem"}" into controller.toml and start it again.',
            )
        match self.stage:
            case Stage.AT_REST:
                await self._files(pki.add_next_ca, self._cluster_name())
                log.info("ca.announced", ca=self._authority.trusted[-1])
            case Stage.ANNOUNCED:
                await self._refuse_unless_ready(force)
                await self._files(pki.let_next_issue)
                await self._renew_own()
                log.info("ca.issuing", ca=self._authority.ca_hash)
            case Stage.ISSUING:
                problem = "The new CA issues already; what is left is to trust the old one no more."
                raise WrongState(problem, fix="Write: holdfast-controller ca rotate --finish")

    async def _finish(self, force: bool) -> None:
        if self.stage is not Stage.ISSUING:
            raise WrongState("There is no new CA that issues.", fix="Begin with: holdfast-controller ca rotate")
        await self._refuse_unless_ready(force)
        # Another controller's may be of the old CA still, and so may this one's after a step that was cut off.
        await self._renew_own()
        await self._files(pki.drop_old_cas)
        log.info("ca.rotated", ca=self._authority.ca_hash)

    async def _refuse_unless_ready(self, force: bool) -> None:
        missing = await self._missing(self.stage)
        if missing and not force:
            shown = ", ".join(missing[:8]) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
            raise WrongState(
                f"{shown} would be shut out: not renewed since the last step.",
                fix="Wait, or have them join or log in again; or write --force to shut them out.",
            )

    async def _files(self, change: Callable[..., None], *more: str) -> None:
        try:
            await _changed(change, self._authority.directory, *more)
        finally:
            self._authority.reload()

    async def _renew_own(self) -> None:
        await _changed(self._authority.renew_own, self._own)

    def _cluster_name(self) -> str:
        return self._authority.cluster


async def _changed(change: Callable[..., None], *arguments: object) -> None:
    """Raises ``StoreError`` where a file can't be written."""
    try:
        await asyncio.to_thread(change, *arguments)
    except OSError as error:
        raise StoreError(f"Cannot write {error.filename}: {error.strerror}.") from error
