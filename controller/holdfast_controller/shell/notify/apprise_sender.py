"""``python -m holdfast_controller.shell.notify.apprise_sender``: one message to the service that a URL names.

Reads JSON from stdin: ``url``, ``title``, ``body``, ``type``. Exits with 0 once the service has taken it, else with
one of ``REASONS``. The URL comes through stdin and goes nowhere else: arguments can be read by everybody.
"""

from __future__ import annotations

import json
import os
import sys

SYSTEM_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
)
"""Authorities that distributions trust: Debian's, Fedora's and RHEL's, SUSE's."""
REASONS = {
    3: "the service could not be reached, or refused",
    4: "apprise does not know this kind of URL",
    5: "apprise is not installed",
}


def main() -> int:
    """Send it; the exit status."""
    asked = json.load(sys.stdin)
    # Services reached over HTTP would otherwise trust the world's authorities alone, and no private CA.
    bundles = (os.environ.get("SSL_CERT_FILE", ""), *SYSTEM_BUNDLES)
    if bundle := next((path for path in bundles if path and os.path.isfile(path)), ""):
        os.environ.setdefault("REQUESTS_CA_BUNDLE", bundle)
    try:
        import apprise
    except ImportError:
        return 5
    sender = apprise.Apprise()
    if not sender.add(asked["url"]):
        return 4
    # Where it isn't said to be text, mail takes it for HTML: on one line, and with what it has of that in effect.
    told = sender.notify(title=asked["title"], body=asked["body"], notify_type=asked["type"], body_format="text")
    return 0 if told else 3


if __name__ == "__main__":
    sys.exit(main())
