"""Clocks that are a day off, where certificates are renewed. Joining is in ``test_enrolment.py``."""

from __future__ import annotations

import datetime
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from holdfast._base.identity import Identity, Kind
from holdfast._security import certificate, pki
from holdfast._security.enrolment import pinning
from holdfast._security.tls import TlsFiles
from holdfast.errors import ConfigError
from holdfast_agent.shell.main import renewal
from holdfast_agent.shell.main.renewal import Clocks, Renewal

DAY_S, HOUR_S = 86_400.0, 3_600.0
START = datetime.datetime.now(datetime.UTC).timestamp()


class World:
    """A host whose clock is ``off_s`` from the controller's, and a controller that signs. Sleeps pass at once."""

    def __init__(self, folder: Path, off_s: float) -> None:
        self.folder, self.off_s = folder, off_s
        self.true, self.until = START, START + 2.9 * DAY_S
        pki.create_ca("test", folder)
        self.files = pki.issue(folder, Identity("test", Kind.HOST, "h"), folder, "h")
        self.renewed: list[float] = []
        self.ahead_s = 0.0
        """Of the controller's clock, from the true time."""
        self.signed()

    def signed(self) -> None:
        """The next certificate, by the controller's clock."""
        key = pki._read_key(self.files.key)
        who = Identity("test", Kind.HOST, "h")
        at = self.true + self.ahead_s
        self.files.cert.write_bytes(pki.sign(self.folder, who, key.public_key(), at, datetime.timedelta(days=1)))

    async def renew(self) -> bool:
        """What the enrolment service does; a certificate that ended more than a week ago is none."""
        self.true += 1.0
        self.renewed.append(self.true - START)
        self.signed()
        return True

    async def sleep(self, for_s: float) -> None:
        """Time passes."""
        self.true += for_s
        self.ahead_s = 0.0
        if self.true > self.until or len(self.renewed) > 50:
            raise Over

    @property
    def clocks(self) -> Clocks:
        return Clocks(wall=lambda: self.true + self.off_s, boot=lambda: self.true - START + 1000.0)


class Over(Exception):
    """Three days have passed."""


async def live(folder: Path, off_s: float, monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], set[str]]:
    """When an agent's certificate was renewed in three days, in hours; and what was said of the clock."""
    said: set[str] = set()
    monkeypatch.setattr(
        f"{renewal.__name__}.log.warning", lambda event, **fields: said.add(f"{event}: {fields['error']}")
    )
    world = World(folder, off_s)
    kept = Renewal("ctl:7444", world.files, lambda: True, world.clocks)
    monkeypatch.setattr(kept, "_renew", world.renew)
    monkeypatch.setattr(anyio, "sleep", world.sleep)
    with pytest.raises(Over):
        await kept.run()
    return [round(at / HOUR_S) for at in world.renewed], said


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("off_s", "hours", "side"),
    [(0.0, [16, 32, 48, 64], ""), (DAY_S, [0, 16, 32, 48, 64], "ahead of"), (-DAY_S, [40, 56], "behind")],
    ids=["right", "a day ahead", "a day behind"],
)
async def test_a_wall_clock_that_is_a_day_off_changes_the_first_renewal_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, off_s: float, hours: list[int], side: str
) -> None:
    found, said = await live(tmp_path, off_s, monkeypatch)
    assert found == hours
    words = f"clock.not_synchronized: the clock of this host is 86400 s {side} the controller's"
    assert {text.replace("86399", "86400").replace("86401", "86400") for text in said} == (
        {words} if side else set()
    )


@pytest.mark.anyio
@pytest.mark.parametrize("connected", [True, False])
async def test_a_certificate_of_a_controller_whose_clock_was_ahead_is_replaced_once_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, connected: bool
) -> None:
    world = World(tmp_path, 0.0)
    world.ahead_s = 30 * DAY_S
    world.signed()
    monkeypatch.setattr(anyio, "sleep", world.sleep)
    kept = Renewal("ctl:7444", world.files, lambda: connected, world.clocks)
    monkeypatch.setattr(kept, "_renew", world.renew)

    with pytest.raises(Over):
        await kept.run()

    hours = [round(at / HOUR_S) for at in world.renewed]
    # The controller's clock is right by the second one.
    assert hours == ([] if connected else [0, 1, 17, 33, 49, 65])


@pytest.fixture
def tomorrows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Where a controller shows a certificate that begins tomorrow, by the clock of this machine."""
    tomorrow = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    pki.create_ca("test", tmp_path)
    monkeypatch.setattr(pki, "_now", lambda: tomorrow)
    files = pki.issue(tmp_path, Identity("test", Kind.CONTROLLER, "c"), tmp_path, "c", server=True)
    with _served(files) as address:
        yield address


class _served:
    """Handshakes, and nothing more."""

    def __init__(self, files: TlsFiles) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files.cert, files.key)
        self._raw = socket.create_server(("127.0.0.1", 0))
        self._socket = context.wrap_socket(self._raw, server_side=True)
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def _serve(self) -> None:
        while True:
            try:
                self._socket.accept()[0].close()
            except ssl.SSLError:
                continue
            except OSError:
                return

    def __enter__(self) -> str:
        self._thread.start()
        return f"127.0.0.1:{self._socket.getsockname()[1]}"

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(30)


def test_a_renewal_that_fails_for_the_clock_says_so(tomorrows: str) -> None:
    now = datetime.datetime.now(datetime.UTC).timestamp()
    with pytest.raises(ConfigError, match=r"The clock of this machine says .* begins only at .*Set the clock"):
        pinning.check_clock(tomorrows, now)
    pinning.check_clock(tomorrows, now + 1.1 * DAY_S)
    pinning.check_clock("127.0.0.1:1", now)


def test_dates_are_those_of_the_certificate(tmp_path: Path) -> None:
    world = World(tmp_path, 0.0)
    assert abs(certificate.read(world.files.cert).issued_at - START) < 2
