"""The SDK's calls about secrets: ``client.secrets``. None returns a value."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

import grpc

from holdfast.v1 import secret_pb2, secret_pb2_grpc

if TYPE_CHECKING:
    from holdfast._base.secret import Secret

CALL_S = 15.0


class SecretCalls:
    """Raises ``HoldfastError`` as all calls of the client do."""

    def __init__(self, channel: grpc.aio.Channel, unary: Callable[[Awaitable[Any]], Awaitable[Any]]) -> None:
        self._stub = cast("secret_pb2_grpc.SecretServiceAsyncStub", secret_pb2_grpc.SecretServiceStub(channel))
        self._unary = unary

    async def set(self, name: str, value: Secret, *, project: str = "") -> None:
        """Keep a value, in place of the one of that name: your own, or a project's. On disk when this returns."""
        request = secret_pb2.SetSecretRequest(name=name, project=project, value=value.reveal())
        await self._unary(self._stub.SetSecret(request, timeout=CALL_S))

    async def list(self, *, all: bool = False) -> list[secret_pb2.Secret]:
        """Names and holders of those that your jobs may use; with ``all`` everybody's, for admins."""
        call = self._stub.ListSecrets(secret_pb2.ListSecretsRequest(all=all), timeout=CALL_S)
        return [*(await self._unary(call)).secrets]

    async def remove(self, name: str, *, project: str = "", user: str = "", force: bool = False) -> None:
        """Forget a value: your own, a project's or another user's; ``force`` even if jobs need it."""
        request = secret_pb2.RemoveSecretRequest(name=name, project=project, user=user, force=force)
        await self._unary(self._stub.RemoveSecret(request, timeout=CALL_S))
