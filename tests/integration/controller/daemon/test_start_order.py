"""A controller that starts with a page to serve: hosts and clients don't wait for it."""

from __future__ import annotations

import asyncio
import dataclasses
import threading

import pytest
from tests.integration.controller.cluster import Certificates, Controller, job
from tests.support.rank_gang import free_port
from tests.support.stubs import job_stub, web_stub

from holdfast.v1 import job_pb2, web_pb2
from holdfast_controller.shell.base.config import ControllerConfig, WebConfig
from holdfast_controller.shell.main import server
from holdfast_controller.shell.main.preload import preload

WITHIN_S = 60.0


async def test_a_job_is_committed_while_the_modules_of_the_page_are_still_being_loaded(
    config: ControllerConfig, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = threading.Event()

    def slow(settings: ControllerConfig) -> None:
        loaded.wait(WITHIN_S)
        preload(settings)

    monkeypatch.setattr(server, "preload", slow)
    port = free_port()
    config = dataclasses.replace(
        config, listen=f"127.0.0.1:{port}", http_port=0, web=WebConfig(listen="127.0.0.1:0")
    )
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[int] = loop.create_future()
    http: asyncio.Future[int] = loop.create_future()
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(server.serve(config, ready.set_result, http.set_result))
        controller = Controller(port, certificates)
        try:
            jobs = job_stub(controller.channel("user/ann"))
            asked = job_pb2.CreateJobRequest(request_id="r", job=job())
            answer = await jobs.CreateJob(asked, timeout=WITHIN_S, wait_for_ready=True)
            assert answer.job.id
            browsers = web_stub(controller.channel("user/ann"))
            login = browsers.CreateLogin(web_pb2.CreateLoginRequest(), timeout=WITHIN_S)
            await asyncio.sleep(0.2)
            assert not ready.done() and not http.done() and not login.done()
        finally:
            loaded.set()
        async with asyncio.timeout(WITHIN_S):
            assert await ready == port
            assert await http
            assert (await login).port, "who asks for the page waits for it"
        await controller.close()
        serving.cancel()
