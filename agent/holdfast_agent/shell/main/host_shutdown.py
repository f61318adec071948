"""Whether the host goes down. systemd stops the agent then as it does for a restart, and only systemd can tell."""

from __future__ import annotations

import subprocess

PATIENCE_S = 5.0


def is_under_way() -> bool:
    """Whether systemd is about to stop everything. False where it doesn't say: then workers are left to it."""
    try:
        done = subprocess.run(
            ["systemctl", "is-system-running"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,  # anything but "running" is an exit code of its own
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.stdout.strip() == "stopping"
