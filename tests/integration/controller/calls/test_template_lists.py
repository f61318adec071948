"""Lists of templates, page by page."""

from __future__ import annotations

import pytest
from tests.integration.controller.calls.test_access import config, people
from tests.integration.controller.cluster import WITHIN_S, Controller, job
from tests.support.stubs import schedule_stub

from holdfast.v1 import access_pb2_grpc, schedule_pb2

__all__ = ["config", "people"]
pytestmark = pytest.mark.anyio


async def test_pages_hold_each_template_once_though_one_name_begins_another(
    controller: Controller, people: access_pb2_grpc.AccessServiceAsyncStub
) -> None:
    plans = schedule_stub(controller.channel("owen"))
    names = ["train", "train-2", "train0", "trains"]
    for name in names:
        request = schedule_pb2.CreateTemplateRequest(name=name, job=job(project="vision"))
        await plans.CreateTemplate(request, timeout=WITHIN_S)
    found, token = list[str](), ""
    while True:
        asked = schedule_pb2.ListTemplatesRequest(page_size=1, page_token=token)
        page = await plans.ListTemplates(asked, timeout=WITHIN_S)
        found += [each.name for each in page.templates]
        if not (token := page.next_page_token):
            break
    assert found == names
