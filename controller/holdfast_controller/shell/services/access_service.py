"""``AccessService``: users and roles, tokens, removal of hosts, the audit log."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from holdfast._base.identity import Kind
from holdfast._base.projects import EVERY_PROJECT
from holdfast._base.proto_values import seconds
from holdfast._security.enrolment import tokens
from holdfast.errors import InvalidInput, Violation, WrongState
from holdfast.v1 import access_pb2, access_pb2_grpc
from holdfast_controller.core.access.audit import Trail
from holdfast_controller.core.access.users import TOKEN_LONGEST_S
from holdfast_controller.core.model.accounts.users import Role
from holdfast_controller.core.step.commands import (
    AccountsAsked,
    HostRemovalAsked,
    MotdAsked,
    RoleAsked,
    SignInAllowanceAsked,
    TokenAsked,
    UserRemovalAsked,
)
from holdfast_controller.shell.base.audit import Audit
from holdfast_controller.shell.calls.authz import Guard, caller_of
from holdfast_controller.shell.calls.rpc import Context, caller_name, streaming, unary
from holdfast_controller.shell.calls.slices import paged
from holdfast_controller.shell.convert.job_to_proto import motd_to_proto, timestamp
from holdfast_controller.shell.driver import Driver

if TYPE_CHECKING:
    from holdfast_controller.shell.enrolment.service import Enrolment

AUDIT_PAGE = 100
EXPORT_BYTES = 256 << 10
"""Of lines in one message."""


class AccessService(access_pb2_grpc.AccessServiceServicer):
    """Serves users and their rights; the guard has authorised the caller, and the core decides the rest."""

    def __init__(
        self, driver: Driver, guard: Guard, audit: Audit, enrolment: Enrolment | None, cluster: str
    ) -> None:
        self._driver = driver
        self._guard = guard
        self._audit = audit
        self._enrolment = enrolment
        self._name = cluster

    @unary
    async def GetCaller(
        self, request: access_pb2.GetCallerRequest, context: Context
    ) -> access_pb2.GetCallerResponse:
        name = caller_name(context)
        caller = caller_of(context)
        end = timestamp(caller.ends_at) if caller is not None else None
        return access_pb2.GetCallerResponse(cluster=self._name, user=self._user(name), certificate_end=end)

    @unary
    async def AddUser(self, request: access_pb2.AddUserRequest, context: Context) -> access_pb2.AddUserResponse:
        by = caller_name(context)
        if request.sign_in:
            name = await self._driver.ask(lambda token: SignInAllowanceAsked(token, by, request.name))
            return access_pb2.AddUserResponse(user=self._user(name))
        project = request.grant.project or EVERY_PROJECT
        role, accounts = _role(request.grant.role), tuple(request.accounts)
        name = await self._driver.ask(lambda token: RoleAsked(token, by, request.name, project, role, accounts))
        return access_pb2.AddUserResponse(user=self._user(name))

    @unary
    async def MapUser(self, request: access_pb2.MapUserRequest, context: Context) -> access_pb2.MapUserResponse:
        by = caller_name(context)
        accounts = tuple(request.accounts)
        name = await self._driver.ask(lambda token: AccountsAsked(token, by, request.name, accounts))
        return access_pb2.MapUserResponse(user=self._user(name))

    @unary
    async def ListUsers(
        self, request: access_pb2.ListUsersRequest, context: Context
    ) -> access_pb2.ListUsersResponse:
        registry = self._guard.registry
        names = sorted(registry.admins | registry.people.roles.keys() | registry.people.signed_in.keys())
        users, more = await paged(names, request, self._user)
        await self._driver.settled()
        return access_pb2.ListUsersResponse(users=users, next_page_token=more)

    @unary
    async def RemoveUser(
        self, request: access_pb2.RemoveUserRequest, context: Context
    ) -> access_pb2.RemoveUserResponse:
        by = caller_name(context)
        await self._driver.ask(lambda token: UserRemovalAsked(token, by, request.name, request.project))
        return access_pb2.RemoveUserResponse()

    @unary
    async def SetMotd(self, request: access_pb2.SetMotdRequest, context: Context) -> access_pb2.SetMotdResponse:
        by = caller_name(context)
        await self._driver.ask(lambda token: MotdAsked(token, by, request.text))
        return access_pb2.SetMotdResponse(motd=motd_to_proto(self._driver.cluster.people.motd))

    @unary
    async def CreateToken(
        self, request: access_pb2.CreateTokenRequest, context: Context
    ) -> access_pb2.CreateTokenResponse:
        by = caller_name(context)
        if self._enrolment is None:
            fix = (
                "Set enrolment_listen and ca_directory in controller.toml, or make its certificate by other means."
            )
            raise WrongState("This controller issues no certificates.", fix=fix)
        kind, name = Kind.HOST, request.host
        if request.WhichOneof("subject") == "user":
            kind, name = Kind.USER, request.user
        drawn = tokens.draw()
        digest = tokens.digest(drawn)
        ttl_s = seconds(request.ttl) if request.HasField("ttl") else TOKEN_LONGEST_S
        await self._driver.ask(lambda token: TokenAsked(token, by, digest, kind, name, ttl_s))
        made = self._driver.cluster.people.tokens[digest]
        return access_pb2.CreateTokenResponse(
            token=drawn,
            end=timestamp(made.expires_at),
            enrolment=self._enrolment.address,
            ca_hash=self._enrolment.authority.ca_hash,
        )

    @unary
    async def RemoveHost(
        self, request: access_pb2.RemoveHostRequest, context: Context
    ) -> access_pb2.RemoveHostResponse:
        by = caller_name(context)
        await self._driver.ask(lambda token: HostRemovalAsked(token, by, request.name, request.force))
        return access_pb2.RemoveHostResponse()

    @unary
    async def ReadAudit(
        self, request: access_pb2.ReadAuditRequest, context: Context
    ) -> access_pb2.ReadAuditResponse:
        if request.trail and request.trail not in {trail.value for trail in Trail}:
            known = ", ".join(trail.value for trail in Trail)
            raise InvalidInput(
                [Violation("trail", f"there is no trail {request.trail[:32]!r}", f"use one of {known}")]
            )
        found = await self._audit.read(
            request.limit or AUDIT_PAGE,
            who=request.who,
            refused=request.refused,
            trail=Trail(request.trail) if request.trail else None,
        )
        entries = [
            access_pb2.AuditEntry(
                time=timestamp(entry.time),
                who=entry.who,
                peer=entry.peer,
                call=entry.call,
                target=entry.target,
                outcome=entry.outcome,
                message=entry.message,
                unwritten=entry.unwritten,
            )
            for entry in found
        ]
        return access_pb2.ReadAuditResponse(entries=entries)

    @streaming
    async def ExportAudit(
        self, request: access_pb2.ExportAuditRequest, context: Context
    ) -> AsyncGenerator[access_pb2.ExportAuditResponse, None]:
        with contextlib.ExitStack() as held:
            found = await self._audit.open_all()
            for _, files in found:
                for file in files:
                    held.enter_context(file)
            for trail, files in found:
                for file in files:
                    while lines := await asyncio.to_thread(file.readlines, EXPORT_BYTES):
                        yield access_pb2.ExportAuditResponse(trail=trail.value, lines=lines)

    def _user(self, name: str) -> access_pb2.User:
        registry = self._guard.registry
        grants = [
            access_pb2.Grant(project=project, role=access_pb2.Role.Value(f"ROLE_{role.name}"))
            for project, role in sorted(registry.people.roles.get(name, {}).items())
        ]
        sign_in = registry.people.signed_in.get(name)
        return access_pb2.User(
            name=name,
            grants=grants,
            configured_admin=name in registry.admins,
            accounts=registry.people.accounts.get(name, ()),
            sign_in_end=timestamp(sign_in.until) if sign_in is not None else None,
        )


def _role(role: access_pb2.Role.ValueType) -> Role:
    try:
        return Role(role)
    except ValueError:
        raise InvalidInput(
            [Violation("grant.role", "is missing or unknown", "use viewer, user or admin")]
        ) from None
