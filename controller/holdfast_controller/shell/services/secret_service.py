"""``SecretService``: secrets are set, listed by name, and removed. There is no call that returns a value."""

from __future__ import annotations

from holdfast._base.secret import taken
from holdfast.v1 import secret_pb2, secret_pb2_grpc
from holdfast_controller.core.model.accounts.users import Role, SecretNote, role_in
from holdfast_controller.core.step.commands import SecretGiven, SecretRemovalAsked
from holdfast_controller.shell.calls.authz import Guard
from holdfast_controller.shell.calls.rpc import Context, caller_name, unary
from holdfast_controller.shell.calls.slices import paged
from holdfast_controller.shell.convert.job_to_proto import timestamp
from holdfast_controller.shell.driver import Driver
from holdfast_controller.shell.secrets.vault import Vault


class SecretService(secret_pb2_grpc.SecretServiceServicer):
    """Serves callers that the guard has authorised: see ``Where.SECRET``."""

    def __init__(self, driver: Driver, guard: Guard, vault: Vault) -> None:
        self._driver = driver
        self._guard = guard
        self._vault = vault

    @unary
    async def SetSecret(
        self, request: secret_pb2.SetSecretRequest, context: Context
    ) -> secret_pb2.SetSecretResponse:
        by = caller_name(context)
        holder = _holder(request.project, by)
        name = request.name
        sealed = self._vault.seal(holder, name, taken(request.value))
        request.ClearField("value")
        await self._driver.ask(lambda token: SecretGiven(token, by, holder, name, sealed))
        return secret_pb2.SetSecretResponse()

    @unary
    async def ListSecrets(
        self, request: secret_pb2.ListSecretsRequest, context: Context
    ) -> secret_pb2.ListSecretsResponse:
        user = caller_name(context)
        secrets = self._driver.cluster.people.secrets
        seen = [holder for holder in sorted(secrets) if request.all or self._sees(user, holder)]
        keys = [f"{holder}\t{name}" for holder in seen for name in sorted(secrets[holder])]

        def picture(key: str) -> secret_pb2.Secret | None:
            holder, _, name = key.partition("\t")
            note = secrets.get(holder, {}).get(name)
            return self._secret(holder, name, note) if note is not None else None

        found, more = await paged(keys, request, picture)
        await self._driver.settled()
        return secret_pb2.ListSecretsResponse(secrets=found, next_page_token=more)

    @unary
    async def RemoveSecret(
        self, request: secret_pb2.RemoveSecretRequest, context: Context
    ) -> secret_pb2.RemoveSecretResponse:
        by = caller_name(context)
        holder = _holder(request.project, request.user or by)
        await self._driver.ask(
            lambda token: SecretRemovalAsked(token, by, holder, request.name, force=request.force)
        )
        return secret_pb2.RemoveSecretResponse()

    def _sees(self, user: str, holder: str) -> bool:
        """Whether jobs of the user may get a holder's secrets."""
        kind, _, name = holder.partition("/")
        if kind == "user":
            return name == user
        role = role_in(self._guard.registry.grants(user), name)
        return role is not None and role.covers(Role.USER)

    def _secret(self, holder: str, name: str, note: SecretNote) -> secret_pb2.Secret:
        kind, _, whose = holder.partition("/")
        shown = secret_pb2.Secret(name=name, update_time=timestamp(note.at), updated_by=note.by)
        shown.unreadable = not self._vault.opens(holder, name)
        if kind == "user":
            shown.user = whose
        else:
            shown.project = whose
        return shown


def _holder(project: str, user: str) -> str:
    return f"project/{project}" if project else f"user/{user}"
