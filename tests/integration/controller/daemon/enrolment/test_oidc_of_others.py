"""Sign-in by an OpenID Connect provider that is not ours: oidc-provider, run by Node, with a person at the browser."""

from __future__ import annotations

import asyncio
import os
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest
import trustme
from tests.integration.controller.cluster import WITHIN_S, Certificates, Controller
from tests.support.identity_provider import CLIENT
from tests.support.machine_parts import OIDC
from tests.support.stubs import access_stub

from holdfast.client import Client
from holdfast.settings import load
from holdfast.v1 import access_pb2
from holdfast_controller.shell.base.config import ControllerConfig
from holdfast_controller.shell.base.oidc_config import OidcConfig, OidcGrantConfig

pytestmark = [pytest.mark.anyio, pytest.mark.require("oidc")]


@dataclass
class Provider:
    issuer: str
    ca: Path

    def approve(self, link: str, name: str) -> str:
        """Do in a browser what the line on the terminal says, as somebody. The last page."""
        context = ssl.create_default_context(cafile=str(self.ca))
        with httpx.Client(verify=context, follow_redirects=True, timeout=WITHIN_S) as browser:
            page = browser.get(link)
            for _ in range(8):
                form = re.search(r'<form[^>]*action="([^"]+)"[^>]*>(.*?)</form>', page.text, re.S)
                if form is None:
                    break
                fields = dict(re.findall(r'name="([^"]+)"[^>]*?value="([^"]*)"', form[2]))
                if 'name="login"' in form[2]:
                    fields |= {"login": name, "password": "x"}
                page = browser.post(str(page.url.join(form[1])), data=fields)
            return page.text


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[Provider]:
    authority = trustme.CA()
    own = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    own.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    own.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    process = subprocess.Popen(
        ["node", str(OIDC / "provider.mjs"), str(tmp_path / "cert.pem"), str(tmp_path / "key.pem"), CLIENT],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    yield Provider(next(line.strip() for line in process.stdout if line.startswith("https:")), tmp_path / "ca.pem")
    process.kill()
    process.communicate()


@pytest.fixture
def config(config: ControllerConfig, certificates: Certificates, provider: Provider) -> ControllerConfig:
    oidc = OidcConfig(provider.issuer, CLIENT, provider.ca, grants=(OidcGrantConfig("ml"),), lifetime=3600)
    return replace(
        config,
        admins=("root", "bob"),
        ca_directory=certificates.directory,
        enrolment_listen="127.0.0.1:0",
        oidc=oidc,
    )


async def signs_in(controller: Controller, provider: Provider, home: Path, name: str) -> tuple[int, str]:
    """Type the line of the page, and follow what it says in a browser."""
    people = access_stub(controller.channel("user/bob"))
    line = await people.CreateToken(access_pb2.CreateTokenRequest(host=""), timeout=WITHIN_S)
    kept = {key: value for key, value in os.environ.items() if key != "HOLDFAST_CONFIG"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "holdfast", "login", line.enrolment, "--oidc", "--ca-hash", line.ca_hash),
        env=kept | {"HOME": str(home), "XDG_CONFIG_HOME": str(home), "XDG_STATE_HOME": str(home)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    said = ""
    while (found := re.search(r"open (https\S+) and enter the code (\S+)", said)) is None:
        more = (await asyncio.wait_for(process.stdout.readline(), WITHIN_S)).decode()
        assert more, said
        said += more
    last = await asyncio.to_thread(provider.approve, f"{found[1]}?user_code={found[2]}", name)
    assert "Sign-in Success" in last, last
    out, _ = await asyncio.wait_for(process.communicate(), WITHIN_S)
    return process.returncode or 0, said + out.decode()


async def test_a_user_of_a_provider_that_is_not_ours_signs_in(
    controller: Controller, provider: Provider, tmp_path: Path
) -> None:
    status, said = await signs_in(controller, provider, tmp_path / "ann", "ann")
    assert status == 0 and "you are ann of the cluster test" in said
    async with Client(load(tmp_path / "ann/holdfast/client.toml")) as ann:
        me = await ann.access.caller()
        assert [(grant.project, grant.role) for grant in me.user.grants] == [("*", access_pb2.ROLE_USER)]
    status, said = await signs_in(controller, provider, tmp_path / "eve", "eve")
    assert status != 0 and "eve is in no group that may use this cluster" in said
