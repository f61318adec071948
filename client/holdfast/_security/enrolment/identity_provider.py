"""The device authorization grant (RFC 8628): an ID token for a user who signs in with a browser, on any machine.

What the provider sends is bounded, and nothing follows its redirects. Only https is spoken.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

from holdfast._base.dataclass import dataclass
from holdfast._base.printable import one_line
from holdfast._base.version import __version__
from holdfast.errors import ConfigError, Denied, HoldfastError, Unauthenticated, Unavailable

CALL_S = 15.0
MAX_BYTES = 256 << 10
GRANT = "urn:ietf:params:oauth:grant-type:device_code"
INTERVAL_S = 5.0
"""Between two questions, where the provider names no interval; added at each ``slow_down``. RFC 8628, 3.2 and 3.5."""
INTERVAL_MOST_S = 60.0
WAIT_MOST_S = 1_800.0
"""A code that is good for longer is not waited for."""


@dataclass(frozen=True, slots=True)
class ProviderInfo:
    """The identity provider as the controller names it; ``ca`` is PEM, empty for one of the system's."""

    issuer: str
    client_id: str
    scopes: tuple[str, ...]
    ca: bytes = b""


@dataclass(frozen=True, slots=True)
class Tokens:
    """The provider's word on a user, and, if it gives one, a token for the next such word."""

    id_token: str
    refresh_token: str = ""


Tell = Callable[[str], None]
"""Shows the user a sentence."""


def sign_in(
    provider: ProviderInfo,
    tell: Tell,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Tokens:
    """Have the user sign in at the provider, and wait for it.

    Raises ``Denied`` if the user, or the provider, refuses; ``Unauthenticated`` if the code's time is over;
    ``Unavailable`` or ``ConfigError`` where the provider can't be asked.
    """
    link = _Link(provider)
    about = link.about()
    begun = link.post(
        _endpoint(about, "device_authorization_endpoint"),
        {"client_id": provider.client_id, "scope": " ".join(provider.scopes)},
    )
    if "error" in begun:
        raise _refused(begun)
    code, shown = _text(begun, "device_code"), _text(begun, "user_code")
    address = str(begun.get("verification_uri") or begun.get("verification_url") or "")
    if not address.startswith(("https://", "http://")):
        raise ConfigError("The identity provider names no address to sign in at.", fix=_TELL_ADMIN)
    tell(f"open {one_line(address, 500)} and enter the code {one_line(shown, 100)}")
    if str(whole := begun.get("verification_uri_complete") or "").startswith(("https://", "http://")):
        tell(f"or open {one_line(str(whole), 1000)}")
    until = clock() + min(_seconds(begun, "expires_in", WAIT_MOST_S), WAIT_MOST_S)
    interval = min(max(_seconds(begun, "interval", INTERVAL_S), 1.0), INTERVAL_MOST_S)
    asked = {"grant_type": GRANT, "device_code": code, "client_id": provider.client_id}
    while clock() + interval < until:
        sleep(interval)
        try:
            answer = link.post(_endpoint(about, "token_endpoint"), asked)
        except Unavailable:
            interval = min(interval * 2, INTERVAL_MOST_S)  # RFC 8628, 3.5
            continue
        match answer.get("error"):
            case None:
                return _tokens(answer)
            case "authorization_pending":
                pass
            case "slow_down":
                interval = min(interval + INTERVAL_S, INTERVAL_MOST_S)
            case "expired_token":
                break
            case _:
                raise _refused(answer)
    raise Unauthenticated("The code has ended before anyone signed in with it.", fix=_AGAIN)


def refresh(provider: ProviderInfo, token: str) -> Tokens:
    """The next ID token for a refresh token, with the refresh token to use then.

    Raises ``Denied`` where the provider gives none, ``Unavailable`` or ``ConfigError`` where it can't be asked.
    """
    link = _Link(provider)
    asked = {"grant_type": "refresh_token", "refresh_token": token, "client_id": provider.client_id}
    answer = link.post(_endpoint(link.about(), "token_endpoint"), asked)
    if "error" in answer:
        raise _refused(answer)
    found = _tokens(answer)
    return Tokens(found.id_token, found.refresh_token or token)


def _tokens(answer: Mapping[str, Any]) -> Tokens:
    if not isinstance(answer.get("id_token"), str):
        raise Denied("The identity provider gave no ID token.", fix=_AGAIN)
    refresh_token = answer.get("refresh_token")
    return Tokens(answer["id_token"], refresh_token if isinstance(refresh_token, str) else "")


def _refused(answer: Mapping[str, Any]) -> HoldfastError:
    error, why = (one_line(str(answer.get(key) or ""), 300) for key in ("error", "error_description"))
    if error == "access_denied":
        return Denied("The sign-in was refused.", fix=_AGAIN)
    return Denied(f"The identity provider refuses: {error}{f', {why}' if why else ''}.", fix=_AGAIN)


def _text(answer: Mapping[str, Any], key: str) -> str:
    value = answer.get(key)
    if not isinstance(value, str) or not value:
        raise ConfigError(f"The identity provider's answer lacks {key}.", fix=_TELL_ADMIN)
    return value


def _seconds(answer: Mapping[str, Any], key: str, otherwise: float) -> float:
    try:
        return float(answer.get(key) or otherwise)
    except (TypeError, ValueError):
        return otherwise


def _endpoint(about: Mapping[str, Any], key: str) -> str:
    found = str(about.get(key) or "")
    if not found.startswith("https://"):
        fix = "Ask an admin: the provider needs the device authorization grant, over https."
        raise ConfigError(f"The identity provider names no {key}.", fix=fix)
    return found


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class _Link:
    """Asks a provider. Raises ``Unavailable`` for what may pass, and ``ConfigError`` for what will not."""

    def __init__(self, provider: ProviderInfo) -> None:
        self._issuer = provider.issuer
        try:
            trusted = ssl.create_default_context()
            if provider.ca:
                trusted.load_verify_locations(cadata=provider.ca.decode())
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(
                f"The CA of the identity provider can't be read: {error}.", fix=_TELL_ADMIN
            ) from error
        self._opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=trusted), _NoRedirects())

    def about(self) -> dict[str, Any]:
        """The provider's description of itself."""
        if not self._issuer.startswith("https://"):
            raise ConfigError("The identity provider's address is no https URL.", fix=_TELL_ADMIN)
        found = self._ask(urllib.request.Request(f"{self._issuer.rstrip('/')}/.well-known/openid-configuration"))
        if found.get("issuer") != self._issuer:
            named = one_line(str(found.get("issuer")), 100)
            raise ConfigError(
                f"The identity provider calls itself {named!r}, not {self._issuer!r}.", fix=_TELL_ADMIN
            )
        return found

    def post(self, url: str, form: Mapping[str, str]) -> dict[str, Any]:
        """The answer to a form; one with ``error`` in it is an answer, too."""
        return self._ask(urllib.request.Request(url, urllib.parse.urlencode(form).encode()))

    def _ask(self, asked: urllib.request.Request) -> dict[str, Any]:
        asked.add_header("Accept", "application/json")
        asked.add_header("User-Agent", f"holdfast/{__version__}")
        status = 200
        try:
            try:
                answer = self._opener.open(asked, timeout=CALL_S)
            except urllib.error.HTTPError as error:
                answer, status = error, error.code
            with answer:
                body = _read(answer)
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise Unavailable(f"The identity provider can't be asked: {one_line(str(error), 200)}.") from error
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            found = None
        if status >= 500 or status == 429:
            raise Unavailable(f"The identity provider answered with HTTP status {status}.")
        if not isinstance(found, dict) or (status != 200 and "error" not in found):
            raise ConfigError(f"The identity provider answered with HTTP status {status} and no JSON object.")
        return found


def _read(answer: Any) -> bytes:
    """The whole body. Raises ``ValueError`` for one that is too long, or takes too long."""
    body, until = bytearray(), time.monotonic() + CALL_S
    while part := answer.read1(16 << 10):
        body += part
        if len(body) > MAX_BYTES:
            raise ValueError(f"its answer is longer than {MAX_BYTES >> 10} KiB")
        if time.monotonic() > until:
            raise ValueError(f"its answer took more than {CALL_S:.0f} s")
    return bytes(body)


_AGAIN = "Try again: holdfast login --oidc"
_TELL_ADMIN = "Tell an admin: [oidc] in controller.toml."
