"""The agent's command line."""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from holdfast import __version__
from holdfast._base import extras, umask
from holdfast._daemon import limits, log_file
from holdfast._security import dns
from holdfast.errors import HoldfastError, MissingPackages

THREADS_END_S = 2.0
COMMANDS = ("join", "doctor", "status", "upgrade")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the agent until SIGTERM or SIGINT. Returns 0 then, 2 for a wrong command line or
    configuration, 1 when its state is another agent's or can't be kept, or its packages aren't installed.
    """
    umask.close_to_others()
    log_file.open_closed_streams()
    parser = argparse.ArgumentParser(
        prog="holdfast-agent",
        description="Launches, watches and stops the workers of one host.",
        epilog="Commands in place of options: join makes this machine a host of a cluster, doctor checks the host, "
        "status shows its agent's state, upgrade waits and compares around a restart. Each has --help.",
    )
    parser.add_argument(
        "--config", type=Path, required=True, metavar="FILE", help="the agent's settings (agent.toml)"
    )
    parser.add_argument(
        "--check", action="store_true", help="read the settings and all that they name, say what is wrong, and end"
    )
    parser.add_argument("--version", action="version", version=f"holdfast-agent {__version__}")
    dns.as_the_machine_does()
    words = sys.argv[1:] if argv is None else list(argv)
    options = None if words[:1] and words[0] in COMMANDS else parser.parse_args(words)
    try:
        extras.require("holdfast-agent", "agent")
    except MissingPackages as error:
        log_file.complain(str(error))
        return 1
    if words[:1] == ["join"]:
        # In place of this process: an agent doesn't import what makes keys.
        os.execv(sys.executable, [sys.executable, "-P", "-m", "holdfast._security.enrolment", *words])
    if options is None:
        from holdfast_agent.shell.main import cli

        return cli.main(words)
    # With it gRPC stops and starts its threads around each fork of ours, and aborts where no thread can be started.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    if options.check:
        from holdfast_agent.shell.main import check

        return check.main(options.config)
    # It asks for settings to be read again, and must not end a daemon that can't do so yet.
    signal.signal(signal.SIGHUP, lambda *_: None)
    try:
        limits.check("holdfast-agent")
        gc.disable()  # modules stay: to look for cycles among them takes a tenth of their import
        from holdfast_agent.shell import config
        from holdfast_agent.shell.main import daemon  # gRPC is slow to import, --help is not

        gc.freeze()
        gc.enable()
        with limits.named("holdfast-agent"):
            return _left(daemon.run(config.load(options.config), options.config))
    except HoldfastError as error:
        log_file.complain(f"holdfast-agent: {error}")
        return _left(getattr(error, "exit_status", 1))


def _left(code: int) -> int:
    """The exit code; ends the process at once where a thread hangs in the kernel, since Python would wait for it."""
    until = time.monotonic() + THREADS_END_S
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join(max(0.0, until - time.monotonic()))
    if not any(thread.is_alive() and not thread.daemon for thread in threading.enumerate()[1:]):
        return code
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
