"""The SDK's calls about users, hosts' admission, the audit log (``client.access``) and secrets (``client.secrets``).

Those of ``client.access`` are for admins, mostly; none of ``client.secrets`` returns a value.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, cast

import grpc

from holdfast._sdk.transport import Calling
from holdfast.settings import ClientSettings
from holdfast.v1 import access_pb2, access_pb2_grpc, secret_pb2, secret_pb2_grpc

if TYPE_CHECKING:
    from holdfast._base.secret import Secret
    from holdfast.v1.access_pb2 import AuditEntry, CreateTokenResponse, GetCallerResponse, Role, User


class AccessCalls(Calling):
    """Raises ``HoldfastError`` as all calls of the client do."""

    def __init__(self, channel: grpc.aio.Channel, settings: ClientSettings) -> None:
        self.settings = settings
        self._stub = cast("access_pb2_grpc.AccessServiceAsyncStub", access_pb2_grpc.AccessServiceStub(channel))

    async def caller(self) -> GetCallerResponse:
        """The caller's identity in the cluster, and its rights."""
        return await self._unary(self._stub.GetCaller, access_pb2.GetCallerRequest())

    async def add_user(
        self, name: str, role: Role.ValueType, project: str = "*", accounts: Sequence[str] = ()
    ) -> User:
        """Give a user a role in a project ("*" is all), in place of the one there; ``accounts`` as ``map_user``."""
        grant = access_pb2.Grant(project=project, role=role)
        request = access_pb2.AddUserRequest(name=name, grant=grant, accounts=accounts)
        return (await self._unary(self._stub.AddUser, request)).user

    async def map_user(self, name: str, accounts: Sequence[str]) -> User:
        """Say as which accounts of the hosts a user's next jobs may run, the first unless a job names another."""
        request = access_pb2.MapUserRequest(name=name, accounts=accounts)
        return (await self._unary(self._stub.MapUser, request)).user

    async def list_users(self) -> list[User]:
        """All users, by name."""
        pages = self._pages(self._stub.ListUsers, access_pb2.ListUsersRequest())
        return [user async for page in pages for user in page.users]

    async def remove_user(self, name: str, project: str = "") -> None:
        """Take a role in one project away; without one all of them, and the certificates are void."""
        request = access_pb2.RemoveUserRequest(name=name, project=project)
        await self._unary(self._stub.RemoveUser, request)

    async def allow_sign_in(self, name: str) -> None:
        """Let a user who was removed sign in by the identity provider again."""
        await self._unary(self._stub.AddUser, access_pb2.AddUserRequest(name=name, sign_in=True))

    async def set_motd(self, text: str) -> None:
        """Set the message of the day, which every user is shown; an empty text clears it."""
        await self._unary(self._stub.SetMotd, access_pb2.SetMotdRequest(text=text))

    async def create_token(
        self, *, host: str | None = None, user: str | None = None, ttl_s: float | None = None
    ) -> CreateTokenResponse:
        """Leave for one user, for one host by name, or, with ``host`` empty, for any new one."""
        request = access_pb2.CreateTokenRequest()
        if user is not None:
            request.user = user
        else:
            request.host = host or ""
        if ttl_s is not None:
            request.ttl.FromNanoseconds(round(ttl_s * 1e9))
        return await self._unary(self._stub.CreateToken, request)

    async def remove_host(self, name: str, *, force: bool = False) -> None:
        """Void a host's certificates and forget it; with ``force`` even if it holds work, which is then lost."""
        request = access_pb2.RemoveHostRequest(name=name, force=force)
        await self._unary(self._stub.RemoveHost, request)

    async def audit(
        self, limit: int = 100, *, who: str = "", refused: bool = False, trail: str = ""
    ) -> list[AuditEntry]:
        """The newest entries of the audit log that match, oldest first; ``trail``: admins, users or unknown."""
        request = access_pb2.ReadAuditRequest(limit=limit, who=who, refused=refused, trail=trail)
        return list((await self._unary(self._stub.ReadAudit, request)).entries)

    async def export_audit(self) -> AsyncGenerator[tuple[str, bytes], None]:
        """(trail, line) of the whole audit log as it is on disk, trail by trail, oldest first."""
        call = self._stub.ExportAudit(access_pb2.ExportAuditRequest())
        async with contextlib.aclosing(self._stream(call)) as answers:
            async for answer in answers:
                for line in answer.lines:
                    yield answer.trail, line


class SecretCalls(Calling):
    """Raises ``HoldfastError`` as all calls of the client do."""

    def __init__(self, channel: grpc.aio.Channel, settings: ClientSettings) -> None:
        self.settings = settings
        self._stub = cast("secret_pb2_grpc.SecretServiceAsyncStub", secret_pb2_grpc.SecretServiceStub(channel))

    async def set(self, name: str, value: Secret, *, project: str = "") -> None:
        """Keep a value, in place of the one of that name: your own, or a project's. On disk when this returns."""
        request = secret_pb2.SetSecretRequest(name=name, project=project, value=value.reveal())
        await self._unary(self._stub.SetSecret, request)

    async def list(self, *, all: bool = False) -> list[secret_pb2.Secret]:
        """Names and holders of those that your jobs may use; with ``all`` everybody's, for admins."""
        pages = self._pages(self._stub.ListSecrets, secret_pb2.ListSecretsRequest(all=all))
        return [secret async for page in pages for secret in page.secrets]

    async def remove(self, name: str, *, project: str = "", user: str = "", force: bool = False) -> None:
        """Forget a value: your own, a project's or another user's; ``force`` even if jobs need it."""
        request = secret_pb2.RemoveSecretRequest(name=name, project=project, user=user, force=force)
        await self._unary(self._stub.RemoveSecret, request)
