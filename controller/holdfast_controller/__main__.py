"""``holdfast-controller --config FILE``."""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib
import os
import signal
import sys
from pathlib import Path

from holdfast._base import config, extras, umask
from holdfast._base.version import __version__
from holdfast._daemon import limits, log, log_file
from holdfast._daemon.instance_lock import only_one
from holdfast.errors import HoldfastError, MissingPackages

COMMANDS = {
    "init": "holdfast_controller.shell.main.init",
    "admin": "holdfast_controller.shell.main.admin",
    "backup": "holdfast_controller.shell.backup.backup",
    "restore": "holdfast_controller.shell.backup.restore",
    "join": "holdfast_controller.shell.backup.join",
    "accept-loss": "holdfast_controller.shell.backup.accept_loss",
    "move-store": "holdfast_controller.shell.backup.move_store",
    "notify": "holdfast_controller.shell.main.notify_cli",
    "reload": "holdfast_controller.shell.main.reload_cli",
    "ca": "holdfast_controller.shell.main.rotation_cli",
    "rotate-secrets-key": "holdfast_controller.shell.secrets.secret_keys",
}
"""Modules with a ``main`` of their own; the daemon needs none of them."""


def main() -> int:
    """Run the controller; 0 after a stop that was asked for, 1 when it can't run, 2 for wrong settings.

    78 is for what an admin has to act on first.
    """
    umask.close_to_others()
    log_file.open_closed_streams()
    parser = argparse.ArgumentParser(
        prog="holdfast-controller",
        description="Schedules jobs over the hosts.",
        epilog="Other commands, each with --help: " + ", ".join(f"holdfast-controller {name}" for name in COMMANDS),
    )
    usual = Path("/etc/holdfast/controller.toml")
    parser.add_argument("--config", type=Path, metavar="FILE", default=usual, help=f"[default: {usual}]")
    parser.add_argument(
        "--check", action="store_true", help="read the settings and all that they name, say what is wrong, and end"
    )
    parser.add_argument("--version", action="version", version=f"holdfast-controller {__version__}")
    command = COMMANDS.get(sys.argv[1]) if len(sys.argv) > 1 else None
    options = parser.parse_args() if command is None else argparse.Namespace()
    try:
        extras.require("holdfast-controller", "controller")
    except MissingPackages as error:
        log_file.complain(str(error))
        return 1
    if command is not None:
        return int(importlib.import_module(command).main(sys.argv[2:]))
    if options.check:
        return int(importlib.import_module("holdfast_controller.shell.main.check").main(options.config))
    return _run(options.config)


def _run(settings_file: Path) -> int:
    # With it gRPC prepares each fork of ours, skips that while it is called, and what is forked then may crash.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    # It asks for settings to be read again, and must not end a daemon that can't do so yet.
    signal.signal(signal.SIGHUP, lambda *_: None)
    status = 0
    # All that is loaded stays, modules as well as the store: nothing is gained by looking for cycles in it meanwhile.
    gc.disable()
    try:
        limits.check("holdfast-controller")
        # Only now: they import what an installation of the client alone lacks, and what needs threads.
        from holdfast_controller.shell.base.config import ControllerConfig
        from holdfast_controller.shell.main.cycles import Cycles
        from holdfast_controller.shell.main.server import serve

        cycles = Cycles()

        def ready(_: int) -> None:
            log_file.ready()
            cycles.begin()

        settings = config.load(ControllerConfig, settings_file)
        log.configure(settings.log_level, log_file.handler(settings.log_file, settings.log_file_mb))
        with (
            limits.named("holdfast-controller"),
            only_one(settings.state_dir, "controller"),
            asyncio.Runner(loop_factory=_loop_factory()) as runner,
        ):
            runner.run(serve(settings, on_ready=ready, file=settings_file, on_stand_by=cycles.begin))
    except* HoldfastError as group:
        for error in group.exceptions:
            log_file.complain(f"holdfast-controller: {error}")
            status = max(status, getattr(error, "exit_status", 1))
    return status


def _loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed: 15 to 30 % less time for each call."""
    try:
        import uvloop
    except ImportError:
        return None
    loop: type[asyncio.AbstractEventLoop] = uvloop.Loop
    return loop


if __name__ == "__main__":
    sys.exit(main())
