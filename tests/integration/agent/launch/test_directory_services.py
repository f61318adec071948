"""An account that a directory service knows, while that is away: its host can't tell, which is no "there is none"."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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
