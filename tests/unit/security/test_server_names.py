"""Which names and addresses a controller's certificate carries, and what is none."""

from __future__ import annotations

import datetime
import socket
import ssl
from pathlib import Path

import pytest

from holdfast._base.identity import Identity, Kind
from holdfast._security import pki, server_names
from holdfast._security.server_names import ALWAYS, checked, named, served
from holdfast.errors import ConfigError


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "Box-7")


def test_all_that_was_given_and_the_machines_own_name() -> None:
    listens = ("0.0.0.0:7443", "[::]:7444", ":1", "10.0.0.5:7443", "[2001:DB8::1]:7443")
    assert served(("ctl.lab", "CTL", "[2001:db8::2]"), listens) == {
        *ALWAYS, "box-7", "ctl.lab", "ctl", "2001:db8::2", "10.0.0.5", "2001:db8::1",
    }  # fmt: skip


def test_a_machine_whose_name_is_none_is_served_by_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "ctl_ä")
    assert served(("ctl.lab",)) == {*ALWAYS, "ctl.lab"}


NO_NAMES = (" ", "a b", "ctl.lab:7443", "ctl..lab", "-x", "x-", "10.0.0", "10.0.0.256", "*.lab", "https://ctl.lab")


@pytest.mark.parametrize("name", ["", "x" * 64, "a." * 127 + "aa", *NO_NAMES])
def test_what_is_no_name_is_refused_with_the_setting(name: str) -> None:
    with pytest.raises(ConfigError, match=r"^advertise: .* is no host\. Write a name or an address without a port"):
        checked(name, "advertise")


def test_a_controller_never_has_the_name_of_hosts() -> None:
    """Each host has a certificate of that name, and could stand in for the controller."""
    with pytest.raises(ConfigError, match="what every host's certificate names"):
        checked("Holdfast-Host.", "names")


def test_issued_and_renewed_certificates_carry_them(tmp_path: Path) -> None:
    pki.create_ca("lab", tmp_path)
    who = Identity("lab", Kind.CONTROLLER, "c")
    files = pki.issue(tmp_path, who, tmp_path, "c", server=True, names=served(("ctl.lab", "10.0.0.5")))
    assert named(files.cert) == served(("ctl.lab", "10.0.0.5"))
    pki.renew_server(tmp_path, files, datetime.timedelta(days=1), served(("other.lab",)))
    assert named(files.cert) == served(("other.lab",))
    ssl.create_default_context(cafile=files.ca).load_cert_chain(files.cert, files.key)


def test_a_certificate_without_names_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.pem").write_text("nothing")
    with pytest.raises(ConfigError, match=r"x\.pem is no certificate that names a server"):
        named(tmp_path / "x.pem")
    assert server_names.general_names(()) == []
