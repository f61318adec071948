"""Every end of a rank comes out as what it was."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.integration.shim.conftest import wait_until

from holdfast._session.reports import Exit, ExitReason
from holdfast_agent.shell.shims.shim_files import Empty, Forking, Intent, Started

Shim = Any


def test_exit_0_is_completed_and_the_journal_holds_the_whole_story(shim: Shim) -> None:
    began = time.time()
    shim.launch(1, shim.sh("exit 0"))
    started, exited, empty = shim.until("empty")
    assert exited == {
        "ev": "exited",
        "generation": 1,
        "rank": 0,
        "status": 0,
        "end_time": exited["end_time"],
        "reason": "COMPLETED",
        "message": "exited with code 0",
        "raised": "",
        "errno": 0,
        "stderr_tail": [],
    }
    assert began <= exited["end_time"] <= time.time()
    assert empty == {"ev": "empty", "generation": 1}
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert shim.journal() == [
        Intent(1, (0,), boot_id),
        Forking(),
        Started(0, started["pid"], started["start_ticks"]),
        Exit(0, 1, 0, ExitReason.COMPLETED, 0, message="exited with code 0", end_time=exited["end_time"]),
        Empty(),
    ]


def test_exit_7_is_a_nonzero_exit_with_its_last_lines(shim: Shim) -> None:
    exited = shim.run("/bin/sh", "-c", "echo one >&2; echo two >&2; exit 7")
    assert exited["status"] == 7 << 8
    assert exited["reason"] == "NONZERO_EXIT"
    assert exited["message"] == "exited with code 7"
    assert exited["stderr_tail"] == ["one", "two"]


RECORD = '{"message": {"message": "ValueError: bad batch\\nmore", "extraInfo": {"timestamp": "1"}}}'


@pytest.mark.parametrize(
    ("end", "how"), [("exit 3", "exited with code 3"), ("kill -9 $$", "killed by signal 9 (SIGKILL)")]
)
@pytest.mark.parametrize(
    ("written", "raised"),
    [
        (RECORD, "ValueError: bad batch"),
        ('{"message": "KeyError: 3"}', "KeyError: 3"),
        ("[" * 100_000, ""),
        ("no json", ""),
        ("{}", ""),
        ('{"message": {"message": "a\\u001b[31mb"}}', "a[31mb"),
    ],
)
def test_exception_that_was_recorded_for_the_launcher_is_recorded_once(
    shim: Shim, tmp_path: Path, written: str, raised: str, end: str, how: str
) -> None:
    file = tmp_path / "error.json"
    env = {"PATH": os.environ["PATH"], "TORCHELASTIC_ERROR_FILE": str(file), "WRITTEN": written[:100_000]}
    script = 'printf %s "$WRITTEN" > "$TORCHELASTIC_ERROR_FILE"; '
    shim.launch(1, shim.rank("/bin/sh", "-c", script + end, env=env))
    exited = shim.until("exited")[-1]
    assert exited["raised"] == raised
    assert exited["message"] == (f"{how}; it raised {raised}" if raised else how)


@pytest.mark.parametrize("obstacle", ["fifo", "link", "second name", "directory"])
def test_error_file_that_is_no_file_says_nothing_and_blocks_nobody(
    shim: Shim, tmp_path: Path, obstacle: str
) -> None:
    file, secret = tmp_path / "error.json", tmp_path / "secret.json"
    secret.write_text(RECORD)
    makes = {"fifo": f"mkfifo {file}", "link": f"ln -s {secret} {file}", "second name": f"ln {secret} {file}"}
    makes |= {"directory": f"mkdir {file}"}
    env = {"PATH": os.environ["PATH"], "TORCHELASTIC_ERROR_FILE": str(file)}
    shim.launch(1, shim.rank("/bin/sh", "-c", f"{makes[obstacle]}; exit 3", env=env))
    exited = shim.until("exited")[-1]
    assert (exited["message"], exited["raised"]) == ("exited with code 3", "")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGPIPE, signal.SIGSEGV])
def test_signal_is_named(shim: Shim, number: signal.Signals) -> None:
    exited = shim.run("/bin/sh", "-c", f"ulimit -c 0; kill -{int(number)} $$")
    assert os.WTERMSIG(exited["status"]) == number and not os.WCOREDUMP(exited["status"])
    assert exited["reason"] == "SIGNALED"
    assert exited["message"] == f"killed by signal {int(number)} ({number.name})"


def test_every_status_and_every_signal_is_the_kernels(shim: Shim) -> None:
    asked = [f"exit {code}" for code in range(256)]
    # 32 and 33 are the C library's own; what is stopped goes on.
    fatal = sorted(set(range(1, 65)) - {17, 18, 19, 20, 21, 22, 23, 28, 32, 33})
    asked += [f"ulimit -c 0; kill -{number} $$" for number in fatal]
    shim.launch(1, *[shim.sh(text, rank=rank) for rank, text in enumerate(asked)])
    ends = {m["rank"]: (m["status"], m["reason"]) for m in shim.until("empty") if m["ev"] == "exited"}
    exited = {code: (code << 8, "NONZERO_EXIT" if code else "COMPLETED") for code in range(256)}
    assert ends == exited | {256 + at: (number, "SIGNALED") for at, number in enumerate(fatal)}


def test_core_dump_is_flagged_where_the_job_asked_for_cores(shim: Shim) -> None:
    pattern = Path("/proc/sys/kernel/core_pattern").read_text()
    if pattern.startswith(("|", "/")) or resource.getrlimit(resource.RLIMIT_CORE)[1] == 0:
        pytest.skip(f"cores go elsewhere on this machine: {pattern.strip()}")
    exited = shim.run("/bin/sh", "-c", "kill -SEGV $$", core_bytes=-1)
    assert os.WCOREDUMP(exited["status"])
    assert exited["message"] == "killed by signal 11 (SIGSEGV), core dumped"


def test_no_core_is_dumped_unless_asked(shim: Shim) -> None:
    assert shim.run("/bin/sh", "-c", "kill -SEGV $$")["message"] == "killed by signal 11 (SIGSEGV)"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files that can't be run, each in its own way."""
    for name, mode, text in [
        ("closed", 0o644, "#!/bin/sh\n"),
        ("orphan", 0o755, "#!/no/such/python -u\n"),
        ("bare", 0o755, "echo what is this\n"),
        ("garbage", 0o755, "\x7fELF\0"),
        ("windows", 0o755, "#!/bin/sh\r\ntrue\r\n"),
        ("marked", 0o755, "\ufeff#!/bin/sh\n"),
        ("empty", 0o755, ""),
    ]:
        (tmp_path / name).write_text(text, newline="")
        (tmp_path / name).chmod(mode)
    return tmp_path


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("python3.99", "python3.99: no such file on PATH"),
        ("/no/such/program", "/no/such/program: no such file"),
        ("{folder}/closed", "{folder}/closed: permission denied"),
        ("{folder}/orphan", "{folder}/orphan: its interpreter /no/such/python does not exist"),
        ("{folder}/garbage", "{folder}/garbage: exec format error (it is no program for this machine)"),
        (
            "{folder}/windows",
            "{folder}/windows: its lines end as on Windows, so its interpreter is /bin/sh with a carriage return",
        ),
        ("{folder}/bare", "{folder}/bare: exec format error (it has no #! line: write one, such as #!/bin/bash)"),
        (
            "{folder}/marked",
            "{folder}/marked: exec format error (it begins with a byte order mark, so it has no #! line)",
        ),
        ("{folder}/empty", "{folder}/empty: exec format error (it is empty)"),
        ("{folder}", "{folder}: permission denied"),
    ],
)
def test_program_that_cannot_start_is_told_in_words(shim: Shim, folder: Path, command: str, message: str) -> None:
    shim.launch(1, shim.rank(command.format(folder=folder)))
    _, exited, _ = shim.until("empty")
    assert exited["status"] is None
    assert exited["reason"] == "CANNOT_START"
    assert exited["message"] == message.format(folder=folder)
    assert exited["stderr_tail"] == []


def test_path_of_the_ranks_own_environment_decides(shim: Shim, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "train"
    program.write_text("#!/bin/sh\nexit 5\n")
    program.chmod(0o755)
    shim.launch(1, shim.rank("train", env={"PATH": f"/nope::{tmp_path}/bin"}))
    assert shim.until("exited")[-1]["message"] == "exited with code 5"


def test_missing_directory_is_told_in_words(shim: Shim) -> None:
    shim.launch(1, shim.rank("true") | {"cwd": "/nope"})
    exited = shim.until("exited")[-1]
    assert exited["message"] == "cannot change to /nope: No such file or directory"
    assert exited["status"] is None


def test_arguments_beyond_the_kernels_limit_cannot_start(shim: Shim) -> None:
    exited = shim.run("/bin/true", "x" * (1 << 20))
    assert exited["message"] == "/bin/true: argument list too long"


def test_each_rank_of_eight_ends_in_its_own_way(shim: Shim) -> None:
    shim.launch(3, *[shim.sh(f"exit {rank}", rank=rank, generation=3) for rank in range(8)])
    messages = shim.until("empty")
    assert sorted(m["rank"] for m in messages if m["ev"] == "started") == list(range(8))
    assert sorted((m["rank"], m["status"] >> 8) for m in messages if m["ev"] == "exited") == [
        (n, n) for n in range(8)
    ]
    assert all(m["generation"] == 3 for m in messages)


def test_one_rank_that_cannot_start_leaves_the_others_alone(shim: Shim) -> None:
    shim.launch(1, shim.rank("nonesuch"), shim.sh("exit 3", rank=1))
    exits = {m["rank"]: m["reason"] for m in shim.until("empty") if m["ev"] == "exited"}
    assert exits == {0: "CANNOT_START", 1: "NONZERO_EXIT"}


RAISES = f"{sys.executable} -I -S -c 'raise ValueError(7)'"


def test_an_exception_that_is_told_on_stdout_alone_is_among_the_last_lines(shim: Shim) -> None:
    exited = shim.run("/bin/sh", "-c", f"echo a warning >&2; {RAISES} 2>&1")
    assert exited["stderr_tail"][-1] == "ValueError: 7"


def test_what_else_is_on_stdout_is_none_of_the_last_lines(shim: Shim) -> None:
    assert shim.run("/bin/sh", "-c", f"echo KeyError: 1; {RAISES}")["stderr_tail"][-1] == "ValueError: 7"
    shim.until("empty")
    shim.launch(2, shim.sh("echo step 5; echo no disk >&2; exit 1", generation=2))
    assert shim.until("exited")[-1]["stderr_tail"] == ["no disk"]


@pytest.mark.parametrize("redirected", ["exec > >(sleep 0.2; cat) 2>&1", "exec 2> >(sleep 0.2; cat >&2)"])
def test_words_that_are_on_their_way_through_a_pipe_are_waited_for(shim: Shim, redirected: str) -> None:
    shim.launch(1, shim.rank("/bin/bash", "-c", f"{redirected}; {RAISES}"))
    exited, empty = shim.until("empty")[-2:]
    assert exited["stderr_tail"][-1] == "ValueError: 7"
    assert (exited["reason"], exited["status"], empty["ev"]) == ("NONZERO_EXIT", 1 << 8, "empty")


def held_open(shim: Shim) -> Any:
    """A rank that ends while a child holds its pipe, once ``cat`` reads: before that a shell is about to become it."""
    heard = f"until grep -q last {shim.out}/g1.r0.out; do sleep 0.01; done"
    return shim.rank("/bin/bash", "-c", f"exec > >(cat) 2>&1; sleep 600 & echo last; {heard}; exit 3")


def test_a_pipe_that_is_held_open_delays_an_exit_and_no_more(shim: Shim) -> None:
    shim.launch(1, held_open(shim))
    exited = shim.until("exited")[-1]
    assert (exited["status"], exited["reason"]) == (3 << 8, "NONZERO_EXIT")
    assert exited["end_time"] < time.time() - 0.9, "it is the end of the rank, not of the wait"
    shim.until("empty")


def test_an_end_whose_words_are_waited_for_is_told_as_it_was_though_a_stop_comes(shim: Shim) -> None:
    shim.launch(1, held_open(shim))
    rank = Path(f"/proc/{shim.until('started')[-1]['pid']}")
    wait_until(lambda: not rank.exists())
    shim.stop(grace_s=0.0)
    exited = next(each for each in shim.until("empty") if each["ev"] == "exited")
    assert (exited["reason"], exited["status"]) == ("NONZERO_EXIT", 3 << 8)


def test_a_megabyte_before_the_end_hides_no_exception(shim: Shim) -> None:
    script = "import sys\nsys.stderr.write(('x' * 99 + '\\n') * 10_486)\nraise ValueError(7)"
    assert shim.run(sys.executable, "-I", "-S", "-c", script)["stderr_tail"][-1] == "ValueError: 7"


def test_unprintable_output_becomes_printable_lines(shim: Shim) -> None:
    script = r"printf 'caf\351 \001\033[31mred\033[0m\n 10%%\r 99%%\r\n\342\202\254 tab\there\n\n' >&2; exit 1"
    assert shim.run("/bin/sh", "-c", script)["stderr_tail"] == ["caf\ufffd [31mred[0m", " 99%", "€ tab here"]


def test_stderr_tail_is_bounded_in_lines_and_bytes(shim: Shim) -> None:
    many = shim.run("/bin/sh", "-c", "seq 1000 >&2")
    assert many["stderr_tail"] == [str(n) for n in range(981, 1001)]


def test_endless_line_is_cut_to_its_end(shim: Shim) -> None:
    script = "import sys; sys.stderr.buffer.write(b'\\xff' * 100_000 + b'end\\n')"
    (line,) = shim.run(sys.executable, "-c", script)["stderr_tail"]
    assert line.endswith("\ufffdend") and 4000 < len(line.encode()) <= 4096


def test_status_of_helpers_is_nobodys_exit(shim: Shim) -> None:
    shim.launch(1, shim.sh("(sleep 0.2; exit 9) & exit 0"))
    kinds = [(m["ev"], m.get("status")) for m in shim.until("empty")]
    assert kinds == [("started", None), ("exited", 0), ("empty", None)]
