"""``python -m holdfast_controller.shell.notify.apprise_sender``: one message to the service that a URL names.

Reads JSON from stdin: ``url``, ``title``, ``body``, ``type``. Exits with 0 once the service has taken it, else with
one of ``REASONS``. The URL comes through stdin and goes nowhere else: arguments can be read by everybody.
"""

from __future__ import annotations

import json
import sys

REASONS = {
    3: "the service could not be reached, or refused",
    4: "apprise does not know this kind of URL",
    5: "apprise is not installed",
}


def main() -> int:
    """Send it; the exit status."""
    asked = json.load(sys.stdin)
    try:
        import apprise
    except ImportError:
        return 5
    sender = apprise.Apprise()
    if not sender.add(asked["url"]):
        return 4
    return 0 if sender.notify(title=asked["title"], body=asked["body"], notify_type=asked["type"]) else 3


if __name__ == "__main__":
    sys.exit(main())
