"""Settings of enrolment, and which callers share its limits."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from holdfast._base import config as configuration
from holdfast._daemon.tls_door import network_of
from holdfast.errors import ConfigError, HoldfastError
from holdfast_controller.shell.base.config import CertificateConfig, ControllerConfig


def test_one_caller_may_have_all_addresses_of_a_network_of_its_own() -> None:
    assert {network_of(f"2001:db8:1:2::{n:x}") for n in range(500)} == {"2001:db8:1:2::/64"}
    assert network_of("2001:db8:1:3::1") == "2001:db8:1:3::/64"
    assert network_of("192.0.2.1") == network_of("::ffff:192.0.2.1") == "192.0.2.1"
    assert network_of("fe80::1%eth0") == "fe80::/64"
    assert network_of("unix") == "unix"


def test_enrolment_without_a_ca_is_a_mistake(tmp_path: Path) -> None:
    here = tmp_path / "x"
    config = ControllerConfig(listen="a:1", state_dir=here, ca=here, cert=here, key=here, cluster="x")
    with pytest.raises(ConfigError, match="enrolment_listen is set, and ca_directory is not"):
        dataclasses.replace(config, ca_directory=None, enrolment_listen="127.0.0.1:0")
    with pytest.raises(ConfigError, match="admins: 'a b' is no name"):
        dataclasses.replace(config, admins=("a b",))
    with pytest.raises(ConfigError, match=r"certificates\.host is 1 s"):
        CertificateConfig(host=1)


def test_a_misspelt_table_of_the_controllers_settings_is_named(tmp_path: Path) -> None:
    path = tmp_path / "controller.toml"
    path.write_text(
        'listen="a:1"\nstate_dir="s"\nca="a"\ncert="b"\nkey="c"\ncluster="x"\n[certificates]\nhosts="1d"\n'
    )
    with pytest.raises(HoldfastError, match=r"unknown key 'certificates\.hosts'"):
        configuration.load(ControllerConfig, path)
