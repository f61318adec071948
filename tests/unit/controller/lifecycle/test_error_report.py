"""Error reports, and who is to blame."""

from __future__ import annotations

import pytest
from tests.unit.controller.examples import job

from holdfast._session.reports import Exit, ExitReason
from holdfast_controller.core.lifecycle.error_report import error_of, hint_on_path, never_works
from holdfast_controller.core.lifecycle.exit_blame import Blame, blame
from holdfast_controller.core.lifecycle.root_cause import first_failure
from holdfast_controller.core.model.exits import exception
from holdfast_controller.core.model.gang import Gang, Pool, Task
from holdfast_controller.core.model.job import Job

R = ExitReason
HEAD = "Traceback (most recent call last):"


def made() -> Job:
    return job(Gang((Pool(2, Task(("x",)), processes=1),)))


def ended(
    reason: ExitReason, code: int | None = None, signal: int | None = None, message: str = "", raised: str = ""
) -> Exit:
    return Exit(1, 1, 1, reason, code, signal, message=message, raised=raised)


def said(*lines: str, reason: ExitReason = R.NONZERO_EXIT, code: int | None = 1, signal: int | None = None) -> Exit:
    return Exit(1, 1, 1, reason, code, signal, stderr_tail=lines)


@pytest.mark.parametrize(
    ("exit_", "sentence", "code", "shell"),
    [
        (ended(R.NONZERO_EXIT, 7), "exited with a non-zero status of 7. Termination reason: Error.", 3, 7),
        (
            ended(R.SIGNALED, None, 11),
            "exited with a non-zero status of 139. Termination reason: signal 11.",
            3,
            139,
        ),
        (ended(R.STOPPED, 1), "exited with a non-zero status of 1. Termination reason: Error.", 3, 1),
        (ended(R.OUT_OF_MEMORY, None, 9), "ran out of memory and exited with a non-zero status of 137.", 3, 137),
        (ended(R.CANNOT_START, message="h1: no such file"), "could not be started: h1: no such file.", 3, None),
        (ended(R.LOST_SHIM_DIED, message="shim gone"), "was lost: shim gone.", 13, None),
        (ended(R.LOST_REBOOT), "was lost: LOST_REBOOT.", 13, None),
    ],
)
def test_error_says_which_replica_and_how(exit_: Exit, sentence: str, code: int, shell: int | None) -> None:
    error = error_of(made().gang.members[1], exit_)
    assert error.message == f"The replica workerpool0-1 {sentence}"
    assert (error.code, error.exit_code, error.rank) == (code, shell, 1)


def test_error_counts_the_restarts_and_shows_the_last_lines() -> None:
    exit_ = Exit(1, 1, 1, R.NONZERO_EXIT, 1, stderr_tail=(HEAD, "ValueError: no"))
    assert error_of(made().gang.members[1], exit_, restarts=1).details == (
        "workerpool0-1 had been restarted in place once.",
        HEAD,
        "ValueError: no",
    )


def test_exception_goes_first_where_more_was_printed_after_it() -> None:
    exit_ = said(HEAD, "ValueError: no", "wandb: waiting for the upload")
    assert error_of(made().gang.members[1], exit_).details[0] == "ValueError: no"


def test_exception_that_was_recorded_for_the_launcher_counts_as_if_it_was_printed() -> None:
    found = ended(R.NONZERO_EXIT, 1, raised="ValueError: bad batch")
    assert error_of(made().gang.members[1], found).details == ("ValueError: bad batch",)
    stopped = ended(R.STOPPED, 1, raised="KeyError: 'x'")
    assert blame(stopped) is Blame.CAUSE
    lost = ended(R.NONZERO_EXIT, 1, raised="RuntimeError: Connection closed by peer")
    assert blame(lost) is Blame.CONSEQUENCE


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ((HEAD, '  File "x.py", line 1, in f', "ValueError: bad"), "ValueError: bad"),
        (
            ("[rank3]: torch.distributed.DistBackendError: NCCL error", ""),
            "torch.distributed.DistBackendError: NCCL error",
        ),
        (("KeyboardInterrupt",), "KeyboardInterrupt"),
        (("error: no such file", "Epoch: 3"), ""),
        ((), ""),
    ],
)
def test_exception_is_found_in_the_last_lines(lines: tuple[str, ...], found: str) -> None:
    assert exception(lines) == found


@pytest.mark.parametrize(
    ("exit_", "what"),
    [
        (said(HEAD, "ValueError: bad batch"), Blame.CAUSE),
        (said("segfault soon"), Blame.CAUSE),
        (said(), Blame.CAUSE),
        (said(HEAD, "ConnectionError: lost rank 3"), Blame.CONSEQUENCE),
        (said(HEAD, "ConnectionResetError: [Errno 104] Connection reset by peer"), Blame.CONSEQUENCE),
        (
            said(HEAD, "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1"),
            Blame.CONSEQUENCE,
        ),
        (
            said(
                "[rank0]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2251",
                "[rank0]: ncclRemoteError: A call failed possibly due to a remote process exiting",
            ),
            Blame.CONSEQUENCE,
        ),
        (
            said("terminate called", "Connection closed by peer", reason=R.SIGNALED, code=None, signal=6),
            Blame.CONSEQUENCE,
        ),
        (said("Connection closed by peer", reason=R.SIGNALED, code=None, signal=11), Blame.CAUSE),
        (said(HEAD, "ValueError: bad batch", reason=R.STOPPED), Blame.CAUSE),
        (said(HEAD, "ConnectionError: lost rank 3", reason=R.STOPPED), Blame.NONE),
        (said(HEAD, "KeyboardInterrupt", reason=R.STOPPED, code=130), Blame.NONE),
        (said("stopping as told", reason=R.STOPPED), Blame.NONE),
        (said(reason=R.STOPPED, code=None, signal=15), Blame.NONE),
        (said(HEAD, "ValueError: x", reason=R.HANG_KILLED), Blame.NONE),
        (said(reason=R.COMPLETED, code=0), Blame.NONE),
    ],
)
def test_end_tells_whether_it_was_a_cause(exit_: Exit, what: Blame) -> None:
    assert blame(exit_) is what


def test_first_failure_is_by_time_and_leaves_out_what_we_stopped() -> None:
    found = made()
    found.exits[1] = {
        0: Exit(1, 1, 0, R.STOPPED, signal=15, end_time=1.0),
        1: Exit(1, 1, 1, R.NONZERO_EXIT, 1, end_time=2.0),
    }
    assert first_failure(found, 1) == (found.gang.members[1], found.exits[1][1])
    found.exits[1] = {**found.exits[1], 0: Exit(1, 1, 0, R.SIGNALED, signal=9, end_time=1.5)}
    assert first_failure(found, 1) == (found.gang.members[0], found.exits[1][0])
    assert first_failure(found, 2) is None


def test_consequence_is_named_only_where_there_is_nothing_else() -> None:
    found = made()
    lost = (HEAD, "ConnectionError: lost rank 1")
    found.exits[1] = {0: Exit(1, 1, 0, R.NONZERO_EXIT, 1, end_time=1.0, stderr_tail=lost)}
    assert first_failure(found, 1) == (found.gang.members[0], found.exits[1][0])
    found.exits[1][1] = Exit(1, 1, 1, R.NONZERO_EXIT, 1, end_time=2.0, stderr_tail=(HEAD, "KeyError: 'x'"))
    assert first_failure(found, 1) == (found.gang.members[1], found.exits[1][1])


@pytest.mark.parametrize(
    ("command", "args", "code", "hinted"),
    [
        (("bash", "-lc"), ("torchrun train.py",), 127, True),
        (("/bin/sh",), ("-l", "-c", "torchrun train.py"), 127, True),
        (("zsh", "--login", "-c", "torchrun train.py"), (), 127, True),
        (("bash", "-c", "tool -l"), (), 127, False),
        (("bash", "--norc", "-c", "torchrun train.py"), (), 127, False),
        (("bash", "-lc", "exit 126"), (), 126, False),
        (("./torch.sh", "-l"), (), 127, False),
    ],
)
def test_login_shell_that_finds_no_command_is_told_that_it_has_dropped_the_path(
    command: tuple[str, ...], args: tuple[str, ...], code: int, hinted: bool
) -> None:
    hint = hint_on_path(Task(command, args), ended(R.NONZERO_EXIT, code))
    assert bool(hint) == hinted
    final = never_works(error_of(made().gang.members[1], ended(R.NONZERO_EXIT, code)), again=False, hint=hint)
    assert final.why_final.endswith("without -l." if hinted else "not tried again.")
