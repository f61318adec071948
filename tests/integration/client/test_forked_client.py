"""A process that is forked while a client is open: gRPC would end it by SIGSEGV at its first call."""

from __future__ import annotations

import os

import grpc
import pytest
from tests.integration.client.fake_controller import FakeController

from holdfast._sdk.channels import open_channel
from holdfast.client import Client
from holdfast.errors import NotFound, WrongState

pytestmark = pytest.mark.anyio


def refused_in_a_fork() -> bool:
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    try:
        open_channel("127.0.0.1:1", "127.0.0.1:1", grpc.ssl_channel_credentials())
    except WrongState as error:
        os._exit(0 if "'spawn'" in str(error) else 2)
    finally:
        os._exit(1)


async def test_a_forked_process_is_told_instead(controller: FakeController) -> None:
    async with Client(controller.settings()) as client:
        with pytest.raises(NotFound):
            await client.get_job("none")
        assert refused_in_a_fork()
        with pytest.raises(NotFound):
            await client.get_job("none")
