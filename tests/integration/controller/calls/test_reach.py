"""A doctor on the way to a controller that is really there: what stands in between is told apart."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from tests.integration.controller.cluster import Certificates, Controller

from holdfast._base.identity import Identity, Kind
from holdfast._security import pki
from holdfast._security.tls import TlsFiles
from holdfast.doctor import client, looks
from holdfast.doctor.findings import Status
from holdfast.doctor.reach import ReachFacts, Step, check


async def reach(port: int, files: TlsFiles, host: str = "127.0.0.1") -> ReachFacts:
    return await anyio.to_thread.run_sync(looks.reach, f"{host}:{port}", files)


async def test_hosts_and_users_reach_their_controller_and_learn_its_time(
    controller: Controller, certificates: Certificates
) -> None:
    for who in ("host/host-0", "user/ann"):
        found = await reach(controller.port, certificates.files[who])
        assert found.failed is None, found.problem
        assert found.difference_s is not None
        assert abs(found.difference_s) <= found.uncertain_s + 0.1
        assert [finding.status for finding in check(found)][-1] is Status.OK


async def test_each_obstacle_has_a_step_of_its_own(
    controller: Controller, certificates: Certificates, tmp_path: Path
) -> None:
    ann = certificates.files["user/ann"]
    assert (await reach(controller.port, ann, "no-such-host.invalid")).failed is Step.NAME
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound, and nobody listens
        refused = await reach(closed.getsockname()[1], ann)
    assert (refused.failed, refused.problem) == (Step.TCP, "Connection refused")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        await anyio.to_thread.run_sync(_accept_and_close_soon, listener, abandon_on_cancel=True)
        mute = await reach(listener.getsockname()[1], ann)
    assert mute.failed is Step.TLS
    (tmp_path / "other").mkdir()
    pki.create_ca("test", tmp_path / "other")
    strange = replace(ann, ca=tmp_path / "other/ca.pem")
    assert (await reach(controller.port, strange)).failed is Step.TLS
    stranger = pki.issue(tmp_path / "other", Identity("test", Kind.USER, "eve"), tmp_path / "other", "eve")
    not_let_in = await reach(controller.port, replace(stranger, ca=ann.ca))
    assert not_let_in.failed in (Step.TLS, Step.CALL)


async def test_a_user_whom_nobody_has_added_is_told_so(controller: Controller, certificates: Certificates) -> None:
    address = f"127.0.0.1:{controller.port}"
    ann = await anyio.to_thread.run_sync(looks.caller, address, certificates.files["user/ann"])
    assert client.known(ann).saw == "ann: admin by the controller's settings"
    unknown = pki.issue(certificates.directory, Identity("test", Kind.USER, "zoe"), certificates.directory, "zoe")
    zoe = client.known(await anyio.to_thread.run_sync(looks.caller, address, unknown))
    assert zoe.status is Status.ERROR
    assert "no user zoe" in zoe.saw
    assert "holdfast user add zoe" in zoe.fix[0]


def _accept_and_close_soon(listener: socket.socket) -> None:
    """Whoever connects is dropped: what listens is no controller."""
    import threading

    def accept() -> None:
        connection, _ = listener.accept()
        connection.close()

    threading.Thread(target=accept, daemon=True).start()


@pytest.mark.parametrize("broken", ["key of another", "CA of another", "expired", "not PEM", "missing"])
def test_files_that_do_not_belong_together_are_found_without_a_controller(tmp_path: Path, broken: str) -> None:
    pki.create_ca("test", tmp_path)
    good = pki.issue(tmp_path, Identity("test", Kind.HOST, "h7"), tmp_path, "h7")
    other = tmp_path / "other"
    other.mkdir()
    pki.create_ca("test", other)
    elsewhere = pki.issue(other, Identity("test", Kind.HOST, "h7"), other, "h7")
    found = looks.certificates(good, renews=False, wanted="host/h7")
    assert (found.pairs, found.signed, found.problem) == ("", "", "")
    assert found.identity == "holdfast://test/host/h7"
    assert found.ca_ends_at > found.ends_at > found.now > found.begins_at
    match broken:
        case "key of another":
            found = looks.certificates(replace(good, key=elsewhere.key), renews=False)
            assert "is not the key of" in found.pairs
        case "CA of another":
            found = looks.certificates(replace(good, ca=elsewhere.ca), renews=False)
            assert "is not of the CA in" in found.signed
        case "expired":
            import datetime

            span = datetime.timedelta(seconds=-60)
            pki.issue(tmp_path, Identity("test", Kind.HOST, "h7"), tmp_path, "h7", lifetime=span)
            found = looks.certificates(good, renews=False)
            assert (found.pairs, found.signed) == ("", "")
            assert found.ends_at < found.now
        case "not PEM":
            good.cert.write_text("hello")
            assert "is no certificate" in looks.certificates(good, renews=False).problem
        case "missing":
            good.key.unlink()
            found = looks.certificates(good, renews=False)
            assert found.unreadable == ((str(good.key), "No such file or directory"),)
