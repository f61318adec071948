"""``holdfast-controller init``: what it makes, and what it refuses."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import pytest

from holdfast._base import config
from holdfast._security import certificate, pki, server_names
from holdfast.settings import load
from holdfast_controller.shell.base.config import ControllerConfig
from holdfast_controller.shell.enrolment.authority import ca_hash
from holdfast_controller.shell.main import admin
from holdfast_controller.shell.main.init import main


def init(root: Path, *words: str, advertise: str = "ctl.lab") -> int:
    folders = ["--dir", str(root / "etc"), "--state-dir", str(root / "state"), "--advertise", advertise]
    return main([*folders, "--admin", "ann", *words])


def test_it_makes_all_that_a_controller_and_its_admin_need(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init(tmp_path, "--cluster", "lab") == 0
    settings = config.load(ControllerConfig, tmp_path / "etc/controller.toml")
    assert (settings.cluster, settings.admins, settings.advertise) == ("lab", ("ann",), "ctl.lab")
    assert settings.ca_directory is not None
    pki.check_ca(settings.ca_directory)
    settings.tls.read()
    made = load(tmp_path / "etc/admin/client.toml")
    assert (made.controller, made.enrolment) == ("ctl.lab:7443", "ctl.lab:7444")
    assert certificate.read(made.cert).identity.name == "ann"
    said = capsys.readouterr().out
    assert ca_hash(made.ca.read_bytes()) in said
    assert f"holdfast-controller --config {tmp_path}/etc/controller.toml" in said


def test_the_certificate_names_whatever_others_reach_the_machine_by(tmp_path: Path) -> None:
    assert init(tmp_path, "--advertise", "10.0.0.5", "--advertise", "ctl") == 0
    settings = config.load(ControllerConfig, tmp_path / "etc/controller.toml")
    assert (settings.advertise, settings.names) == ("ctl.lab", ("10.0.0.5", "ctl"))
    own = {"ctl.lab", "10.0.0.5", "ctl", socket.gethostname().lower()}
    assert server_names.named(settings.cert) == own.union(server_names.ALWAYS)
    assert load(tmp_path / "etc/admin/client.toml").controller == "ctl.lab:7443"


def test_an_admin_who_has_lost_everything_gets_it_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    init(tmp_path)
    words = ["--config", str(tmp_path / "etc/controller.toml")]
    assert admin.main(["ann", *words]) == 0
    assert f"copy {tmp_path}/etc/ann there" in capsys.readouterr().out
    again, first = load(tmp_path / "etc/ann/client.toml"), load(tmp_path / "etc/admin/client.toml")
    assert (again.controller, again.enrolment) == (first.controller, first.enrolment)
    assert certificate.read(again.cert).identity == certificate.read(first.cert).identity
    assert again.key.read_bytes() != first.key.read_bytes()
    assert stat.S_IMODE(again.key.stat().st_mode) == 0o600
    assert stat.S_IMODE(again.key.parent.stat().st_mode) == 0o700
    assert admin.main(["ann", *words]) == 1
    assert "There is a" in capsys.readouterr().err
    assert admin.main(["bob", *words]) == 1
    assert 'Write admins = ["ann", "bob"] there' in capsys.readouterr().err


def test_keys_and_settings_are_for_their_owner_only(tmp_path: Path) -> None:
    init(tmp_path)
    keys = list(tmp_path.rglob("*.key"))
    assert sorted(key.name for key in keys) == ["ca.key", "controller.key", "user.key"]
    assert {stat.S_IMODE(key.stat().st_mode) for key in keys} == {0o600}
    assert stat.S_IMODE((tmp_path / "etc/controller.toml").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "etc/admin").stat().st_mode) == 0o700


def test_a_cluster_that_is_there_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    init(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert init(tmp_path) == 1
    assert "There is a cluster already" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--cluster", "a b"], "--cluster 'a b' is no name"),
        (["--admin", "a/b"], "--admin 'a/b' is no name"),
        (["--port", "0"], "two different ports"),
        (["--port", "7444"], "two different ports"),
        (["--advertise", "ctl:7443"], "is no host"),
        (["--advertise", ""], "is no host"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_what_makes_no_sense_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], problem: str
) -> None:
    assert init(tmp_path, *words) == 1
    said = capsys.readouterr().err
    assert problem in said
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "etc").write_text("a file")
    assert init(tmp_path) == 1
    assert f"Cannot create {tmp_path}/etc: File exists." in capsys.readouterr().err
