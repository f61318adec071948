"""An account that a directory service knows, while that is away: its host can't tell, which is no "there is none"."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from tests.integration.agent.controller import assignment
from tests.integration.agent.launch.test_host_checks import TRUE

from holdfast._session import codec
from holdfast_agent.core.launch.environment import HostFacts, WorkerUser
from holdfast_agent.core.worker.actions import Prepare
from holdfast_agent.core.worker.events import PreparationFailed
from holdfast_agent.shell.prepare import prepare
from holdfast_agent.shell.users.accounts import NoAccount

SERVICE = """
#include <errno.h>
#include <nss.h>
#include <pwd.h>

enum nss_status _nss_hfaway_getpwnam_r(const char *name, struct passwd *entry, char *text, size_t size, int *error) {
    *error = ECONNREFUSED;
    return NSS_STATUS_UNAVAIL;
}
"""
LOOK_UP = """
from holdfast_agent.core.launch.accounts import AccountRules
from holdfast_agent.core.launch.environment import WorkerUser
from holdfast_agent.shell.users.accounts import Accounts, NoAccount

try:
    Accounts(WorkerUser("root", "/root", "/bin/sh"), AccountRules(0)).look_up("ada-of-the-directory")
except NoAccount as problem:
    print(problem.host_fault, problem)
"""


@pytest.mark.require("cc", "root", "mount")
@pytest.mark.parametrize(
    ("services", "said"),
    [
        ("files", "False there is no account ada-of-the-directory on this host"),
        (
            "files hfaway",
            "True whether there is an account ada-of-the-directory can't be found out: Connection refused;"
            " is a service of nsswitch.conf away?",
        ),
    ],
)
def test_a_service_that_is_away_is_the_hosts_fault(tmp_path: Path, services: str, said: str) -> None:
    source, settings = tmp_path / "service.c", tmp_path / "nsswitch.conf"
    source.write_text(SERVICE)
    settings.write_text(f"passwd: {services}\n")
    built = ["cc", "-shared", "-fPIC", "-o", str(tmp_path / "libnss_hfaway.so.2"), str(source)]
    subprocess.run(built, check=True, timeout=60)
    look = f'mount --bind {settings} /etc/nsswitch.conf && LD_LIBRARY_PATH={tmp_path} exec "$0" -c "$1"'
    command = ["unshare", "-m", "sh", "-c", look, sys.executable, LOOK_UP]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip() == said


class Directory:
    """Accounts of a service that gives no answer to the first ``away`` look-ups, and says no to the next."""

    def __init__(self, away: float) -> None:
        self.away = away

    def look_up(self, name: str) -> WorkerUser:
        self.away -= 1
        if self.away < 0:
            raise NoAccount(f"there is no account {name} on this host")
        raise NoAccount("it can't be found out", host_fault=True)


@pytest.mark.parametrize(
    ("away", "fault", "said"),
    [(2, False, "host-0: there is no account ada on this host."), (10**9, True, "host-0: it can't be found out.")],
)
async def test_a_service_is_waited_for_before_its_host_is_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, away: int, fault: bool, said: str
) -> None:
    monkeypatch.setattr(prepare, "LOOK_UP_AGAIN_S", 0.01)
    monkeypatch.setattr(prepare, "BOUND_S", 15.0 if not fault else 0.2)
    doing: list[str] = []
    unused: dict[str, Any] = dict.fromkeys(
        ("files", "shims", "ports", "fitness", "hooks", "containers", "archive", "code")
    )
    preparation = prepare.Preparation(
        **unused,
        accounts=cast(Any, Directory(away)),
        root_allowed=True,
        say=lambda key, generation, text: doing.append(text),
    )
    facts = HostFacts("host-0", str(tmp_path), str(tmp_path), WorkerUser("root", "/", "/bin/sh"), 1)
    message = assignment("PREPARE", TRUE, run_as="ada")
    found = await preparation.run(Prepare(codec.assignment_from_proto(message)), facts)
    assert isinstance(found, PreparationFailed)
    assert (found.host_fault, found.message) == (fault, said)
    assert set(doing) == {"it can't be found out"}
