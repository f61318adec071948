"""``EnrolmentService``, on a port that needs no client certificate: tokens and older certificates against new ones.

Nothing else is served there, messages are tiny, and each address may fail only so often.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from holdfast._base.addresses import fixed_window
from holdfast._base.identity import Identity, Kind
from holdfast._base.rpc_status import code_name
from holdfast._daemon.tls_door import network_of
from holdfast._security.enrolment import requests, tokens
from holdfast._security.pki import PublicKey
from holdfast.errors import Denied, HoldfastError, Unauthenticated, Unavailable, WrongState
from holdfast.v1 import enrolment_pb2, enrolment_pb2_grpc
from holdfast_controller.core.access.audit import Entry, Trail
from holdfast_controller.core.access.rules import SIGN_IN, is_void
from holdfast_controller.core.model.accounts.token_buckets import Buckets
from holdfast_controller.core.step.commands import EnrolAsked, SignInAsked
from holdfast_controller.shell.base.audit import Audit
from holdfast_controller.shell.calls.authz import Guard
from holdfast_controller.shell.calls.rpc import Context, peer_of, unary
from holdfast_controller.shell.convert.job_to_proto import motd_to_proto, timestamp
from holdfast_controller.shell.driver import Driver
from holdfast_controller.shell.enrolment.authority import Authority
from holdfast_controller.shell.enrolment.issued import IssuedCertificates

if TYPE_CHECKING:
    from holdfast_controller.shell.enrolment.id_tokens import Provider

T = TypeVar("T")
MAX_MESSAGE_BYTES = 32 << 10
MAX_CALLS = 64
"""At once, of those whose message has come."""
DELAY_S = 1.0
DELAYED_MOST = 32
"""Callers who try too often wait so long for their refusal, so many at once."""
CALLS_BURST, CALLS_PER_S = 1_000, 100
"""Calls of one address; further ones wait, ``WAIT_MOST_S`` at most."""
WAIT_MOST_S = 10.0
MAX_CONNECTIONS, CALLS_OF_ONE = 256, 8
"""Calls of one connection. One without a message takes no other caller's place, and ends with its connection. All that
wait together are few enough for their address to catch up: those of 128 connections in ``WAIT_MOST_S``.
"""
OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_allowed_incoming_connections", MAX_CONNECTIONS),
    ("grpc.so_reuseport", 0),
    ("grpc.max_connection_idle_ms", 30_000),
    ("grpc.server_handshake_timeout_ms", 30_000),
    ("grpc.max_connection_age_ms", 60_000),
    ("grpc.max_connection_age_grace_ms", 10_000),
    ("grpc.max_concurrent_streams", CALLS_OF_ONE),
    *fixed_window(MAX_MESSAGE_BYTES),
)


class Enrolment(enrolment_pb2_grpc.EnrolmentServiceServicer):
    """Issues certificates. Addresses are set once the ports are open."""

    def __init__(
        self,
        driver: Driver,
        guard: Guard,
        audit: Audit,
        authority: Authority,
        issued: IssuedCertificates,
        cluster: str,
        provider: Provider | None = None,
    ) -> None:
        self._issued = issued
        self._provider = provider
        self._driver = driver
        self._guard = guard
        self._audit = audit
        self.authority = authority
        self._cluster = cluster
        self.controller = ""
        """host:port for everything else."""
        self.address = ""
        """host:port of this service."""
        self._delayed = 0
        self._begun = 0
        self._calls = Buckets(CALLS_BURST, CALLS_PER_S)
        self._failures = Buckets(burst=50, per_s=0.5)
        self._signing = Buckets(burst=500, per_s=50)

    @unary
    async def GetAuthority(
        self, request: enrolment_pb2.GetAuthorityRequest, context: Context
    ) -> enrolment_pb2.GetAuthorityResponse:
        await self._take_turn(peer_of(context))
        return enrolment_pb2.GetAuthorityResponse(ca=self.authority.pem)

    @unary
    async def Enrol(self, request: enrolment_pb2.EnrolRequest, context: Context) -> enrolment_pb2.EnrolResponse:
        kind = Kind.HOST if request.host else Kind.USER
        who = f"host/{request.host}" if request.host else ""

        async def work() -> enrolment_pb2.EnrolResponse:
            key = requests.requested_key(request.request)
            digest, key_digest = tokens.digest(request.token), requests.key_digest(key)
            named = await self._driver.ask(lambda token: EnrolAsked(token, digest, kind, request.host, key_digest))
            identity = Identity(self._cluster, kind, named.partition("/")[2])
            return enrolment_pb2.EnrolResponse(
                certificate=await self._certify(identity, key, learns=request.takes_trusted),
                trusted=self.authority.pem,
                cluster=self._cluster,
                controller=self.controller,
                enrolment=self.address,
                time=timestamp(time.time()),
                motd=motd_to_proto(self._driver.cluster.people.motd) if kind is Kind.USER else None,
            )

        return await self._limited("Enrol", who, context, work)

    @unary
    async def Renew(self, request: enrolment_pb2.RenewRequest, context: Context) -> enrolment_pb2.RenewResponse:
        async def work() -> enrolment_pb2.RenewResponse:
            key = requests.requested_key(request.request)
            holder = self.authority.holder(request.certificate, key, time.time())
            who = holder.identity
            registry = self._guard.registry
            if is_void(registry.people, holder):
                raise Unauthenticated(f"The certificate of {who.kind.value} {who.name} is void: it was removed.")
            if who.kind is Kind.USER and not registry.grants(who.name):
                raise Denied(f"There is no user {who.name} in this cluster.", fix="Ask an admin.")
            if who.kind is Kind.USER and who.name in registry.people.signed_in:
                raise Denied(f"{who.name} signs in by the identity provider.", fix=SIGN_IN)
            await self._driver.settled()
            made = await self._certify(who, key, learns=request.takes_trusted)
            return enrolment_pb2.RenewResponse(certificate=made, trusted=self.authority.pem)

        return await self._limited("Renew", "", context, work)

    @unary
    async def GetProvider(
        self, request: enrolment_pb2.GetProviderRequest, context: Context
    ) -> enrolment_pb2.GetProviderResponse:
        await self._take_turn(peer_of(context))
        provider = self._known_provider()
        config = provider.config
        return enrolment_pb2.GetProviderResponse(
            issuer=config.issuer, client_id=config.client_id, scopes=config.scopes, ca=provider.ca
        )

    @unary
    async def SignIn(self, request: enrolment_pb2.SignInRequest, context: Context) -> enrolment_pb2.SignInResponse:
        async def work() -> enrolment_pb2.SignInResponse:
            provider = self._known_provider()
            key = requests.requested_key(request.request)
            vouched = await provider.verify(request.id_token, requests.key_digest(key))
            name = await self._driver.ask(
                lambda token: SignInAsked(token, vouched.issuer, vouched.subject, vouched.user, vouched.groups)
            )
            identity = Identity(self._cluster, Kind.USER, name)
            answer = enrolment_pb2.SignInResponse(
                certificate=await self._certify(identity, key, learns=True, lifetime_s=provider.config.lifetime),
                trusted=self.authority.pem,
                cluster=self._cluster,
                controller=self.controller,
                enrolment=self.address,
                time=timestamp(time.time()),
                motd=motd_to_proto(self._driver.cluster.people.motd),
            )
            party = f"user/{name}"
            entry = Entry(time.time(), party, peer_of(context), "EnrolmentService/SignIn", party, "OK", "")
            self._audit.write(entry, Trail.UNKNOWN)
            return answer

        return await self._limited("SignIn", "", context, work)

    def _known_provider(self) -> Provider:
        if self._provider is None:
            raise WrongState("This cluster has no identity provider.", fix=_BY_TOKEN)
        return self._provider

    async def _limited(self, call: str, who: str, context: Context, work: Callable[[], Awaitable[T]]) -> T:
        """Do the work unless this address, or all of them, try too often; refusals are kept in the audit log."""
        peer = peer_of(context)
        await self._take_turn(peer)
        network, mono = network_of(peer), time.monotonic()
        if self._begun >= MAX_CALLS:
            raise Unavailable(f"{MAX_CALLS} calls are in progress.", fix="Try again in a moment.")
        limited = not self._failures.has(network, mono) or not self._signing.spend("", mono)
        self._begun += 1
        try:
            if limited:
                await self._delay()
                raise Unavailable("Too many attempts came from there, or from all.", fix="Try again in a minute.")
            return await work()
        except HoldfastError as error:
            if not limited:
                self._failures.spend(network, mono)
            name = f"EnrolmentService/{call}"
            entry = Entry(time.time(), "", peer, name, who, code_name(error), error.message)
            self._audit.refused(entry, Trail.UNKNOWN)
            raise
        finally:
            self._begun -= 1

    async def _take_turn(self, peer: str) -> None:
        """Return when the next call of this address may be handled, whatever it asks."""
        network, now = network_of(peer), time.monotonic()
        if self._calls.owed_s(network, now) < WAIT_MOST_S:  # those given up before their turn pile up no debt
            self._calls.charge(network, 1, now)
        if owed_s := self._calls.owed_s(network, now):
            await asyncio.sleep(min(owed_s, WAIT_MOST_S))

    async def _delay(self) -> None:
        """Slow down callers who try too often, as long as that leaves enough calls to others."""
        if self._delayed < DELAYED_MOST:
            self._delayed += 1
            try:
                await asyncio.sleep(DELAY_S)
            finally:
                self._delayed -= 1

    async def _certify(
        self, who: Identity, key: PublicKey, *, learns: bool, lifetime_s: float | None = None
    ) -> bytes:
        """Its certificate, which is on record by then. ``learns``: it takes the CAs that come with the answer."""
        at, trusts = self._issued_at(who), self.authority.trusted if learns else ()
        made = self.authority.sign(who, key, at, lifetime_s)
        await self._issued.note(who, at, self.authority.ca_hash, trusts)
        return made

    def _issued_at(self, identity: Identity) -> float:
        """Now, or just after whatever was issued to that name became void: dates have whole seconds."""
        void = self._driver.cluster.people.void_until.get(f"{identity.kind.value}/{identity.name}", 0.0)
        return max(time.time(), void + 1.0)


_BY_TOKEN = "Ask an admin for a token: holdfast user token NAME"
