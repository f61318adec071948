"""One browser and one cluster for each module: to start them is most of what a test of the page takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.cli_cluster import DevCluster
from tests.support import machine_parts


@pytest.fixture(scope="module")
def site(two_hosts: DevCluster) -> Iterator[DevCluster]:
    """Two hosts with two GPUs each. The browser has the thread's event loop, so they are made idle after it."""
    yield two_hosts
    two_hosts.show_logs()
    two_hosts.make_idle()


@pytest.fixture(scope="module")
def browser(site: DevCluster) -> Iterator[Any]:
    """Ends before the site does: while it lives, its event loop is the thread's."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tools:
        found = tools.chromium.launch(
            executable_path=machine_parts.browser(), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield found
        found.close()
