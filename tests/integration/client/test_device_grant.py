"""The device authorization grant as the command line speaks it: it waits as long as asked to, and believes little."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.identity_provider import CLIENT, IdentityProvider

from holdfast._security.enrolment import identity_provider
from holdfast._security.enrolment.identity_provider import ProviderInfo, Tokens, refresh, sign_in
from holdfast.errors import ConfigError, Denied, HoldfastError, Unauthenticated, Unavailable

ABOUT = "/.well-known/openid-configuration"


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[IdentityProvider]:
    made = IdentityProvider(tmp_path)
    yield made
    made.stop()


@dataclasses.dataclass
class Device:
    """A user's machine whose clock is ours."""

    provider: IdentityProvider
    now: float = 0.0
    slept: list[float] = dataclasses.field(default_factory=list)
    said: list[str] = dataclasses.field(default_factory=list)

    @property
    def info(self) -> ProviderInfo:
        return ProviderInfo(self.provider.issuer, CLIENT, ("openid",), self.provider.ca.read_bytes())

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def signs_in(self) -> Tokens:
        return sign_in(self.info, self.said.append, clock=lambda: self.now, sleep=self.sleep)


@pytest.fixture
def device(provider: IdentityProvider) -> Device:
    return Device(provider)


def test_it_asks_at_the_interval_and_slows_down_when_told(device: Device) -> None:
    device.provider.interval = 7
    device.provider.pending = ["authorization_pending", "slow_down", "authorization_pending"]
    assert device.signs_in().id_token
    assert device.slept == [7, 7, 12, 12]


def test_without_an_interval_it_is_five_seconds(device: Device) -> None:
    device.provider.interval = 0
    device.signs_in()
    assert device.slept == [5]


def test_a_provider_that_is_away_for_a_moment_is_asked_again_later(device: Device) -> None:
    device.provider.interval = 2
    times: Iterator[tuple[int, Any]] = iter([(503, {}), (500, {})])

    def token() -> tuple[int, Any]:
        found = next(times, None)
        if found is None:
            del device.provider.answers["/token"]
            return 400, {"error": "authorization_pending"}
        return found

    device.provider.answers["/token"] = token
    device.signs_in()
    assert device.slept == [2, 4, 8, 8]


def test_it_gives_up_when_the_code_has_ended(device: Device) -> None:
    device.provider.expires_in = 30
    device.provider.pending = ["authorization_pending"] * 100
    device.provider.interval = 10
    with pytest.raises(Unauthenticated, match="The code has ended"):
        device.signs_in()
    assert device.now < 30


@pytest.mark.parametrize(
    ("error", "kind", "why"),
    [
        ("access_denied", Denied, "The sign-in was refused"),
        ("expired_token", Unauthenticated, "The code has ended"),
        ("invalid_client", Denied, "refuses: invalid_client"),
        ("\x1b[2J\nerror: forged", Denied, "refuses: "),
    ],
)
def test_refusals_are_told_in_words(device: Device, error: str, kind: type[HoldfastError], why: str) -> None:
    device.provider.pending = [error]
    with pytest.raises(kind, match=why) as refused:
        device.signs_in()
    assert refused.value.message.isprintable()


def test_a_second_address_is_shown_and_both_are_words(device: Device) -> None:
    device.provider.answers["/device"] = lambda: (
        200,
        {
            "device_code": "dc",
            "user_code": "A\x1b[2JB",
            "verification_uri": "https://id/\nerror: x",
            "verification_uri_complete": "https://id/?c=AB",
        },
    )
    device.signs_in()
    assert device.said == ["open https://id/ error: x and enter the code A?[2JB", "or open https://id/?c=AB"]


_CODE = {"device_code": "d", "user_code": "u"}
WRONG: list[tuple[dict[str, Callable[[], Any]], type[HoldfastError], str]] = [
    ({ABOUT: lambda: (302, {})}, ConfigError, "HTTP status 302"),
    ({ABOUT: lambda: (200, b"x" * (300 << 10))}, Unavailable, "longer than 256 KiB"),
    ({ABOUT: lambda: (200, b"[" * 100_000)}, ConfigError, "no JSON object"),
    ({ABOUT: lambda: (200, {"issuer": "https://evil"})}, ConfigError, "calls itself 'https://evil'"),
    ({"/device": lambda: (200, {"device_code": 7})}, ConfigError, "lacks device_code"),
    ({"/device": lambda: (400, {"error": "unauthorized_client"})}, Denied, "unauthorized_client"),
    ({"/device": lambda: (200, _CODE | {"verification_uri": "file:///etc"})}, ConfigError, "no address"),
    ({"/token": lambda: (200, {"access_token": "at"})}, Denied, "gave no ID token"),
]


@pytest.mark.parametrize(("answers", "kind", "why"), WRONG)
def test_answers_that_make_no_sense_end_it(
    device: Device, answers: dict[str, Any], kind: type[HoldfastError], why: str
) -> None:
    device.provider.answers = answers
    with pytest.raises(kind, match=why):
        device.signs_in()
    assert "/elsewhere" not in device.provider.asked, "no redirect is followed"


def test_only_https_is_spoken(device: Device) -> None:
    with pytest.raises(ConfigError, match="no https URL"):
        sign_in(dataclasses.replace(device.info, issuer="http://127.0.0.1:1"), print)
    issuer = device.provider.issuer
    about = {"issuer": issuer, "device_authorization_endpoint": "http://127.0.0.1:1/device"}
    device.provider.answers[ABOUT] = lambda: (200, about)
    with pytest.raises(ConfigError, match="names no device_authorization_endpoint"):
        device.signs_in()


def test_a_provider_of_an_unknown_ca_is_not_believed(device: Device) -> None:
    with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
        sign_in(dataclasses.replace(device.info, ca=b""), print)


def test_one_that_drips_is_left(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity_provider, "CALL_S", 0.5)
    device.provider.answers[ABOUT] = lambda: (200, _late())
    with pytest.raises(Unavailable, match="can't be asked"):
        device.signs_in()


def _late() -> bytes:
    time.sleep(2)
    return b"{}"


def test_a_refresh_token_is_kept_unless_another_one_comes(device: Device) -> None:
    assert refresh(device.info, "rt-1").refresh_token == "rt-1"
    device.provider.refresh = "rt-2"
    assert refresh(device.info, "rt-1").refresh_token == "rt-2"
    device.provider.pending = ["invalid_grant"]
    with pytest.raises(Denied, match="invalid_grant"):
        refresh(device.info, "rt-1")
