"""The agent's command line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from holdfast import __version__
from holdfast._base import extras
from holdfast._daemon import log_file
from holdfast._security import dns
from holdfast.errors import ConfigError, HoldfastError, MissingPackages

COMMANDS = ("join", "doctor", "status", "upgrade")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the agent until SIGTERM or SIGINT. Returns 0 then, 2 for a wrong command line or
    configuration, 1 when its state is another agent's or can't be kept, or its packages aren't installed.
    """
    parser = argparse.ArgumentParser(
        prog="holdfast-agent",
        description="Launches, watches and stops the workers of one host.",
        epilog="Commands in place of options: join makes this machine a host of a cluster, doctor checks the host, "
        "status shows its agent's state, upgrade waits and compares around a restart. Each has --help.",
    )
    parser.add_argument(
        "--config", type=Path, required=True, metavar="FILE", help="the agent's settings (agent.toml)"
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
        os.execv(sys.executable, [sys.executable, "-m", "holdfast._security.enrolment", *words])
    if options is None:
        from holdfast_agent.shell.main import cli

        return cli.main(words)
    # With it gRPC stops and starts its threads around each fork of ours, and aborts where no thread can be started.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    from holdfast_agent.shell import config
    from holdfast_agent.shell.main import daemon  # gRPC is slow to import, --help is not

    try:
        return daemon.run(config.load(options.config))
    except HoldfastError as error:
        log_file.complain(f"holdfast-agent: {error}")
        return 2 if isinstance(error, ConfigError) else 1


if __name__ == "__main__":
    sys.exit(main())
