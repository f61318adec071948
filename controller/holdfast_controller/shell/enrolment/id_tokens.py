"""ID tokens of the site's identity provider (OpenID Connect): whether one is what it claims to be.

A token counts if the provider has signed it by a public key that it publishes now, for this cluster's client id, and
not long ago; what it says is then a name, an account and groups. What those may do here is not decided here.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import ssl
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import jwt

from holdfast._base.dataclass import dataclass
from holdfast._base.printable import one_line
from holdfast._base.version import __version__
from holdfast._daemon import log
from holdfast.errors import ConfigError, Denied, Unavailable
from holdfast_controller.shell.base.oidc_config import OidcConfig

if TYPE_CHECKING:
    import httpx

ALGORITHMS = {
    **{f"RS{bits}": "RSA" for bits in (256, 384, 512)},
    **{f"PS{bits}": "RSA" for bits in (256, 384, 512)},
    **{f"ES{bits}": "EC" for bits in (256, 384, 512)},
    "EdDSA": "OKP",
}
"""Signature algorithms that count, and the kind of their keys. None is symmetric: a public key is no shared secret."""
RSA_BITS = 2_048
FETCH_S = 10.0
"""All that one answer of the provider may take."""
MAX_BYTES = 256 << 10
MAX_KEYS = 64
KEYS_S = 3_600.0
"""Keys are asked for again after so long: one that the provider has withdrawn counts no longer than that."""
UNKNOWN_KEY_S = 60.0
"""The least time between two requests for a key that is not among those known."""
FAILED_S = 5.0
"""So long the provider is not asked again after a failure."""
LEEWAY_S = 60.0
"""By which clocks may differ."""
FRESH_S = 900.0
"""A token that was issued longer ago doesn't count: it is meant for a sign-in that happens now."""
MAX_SEEN = 10_000
"""Tokens that are remembered, so that each counts for one key alone."""
MAX_GROUPS = 2_000
MAX_CLAIM = 1_024
"""Characters of a claim that is read."""


@dataclass(frozen=True)
class Vouched:
    """An account at a provider, with the name and the groups that it has there."""

    issuer: str
    subject: str
    user: str
    groups: frozenset[str]


class Provider:
    """The identity provider of one cluster; asks it for its keys when they are needed.

    Raises ``ConfigError`` where the CA of the settings can't be read.
    """

    def __init__(
        self,
        config: OidcConfig,
        wall: Callable[[], float] = time.time,
        mono: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config
        self.ca = ca_of(config)
        """The CA of its certificate in PEM; empty: one of the system's."""
        self._wall, self._mono = wall, mono
        self._keys: list[Mapping[str, Any]] = []
        self._asked_at = self._failed_at = float("-inf")
        self._failure = ""
        self._asking = asyncio.Lock()
        self._seen: OrderedDict[str, tuple[str, float]] = OrderedDict()
        """By a token's signature: the key that it was used for, and when it ends."""

    async def verify(self, token: str, key_digest: str) -> Vouched:
        """Return the account that a verified token vouches for. ``key_digest`` is of the key that will be certified.

        Raises ``Denied``, or ``Unavailable`` where the provider's keys can't be had.
        """
        try:
            header = jwt.get_unverified_header(token)
            algorithm, key_id = header.get("alg"), header.get("kid")
            if algorithm not in ALGORITHMS:
                raise _refused(f"its algorithm {one_line(str(algorithm), 40)!r} is not accepted")
            key = await self._key(algorithm, key_id)
            claims = jwt.decode(
                token,
                key.key,
                algorithms=[algorithm],
                audience=self.config.client_id,
                issuer=self.config.issuer,
                leeway=LEEWAY_S,
                options={"require": ["exp", "iat", "iss", "aud", "sub"]},
            )
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise _refused(one_line(str(error), 200) or type(error).__name__) from error
        self._check_use(claims)
        # What is signed: a signature can be written in several ways.
        self._check_seen(token.rpartition(".")[0], key_digest, float(claims["exp"]))
        return self._vouched(claims)

    def _check_use(self, claims: Mapping[str, Any]) -> None:
        """Raises ``Denied`` for a token that was made for another client, or for an earlier sign-in."""
        audience, party = claims["aud"], claims.get("azp")
        of_several = isinstance(audience, list) and len(audience) > 1
        if (of_several or party is not None) and party != self.config.client_id:
            raise _refused("it was issued to another client")
        if self._wall() - float(claims["iat"]) > FRESH_S + LEEWAY_S:
            raise _refused(f"it was issued more than {FRESH_S / 60:.0f} minutes ago")

    def _check_seen(self, signed: str, key_digest: str, ends_at: float) -> None:
        """Raises ``Denied`` for a token that was used for another key: a copy of it is of no use."""
        now, digest = self._wall(), hashlib.sha256(signed.encode()).hexdigest()
        while self._seen and (len(self._seen) >= MAX_SEEN or next(iter(self._seen.values()))[1] < now):
            self._seen.popitem(last=False)
        known, _ = self._seen.setdefault(digest, (key_digest, min(ends_at, now + FRESH_S) + 2 * LEEWAY_S))
        if known != key_digest:
            raise _refused("it was used already")

    def _vouched(self, claims: Mapping[str, Any]) -> Vouched:
        config = self.config
        user, subject, groups = claims.get(config.user_claim), claims["sub"], claims.get(config.groups_claim, [])
        for claim, value in ((config.user_claim, user), ("sub", subject)):
            if not isinstance(value, str) or not 0 < len(value) <= MAX_CLAIM:
                raise _refused(f"its claim {claim} is missing, or is no text")
        listed = [groups] if isinstance(groups, str) else groups
        if not isinstance(listed, list) or len(listed) > MAX_GROUPS:
            raise _refused(f"its claim {config.groups_claim} is no list of at most {MAX_GROUPS:,} groups")
        return Vouched(config.issuer, str(subject), str(user), frozenset(g for g in listed if isinstance(g, str)))

    async def _key(self, algorithm: str, key_id: object) -> jwt.PyJWK:
        """The provider's key for a token. Raises ``Denied`` or ``Unavailable``."""
        async with self._asking:
            if self._mono() - self._asked_at > KEYS_S:
                await self._ask()
            found = self._fitting(algorithm, key_id)
            if found is None and self._mono() - self._asked_at > UNKNOWN_KEY_S:
                await self._ask()
                found = self._fitting(algorithm, key_id)
        if found is None:
            raise _refused("the identity provider has no such key")
        key = jwt.PyJWK(dict(found), algorithm)
        if ALGORITHMS[algorithm] == "RSA" and key.key.key_size < RSA_BITS:
            raise _refused(f"its key has fewer than {RSA_BITS} bits")
        return key

    def _fitting(self, algorithm: str, key_id: object) -> Mapping[str, Any] | None:
        """The one key for signatures of this algorithm with that id; without an id, the only one there is."""
        found = [
            each
            for each in self._keys
            if each.get("kty") == ALGORITHMS[algorithm]
            and each.get("use", "sig") == "sig"
            and each.get("alg", algorithm) == algorithm
            and (key_id is None or each.get("kid") == key_id)
        ]
        return found[0] if len(found) == 1 else None

    async def _ask(self) -> None:
        """Take in the keys that the provider publishes now. Raises ``Unavailable``."""
        if self._mono() - self._failed_at < FAILED_S:
            raise Unavailable(self._failure, fix=_LATER)
        try:
            async with asyncio.timeout(FETCH_S):
                self._keys = await self._fetch()
        except (OSError, ValueError, TimeoutError) as error:
            why = (
                f"no answer within {FETCH_S:.0f} s"
                if isinstance(error, TimeoutError)
                else one_line(str(error), 200)
            )
            self._failed_at = self._mono()
            self._failure = f"The identity provider's keys can't be read: {why}."
            log.warning("oidc.keys_unreadable", issuer=self.config.issuer, error=why)
            raise Unavailable(self._failure, fix=_LATER) from error
        self._asked_at = self._mono()
        log.info("oidc.keys_read", issuer=self.config.issuer, keys=len(self._keys))

    async def _fetch(self) -> list[Mapping[str, Any]]:
        """The published keys. Raises ``OSError`` or ``ValueError``."""
        # Off the loop: the import and the world's certificates take a tenth of a second each.
        client = await asyncio.to_thread(_client, self.ca)
        import httpx

        try:
            async with client:
                about = await _read(client, f"{self.config.issuer.rstrip('/')}/.well-known/openid-configuration")
                if about.get("issuer") != self.config.issuer:
                    raise ValueError(f"it calls itself {one_line(str(about.get('issuer')), 100)!r}")
                keys = (await _read(client, str(about.get("jwks_uri")))).get("keys")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise OSError(str(error) or type(error).__name__) from error
        if not isinstance(keys, list):
            raise ValueError("its keys are no list")
        return [each for each in keys[:MAX_KEYS] if isinstance(each, dict)]


def ca_of(config: OidcConfig) -> bytes:
    """The CA that the settings name, in PEM; empty for none. Raises ``ConfigError``."""
    if config.ca is None:
        return b""
    try:
        pem = config.ca.read_bytes()
        ssl.create_default_context(cadata=pem.decode())
    except (OSError, ValueError) as error:
        raise ConfigError(f"oidc.ca: {config.ca} is no CA in PEM form: {error}.") from error
    return pem


def _client(ca: bytes) -> httpx.AsyncClient:
    """A client that follows no redirect and trusts the CA of the settings, the system's and the world's."""
    import httpx

    trusted = httpx.create_ssl_context()
    trusted.load_default_certs()
    if ca:
        trusted.load_verify_locations(cadata=ca.decode())
    trusted.minimum_version = ssl.TLSVersion.TLSv1_2
    direct = {"all://localhost": None, "all://127.0.0.1": None, "all://[::1]": None}
    headers = {"User-Agent": f"holdfast/{__version__}", "Accept": "application/json", "Accept-Encoding": "identity"}
    return httpx.AsyncClient(
        verify=trusted, follow_redirects=False, timeout=FETCH_S, headers=headers, mounts=direct, trust_env=True
    )


async def _read(client: httpx.AsyncClient, url: str) -> dict[str, Any]:
    """The JSON object at an https URL. Raises ``ValueError`` for anything else, and httpx's errors."""
    if urlsplit(url).scheme != "https":
        raise ValueError(f"{one_line(url, 100)!r} is no https URL")
    async with client.stream("GET", url) as answer:
        if answer.status_code != 200:
            raise ValueError(f"it answered with HTTP status {answer.status_code}")
        body = bytearray()
        async for part in answer.aiter_raw():
            body += part
            if len(body) > MAX_BYTES:
                raise ValueError(f"its answer is longer than {MAX_BYTES >> 10} KiB")
    try:
        found = json.loads(body)
    except RecursionError as error:
        raise ValueError("its answer is nested too deep") from error
    if not isinstance(found, dict):
        raise ValueError("its answer is no JSON object")
    return found


def _refused(why: str) -> Denied:
    return Denied(f"The ID token is refused: {why.rstrip('.')}.", fix="Sign in again: holdfast login --oidc")


_LATER = "Try again in a minute; if it stays so, tell an admin."
