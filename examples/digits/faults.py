"""Faults on order, so that a demo has something to recover from."""

from __future__ import annotations

import argparse
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass

HANGS = ("queue", "sleep", "spin", "stop")


@dataclass(frozen=True)
class Fault:
    """One rank's end, or its hang of a kind of HANGS, at one step. `rank` None: no fault."""

    rank: int | None
    step: int | None
    signal: int | None = None
    hang: str | None = None

    def loader_deadlock(self, rank: int) -> int | None:
        """The step whose batch this rank's loader never delivers, None where it is to do its work."""
        return self.step if self.hang == "queue" and rank == self.rank else None

    def strike(self, rank: int, step: int) -> None:
        """Does nothing but at the fault's own rank and step: there this process ends or hangs as by a real one."""
        if (rank, step) != (self.rank, self.step) or self.hang == "queue":
            return
        if self.hang is not None:
            print(f"rank={rank} step={step} fault: hangs ({self.hang})", flush=True)
            _HANGS[self.hang]()
            return
        if self.signal is not None:
            print(f"rank={rank} step={step} fault: signal {self.signal} to itself", flush=True)
            os.kill(os.getpid(), self.signal)
        raise RuntimeError(f"rank {rank} was told to crash at step {step}")


NO_FAULT = Fault(None, None)


def sleep_without_end() -> None:
    """Waits for something that never comes."""
    while True:
        time.sleep(3600)


def spin() -> None:
    """Burns a core without getting anywhere."""
    count = 0
    while True:
        count += 1


def stop() -> None:
    """Stops this process; who continues it finds it well."""
    os.kill(os.getpid(), signal.SIGSTOP)


_HANGS = {"sleep": sleep_without_end, "spin": spin, "stop": stop}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that order a fault."""
    group = parser.add_argument_group("faults, in the first generation only")
    group.add_argument("--crash-rank", type=int, metavar="R", help="this rank ends in a backward pass")
    group.add_argument("--crash-step", type=int, metavar="S", help="at this step, counted from 1")
    group.add_argument("--crash-signal", type=int, metavar="N", help="by this signal instead of an exception")
    group.add_argument("--hang-rank", type=int, metavar="R", help="this rank hangs, and so all others wait for it")
    group.add_argument("--hang-step", type=int, metavar="S", help="at this step, counted from 1")
    group.add_argument(
        "--hang-kind",
        choices=HANGS,
        default="queue",
        help="queue: its data loader deadlocks; sleep: it sleeps without end; spin: it burns a core without end;"
        " stop: SIGSTOP to itself (%(default)s)",
    )


def ordered(parser: argparse.ArgumentParser, options: argparse.Namespace, environ: Mapping[str, str]) -> Fault:
    """The fault the options ask for, none once the job was restarted. Ends with usage (2) when they don't agree."""
    restarted = (
        int(environ.get("HOLDFAST_RESTART_COUNT") or 0) > 0 or int(environ.get("HOLDFAST_GENERATION") or 1) > 1
    )
    if (options.hang_rank is None) != (options.hang_step is None):
        parser.error("a hang needs both --hang-rank and --hang-step")
    if options.crash_rank is None and options.crash_step is None and options.crash_signal is None:
        hang = Fault(options.hang_rank, options.hang_step, hang=options.hang_kind)
        return NO_FAULT if restarted or options.hang_rank is None else hang
    if options.hang_rank is not None:
        parser.error("a rank can crash or hang, not both")
    if options.crash_rank is None or options.crash_step is None:
        parser.error("a crash needs both --crash-rank and --crash-step")
    if options.crash_signal is not None and options.crash_signal not in set(signal.Signals):
        parser.error(f"--crash-signal: {options.crash_signal} is not a signal")
    return NO_FAULT if restarted else Fault(options.crash_rank, options.crash_step, options.crash_signal)
