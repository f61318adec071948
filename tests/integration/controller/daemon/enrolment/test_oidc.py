"""Users of an identity provider sign in by the real command, against a real controller and provider over TLS."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import json
import os
import stat
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from tests.integration.controller.cluster import WITHIN_S, Certificates, Controller, refusal
from tests.support.identity_provider import CLIENT, IdentityProvider
from tests.support.stubs import access_stub, enrolment_stub

from holdfast._security import tls
from holdfast._security.enrolment import requests
from holdfast.client import Client
from holdfast.errors import Denied, Unauthenticated
from holdfast.settings import load
from holdfast.v1 import access_pb2, enrolment_pb2
from holdfast_controller.shell.base.config import ControllerConfig
from holdfast_controller.shell.base.oidc_config import OidcConfig, OidcGrantConfig
from holdfast_controller.shell.enrolment import id_tokens

pytestmark = pytest.mark.anyio


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[IdentityProvider]:
    made = IdentityProvider(tmp_path)
    yield made
    made.stop()


@pytest.fixture
def config(config: ControllerConfig, certificates: Certificates, provider: IdentityProvider) -> ControllerConfig:
    grants = (OidcGrantConfig("ml"), OidcGrantConfig("guests", "viewer", "demo"))
    oidc = OidcConfig(provider.issuer, CLIENT, provider.ca, grants=grants, lifetime=3600)
    return dataclasses.replace(
        config,
        admins=("root", "bob"),
        ca_directory=certificates.directory,
        enrolment_listen="127.0.0.1:0",
        oidc=oidc,
    )


@dataclasses.dataclass
class Site:
    """A cluster with a provider; its admin is bob."""

    controller: Controller
    provider: IdentityProvider
    people: Any
    enrolment: str
    ca_hash: str
    home: Path

    async def types(self, *words: str) -> tuple[int, str]:
        """What a user types on a machine of their own: the exit status, and all that is printed."""
        own = {"HOME": str(self.home), "XDG_CONFIG_HOME": str(self.home), "XDG_STATE_HOME": str(self.home)}
        kept = {name: value for name, value in os.environ.items() if name != "HOLDFAST_CONFIG"}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "holdfast", *words),
            env=kept | own,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await process.communicate()
        return process.returncode or 0, out.decode()

    async def login(self) -> tuple[int, str]:
        return await self.types("login", self.enrolment, "--oidc", "--ca-hash", self.ca_hash)

    @property
    def settings(self) -> Path:
        return self.home / "holdfast/client.toml"

    async def sign_in(self, token: str, request: bytes | None = None) -> enrolment_pb2.SignInResponse:
        """The call alone, with any token, and a signing request of a new key unless one is given."""
        ca = self.controller.certificates.files["user/bob"].ca.read_bytes()
        options = [("grpc.ssl_target_name_override", tls.SERVER_NAME)]
        link = grpc.aio.secure_channel(self.enrolment, grpc.ssl_channel_credentials(ca), options)
        self.controller.channels.append(link)
        asked = requests.request(requests.new_key()) if request is None else request
        call = enrolment_stub(link).SignIn
        return await call(enrolment_pb2.SignInRequest(id_token=token, request=asked), timeout=WITHIN_S)

    async def refused(self, token: str, request: bytes | None = None) -> str:
        code, error = await refusal(self.sign_in(token, request))
        assert code in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.INVALID_ARGUMENT), error
        return str(error)


@pytest.fixture
async def site(controller: Controller, provider: IdentityProvider, tmp_path: Path) -> Site:
    people = access_stub(controller.channel("user/bob"))
    line = await people.CreateToken(access_pb2.CreateTokenRequest(host=""), timeout=WITHIN_S)
    return Site(controller, provider, people, line.enrolment, line.ca_hash, tmp_path / "home")


async def test_a_user_signs_in_and_may_do_what_the_groups_give(site: Site) -> None:
    site.provider.pending = ["authorization_pending", "authorization_pending"]
    await site.people.SetMotd(access_pb2.SetMotdRequest(text="no work on Friday"), timeout=WITHIN_S)
    status, said = await site.login()
    assert status == 0, said
    assert f"open {site.provider.issuer}/activate and enter the code WDJB-MJHT" in said
    assert "you are ann of the cluster test" in said and "no work on Friday" in said
    assert site.provider.forms[0] == {"client_id": CLIENT, "scope": "openid profile"}
    files = {
        each.name: stat.S_IMODE(each.stat().st_mode)
        for each in site.settings.parent.iterdir()
        if "motd" not in each.name
    }
    assert files == {"ca.pem": 0o644, "user.pem": 0o644, "user.key": 0o600, "client.toml": 0o600}
    async with Client(load(site.settings)) as ann:
        me = await ann.access.caller()
        assert [(grant.project, grant.role) for grant in me.user.grants] == [("*", access_pb2.ROLE_USER)]
        assert 3000 < me.certificate_end.seconds - time.time() < 3700
        assert abs(me.certificate_end.seconds - me.user.sign_in_end.seconds) < 60
        _ = [job async for job in ann.list_jobs()]
        with pytest.raises(Denied):
            await ann.access.list_users()
    entries = await site.people.ReadAudit(access_pb2.ReadAuditRequest(who="user/ann"), timeout=WITHIN_S)
    assert [(each.call, each.outcome) for each in entries.entries] == [
        ("EnrolmentService/SignIn", "OK"),
        ("AccessService/ListUsers", "PERMISSION_DENIED"),
    ]


async def test_a_removed_user_is_out_at_once_and_cannot_sign_in_again(site: Site) -> None:
    assert (await site.login())[0] == 0
    async with Client(load(site.settings)) as ann:
        _ = [job async for job in ann.list_jobs()]
        await site.people.RemoveUser(access_pb2.RemoveUserRequest(name="ann"), timeout=WITHIN_S)
        with pytest.raises(Unauthenticated, match="void"):
            _ = [job async for job in ann.list_jobs()]
    status, said = await site.types("login", "--oidc")
    assert status != 0 and "ann was removed by an admin" in said
    await site.people.AddUser(access_pb2.AddUserRequest(name="ann", sign_in=True), timeout=WITHIN_S)
    assert (await site.types("login", "--oidc"))[0] == 0, "without the line: the cluster is known from before"


async def test_a_certificate_is_renewed_by_the_provider_s_word_alone(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast._base import identity
    from holdfast._security import certificate
    from holdfast._security.renewal import if_due
    from holdfast._security.tls import TlsFiles

    site.provider.refresh = "rt-1"
    assert (await site.login())[0] == 0
    kept = site.settings.parent / "user.refresh"
    assert (kept.read_text(), stat.S_IMODE(kept.stat().st_mode)) == ("rt-1", 0o600)
    files = TlsFiles(*(site.settings.parent / name for name in ("ca.pem", "user.pem", "user.key")))
    before, key = certificate.read(files.cert), files.key.read_bytes()
    monkeypatch.setattr(identity, "RENEW_AT", -1.0)
    site.provider.refresh = "rt-2"
    await asyncio.to_thread(if_due, site.enrolment, files, True)
    assert site.provider.forms[-1] == {"grant_type": "refresh_token", "refresh_token": "rt-1", "client_id": CLIENT}
    assert kept.read_text() == "rt-2" and files.key.read_bytes() == key
    assert certificate.read(files.cert).issued_at >= before.issued_at
    # By the old certificate alone nothing is renewed.
    monkeypatch.setattr(time, "time", lambda: before.ends_at + 1)
    with pytest.raises(Denied, match="ann signs in by the identity provider"):
        await asyncio.to_thread(if_due, site.enrolment, files, False)
    site.provider.claims["groups"] = ["others"]
    kept.unlink()
    with pytest.raises(Unauthenticated, match="Your sign-in has ended"):
        await asyncio.to_thread(if_due, site.enrolment, files, True)


async def test_users_by_token_go_on_beside_those_of_the_provider(site: Site) -> None:
    await site.people.SetMotd(access_pb2.SetMotdRequest(text="no work on Friday"), timeout=WITHIN_S)
    grant = access_pb2.Grant(project="*", role=access_pb2.ROLE_VIEWER)
    await site.people.AddUser(access_pb2.AddUserRequest(name="ben", grant=grant), timeout=WITHIN_S)
    line = await site.people.CreateToken(access_pb2.CreateTokenRequest(user="ben"), timeout=WITHIN_S)
    status, said = await site.types("login", line.enrolment, "--token", line.token, "--ca-hash", line.ca_hash)
    assert status == 0 and "you are ben" in said and "no work on Friday" in said
    for words in (("login",), ("login", "--oidc", "--token", "x"), ("login", "ctl:1", "--oidc")):
        assert (await site.types(*words))[0] == 2, words


async def test_a_user_who_refuses_or_is_late_gets_nothing(site: Site) -> None:
    site.provider.pending = ["slow_down", "access_denied"]
    site.provider.interval = 1
    status, said = await site.login()
    assert status != 0 and "The sign-in was refused." in said
    site.provider.pending = ["expired_token"]
    status, said = await site.login()
    assert status != 0 and "The code has ended" in said
    assert not site.settings.exists()


async def test_a_user_of_no_group_and_a_name_of_another_are_refused_in_words(site: Site) -> None:
    site.provider.claims["groups"] = ["others"]
    status, said = await site.login()
    assert status != 0 and "ann is in no group that may use this cluster." in said
    grant = access_pb2.Grant(project="*", role=access_pb2.ROLE_VIEWER)
    await site.people.AddUser(access_pb2.AddUserRequest(name="ben", grant=grant), timeout=WITHIN_S)
    token = site.provider.id_token
    assert "ben was added by an admin" in await site.refused(token(preferred_username="ben", groups=["ml"]))
    assert "root is an admin by controller.toml" in await site.refused(
        token(preferred_username="root", groups=["ml"])
    )
    for name in ("", "x" * 2000, "\x1b[2J", "a/b", ["ann"], 7, None):
        said = await site.refused(token(preferred_username=name, groups=["ml"]))
        assert "no name here" in said or "is missing, or is no text" in said
        assert said.replace("\n", "").isprintable()


def unsigned(claims: dict[str, Any], header: dict[str, Any]) -> str:
    parts = (base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in (header, claims))
    return ".".join([*parts, ""])


async def test_a_token_that_proves_nothing_is_refused(site: Site) -> None:
    provider, now = site.provider, int(time.time())
    good = jwt.decode(provider.id_token(), options={"verify_signature": False})
    other = rsa.generate_private_key(65537, 2048)
    public = provider.keys["k1"].public_key()
    pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    confused = _by_hmac(good, pem)
    cases = {
        unsigned(good, {"alg": "none", "typ": "JWT", "kid": "k1"}): "algorithm 'none' is not accepted",
        confused: "algorithm 'HS256' is not accepted",
        provider.id_token(aud="another"): "Audience doesn't match",
        provider.id_token(aud=[CLIENT, "another"]): "another client",
        provider.id_token(azp="another"): "another client",
        provider.id_token(iss="https://elsewhere"): "Invalid issuer",
        provider.id_token(exp=now - 120): "expired",
        provider.id_token(exp=None): "exp",
        provider.id_token(iat=now - 7200, exp=now + 7200): "more than 15 minutes ago",
        provider.id_token(iat=now + 600): "not yet valid",
        provider.id_token(nbf=now + 600): "not yet valid",
        provider.id_token(sub=None): "sub",
        provider.id_token(key=other): "Signature verification failed",
        provider.id_token(groups={"ml": 1}): "no list",
        provider.id_token().rpartition(".")[0] + ".": "Signature verification failed",
        "": "Not enough segments",
        "a.b.c": "",
    }
    for token, why in cases.items():
        said = await site.refused(token)
        assert "The ID token is refused" in said and why.lower() in said.lower(), (why, said)
    assert "signature" in await site.refused(provider.id_token(), _of_another_key())
    users = await site.people.ListUsers(access_pb2.ListUsersRequest(), timeout=WITHIN_S)
    assert {user.name for user in users.users} == {"root", "bob"}
    found = await site.people.ReadAudit(access_pb2.ReadAuditRequest(refused=True, limit=1000), timeout=WITHIN_S)
    assert {each.call for each in found.entries} == {"EnrolmentService/SignIn"}


def _by_hmac(claims: dict[str, Any], secret: bytes) -> str:
    """A token signed with the provider's public key as a shared secret, which some verifiers take."""
    import hashlib
    import hmac

    body = unsigned(claims, {"alg": "HS256", "typ": "JWT", "kid": "k1"}).rstrip(".")
    digest = hmac.new(secret, body.encode(), hashlib.sha256).digest()
    return f"{body}.{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


def _of_another_key() -> bytes:
    """A signing request with a key that its sender does not hold: its signature is another one's."""
    ours, theirs = (requests.request(requests.new_key()) for _ in range(2))
    one, two = (base64.b64decode("".join(each.decode().splitlines()[1:-1])) for each in (ours, theirs))
    mixed = bytearray(one)
    at = one.index(bytes.fromhex("03420004")) + 4
    mixed[at : at + 64] = two[two.index(bytes.fromhex("03420004")) + 4 :][:64]
    body = base64.encodebytes(bytes(mixed)).decode()
    return f"-----BEGIN CERTIFICATE REQUEST-----\n{body}-----END CERTIFICATE REQUEST-----\n".encode()


async def test_a_short_key_signs_nothing(site: Site) -> None:
    site.provider.keys["short"] = rsa.generate_private_key(65537, 1024)
    site.provider.published = ["short"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyJWT's own, about what is tried here
        token = site.provider.id_token()
    assert "fewer than 2048 bits" in await site.refused(token)


async def test_a_token_counts_for_one_key_alone(site: Site) -> None:
    token, key = site.provider.id_token(), requests.new_key()
    await site.sign_in(token, requests.request(key))
    await site.sign_in(token, requests.request(key))
    assert "it was used already" in await site.refused(token)
    # The same signature in other characters.
    assert "it was used already" in await site.refused(f"{token}==")


async def test_keys_are_asked_for_again_when_the_provider_changes_them_but_not_at_will(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.sign_in(site.provider.id_token())
    asked = site.provider.asked.count("/jwks")
    for number in range(5):
        assert "no such key" in await site.refused(site.provider.id_token(kid=f"made-up-{number}"))
    assert site.provider.asked.count("/jwks") == asked, "within a minute of the last time"
    monkeypatch.setattr(id_tokens, "UNKNOWN_KEY_S", 0.0)
    old = site.provider.id_token(sub="s-2", preferred_username="eve")
    site.provider.add_key("k2")
    await site.sign_in(site.provider.id_token())
    assert "no such key" in await site.refused(old), "a withdrawn key signs nothing any more"


def _late() -> tuple[int, Any]:
    time.sleep(2)
    return 200, {}


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ({"/jwks": lambda: (503, {})}, "HTTP status 503"),
        ({"/jwks": lambda: (302, {})}, "HTTP status 302"),
        ({"/jwks": lambda: (200, b"x" * (300 << 10))}, "longer than 256 KiB"),
        ({"/jwks": lambda: (200, b"[]")}, "no JSON object"),
        ({"/jwks": lambda: (200, b"[" * 100_000)}, "can't be read"),
        ({"/jwks": lambda: (200, {"keys": {}})}, "no list"),
        ({"/.well-known/openid-configuration": lambda: (200, {"issuer": "https://evil"})}, "calls itself"),
        ({"/jwks": _late}, "no answer within"),
    ],
)
async def test_a_provider_that_fails_holds_nothing_up(
    site: Site, answers: dict[str, Any], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "within" in why:
        monkeypatch.setattr(id_tokens, "FETCH_S", 1.0)
    site.provider.answers = answers
    code, error = await refusal(site.sign_in(site.provider.id_token()))
    assert code is grpc.StatusCode.UNAVAILABLE and why in str(error)
    count = len(site.provider.asked)
    await refusal(site.sign_in(site.provider.id_token()))
    assert len(site.provider.asked) == count, "it is left alone for some seconds"
    site.provider.answers = {}
    monkeypatch.setattr(id_tokens, "FAILED_S", 0.0)
    monkeypatch.setattr(id_tokens, "FETCH_S", 10.0)
    await site.sign_in(site.provider.id_token())


async def test_a_provider_of_another_ca_is_not_believed(
    site: Site, provider: IdentityProvider, tmp_path: Path
) -> None:
    folder = tmp_path / "impostor"
    folder.mkdir()
    impostor = IdentityProvider(folder)
    try:
        config = OidcConfig(impostor.issuer, CLIENT, provider.ca, grants=(OidcGrantConfig("ml"),))
        with pytest.raises(Exception, match="CERTIFICATE_VERIFY_FAILED"):
            await id_tokens.Provider(config).verify(impostor.id_token(), "digest")
    finally:
        impostor.stop()
