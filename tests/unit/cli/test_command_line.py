"""The command line itself: what it loads, what it guesses, what its reference says."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from holdfast._base.version import __version__
from holdfast.cli.app import root
from holdfast.cli.kit import parameters
from holdfast.cli.kit.foreign_words import COMMANDS, OPTIONS
from holdfast.cli.reference import markdown

REPOSITORY = Path(__file__).resolve().parents[3]
HEAVY = ("grpc", "google.protobuf", "pydantic", "yaml", "anyio", "asyncio", "cryptography")


def test_help_loads_nothing_heavy() -> None:
    code = f"""
import sys
from holdfast.cli import main
sys.argv = ["holdfast", "--help"]
try:
    main()
except SystemExit:
    pass
print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_only_what_reads_job_files_loads_their_models() -> None:
    """Each takes longer to load than a question to the controller."""
    code = """
import importlib, pkgutil, sys, holdfast.cli
readers = ("holdfast.cli.submission.sbatch", "holdfast.cli.submission.spec_changes", "holdfast.cli.top.screen")
for module in pkgutil.walk_packages(holdfast.cli.__path__, "holdfast.cli."):
    if module.name not in (*readers, "holdfast.cli.__main__"):
        importlib.import_module(module.name)
print([name for name in ("pydantic", "yaml", "rich", "textual", "cryptography") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_reference_is_current() -> None:
    assert (REPOSITORY / "docs/users/cli.md").read_text() == markdown(), (
        "run: python -m holdfast.cli.reference > docs/users/cli.md"
    )


@pytest.mark.parametrize(
    ("words", "guess"), [(["rum"], "run"), (["job", "shwo"], "show"), (["host", "cordn", "x"], "cordon")]
)
def test_a_misspelt_command_is_guessed(words: list[str], guess: str) -> None:
    result = CliRunner().invoke(root, words)
    assert result.exit_code == 2
    assert f"Did you mean '{guess}'?" in result.output


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["squeue"], "holdfast ps, or holdfast job list"),
        (["get", "pods"], "holdfast ps"),
        (["job", "describe", "x"], "holdfast job show JOB"),
        (["rerun", "x"], "holdfast job rerun"),
        (["drain", "h1"], "holdfast host drain"),
        (["events", "x"], "holdfast job events, or holdfast host events"),
        (["job", "run"], "holdfast run"),
        (["jobs"], "holdfast ps, or holdfast job list"),
        (["dev", "up"], "holdfast dev start"),
        (["dev", "down"], "holdfast dev stop"),
        (["host", "join"], "holdfast host token create HOST"),
        (["job", "squeue"], "holdfast ps"),
        (["host", "undrain", "h1"], "holdfast host uncordon HOST"),
        (["secret", "create", "wandb", "x"], "holdfast secret set NAME"),
    ],
)
def test_a_command_of_another_scheduler_is_answered_with_ours(words: list[str], lines: str) -> None:
    result = CliRunner().invoke(root, words, prog_name="holdfast")
    assert result.exit_code == 2
    assert f"Try: {lines}" in result.output


def command_at(words: list[str]) -> click.Command | None:
    """The command that a line names; None where it names none, or stops at a group."""
    command: click.Command = root
    for word in words:
        if not isinstance(command, click.Group):
            break
        if word not in command.commands:
            return None
        command = command.commands[word]
    return None if isinstance(command, click.Group) else command


def options_in(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))


def options_of(command: click.Command) -> set[str]:
    return {name for parameter in command.params for name in parameter.opts} | {"--help", "--version"}


@pytest.mark.parametrize(
    "line", sorted({line for words in COMMANDS.values() for lines in words.values() for line in lines})
)
def test_every_line_that_answers_a_foreign_command_exists(line: str) -> None:
    words = line.partition(" -- ")[0].split()
    command = root if words[0].startswith("-") else command_at(words)
    assert command is not None and options_in(line.partition(" -- ")[0]) <= options_of(command), line


@pytest.mark.parametrize("group", COMMANDS)
def test_no_word_of_a_foreign_command_is_a_command(group: str) -> None:
    command: click.Command = root
    for word in group.split():
        assert isinstance(command, click.Group)
        command = command.commands[word]
    assert isinstance(command, click.Group) and not command.commands.keys() & COMMANDS[group].keys()


@pytest.mark.parametrize("path", OPTIONS)
def test_every_option_that_answers_a_foreign_one_exists(path: str) -> None:
    command = command_at(path.split())
    assert command is not None
    for hint in OPTIONS[path].values():
        said, _, elsewhere = hint.partition("holdfast ")
        there = command_at(elsewhere.partition(" -- ")[0].split()) if elsewhere else None
        assert options_in(said) <= options_of(command), hint
        assert not elsewhere or (
            there is not None and options_in(elsewhere.partition(" -- ")[0]) <= options_of(there)
        )


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--", "python", "train.py", "--lr", "1"], "holdfast run --detach -- python train.py --lr 1"),
        (["--gpus", "8", "--", "python", "train.py"], "holdfast run --detach -- python train.py"),
        (["python", "train.py"], "holdfast run --detach -- COMMAND"),
    ],
)
def test_a_command_given_to_submit_is_answered_with_run(words: list[str], line: str) -> None:
    result = CliRunner().invoke(root, ["submit", *words])
    assert result.exit_code == 2 and line in result.output


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["reservation", "create", "conf", "--end", "22:00"], "--until TIME, or --for DURATION"),
        (["reservation", "create", "conf", "--start_time", "22:00"], "--from TIME"),
        (["host", "drain", "gpu-1", "--from", "22:00"], "--at TIME"),
        (["host", "cordon", "gpu-1", "--duration", "2h"], "--until TIME, or --for DURATION"),
        (["host", "drain", "gpu-1", "--timeout=300s"], "--deadline DURATION"),
    ],
)
def test_a_time_that_is_called_otherwise_elsewhere_is_answered_with_ours(words: list[str], hint: str) -> None:
    result = CliRunner().invoke(root, words)
    assert result.exit_code == 2 and hint in " ".join(result.output.split()), result.output


def test_a_command_like_no_other_is_not_guessed() -> None:
    assert "Did you mean" not in CliRunner().invoke(root, ["xyzzy"]).output


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["run", "--nodes", "2", "--", "true"], "No such option '--nodes'. Workers are --replicas N"),
        (["run", "--nnodes=2", "--", "true"], "Workers are --replicas N"),
        (["submit", "--nproc_per_node", "8", "job.yaml"], "processesPerWorker of a pool in the job file"),
        (["submit", "--gpus", "8", "job.yaml"], "acceleratorCount of a pool's machineSpec"),
        (["submit", "--gpu-type", "H200", "job.yaml"], "acceleratorType of a pool's machineSpec"),
        (["submit", "--machine-type", "big", "job.yaml"], "machineType of a pool's machineSpec"),
        (["submit", "--gpu-partition-size", "1g.10gb", "job.yaml"], "gpuPartitionSize of a pool's machineSpec"),
        (["run", "--mig", "1g.10gb", "--", "true"], "--gpu-partition-size PROFILE"),
        (["run", "--accelerator", "H200", "--", "true"], "--gpu-type MODEL"),
        (["submit", "--mem", "8G", "job.yaml"], "memoryMb of a pool's machineSpec"),
        (["job", "rerun", "j1", "--gres", "gpu:8"], "--gpus N"),
        (["run", "--wait", "--", "true"], "It waits for the job unless --detach"),
        (["run", "--retries", "3", "--", "true"], "--max-restarts N in place, --max-retries N on other hosts"),
        (["run", "--retry", "3", "--", "true"], "--max-restarts N in place"),
        (["submit", "--retries", "3", "job.yaml"], "faultTolerance"),
        (["run", "-N", "2", "--", "true"], "Workers are --replicas N"),
        (["run", "-it", "--", "bash"], "A terminal for each rank is --pty."),
        (["ps", "-u", "ann"], "Your jobs are --mine"),
        (["logs", "j1", "-n", "5"], "--tail LINES"),
        (["job", "logs", "j1", "--previous"], "Earlier launches are --generation N"),
        (["logs", "j1", "--search", "nan"], "Lines with a text are --grep TEXT."),
        (["cancel", "--all"], "All your active jobs are --all-mine."),
    ],
)
def test_an_option_of_another_launcher_is_answered_with_ours(words: list[str], hint: str) -> None:
    result = CliRunner().invoke(root, words)
    assert result.exit_code == 2
    assert hint in result.output


@pytest.mark.parametrize(
    ("name", "text", "hint"),
    [
        ("job.sh", "python train.py\n", "run it with: holdfast run -- bash {}"),
        ("train", "#!/usr/bin/env python3\nprint()\n", "run it with: holdfast run -- python {}"),
        ("train.py", "print(1)\n", "run it with: holdfast run -- python {}"),
        ("job.pbs", "#!/bin/bash\n#PBS -l nodes=2\nx\n", "lines for another scheduler count for nothing"),
    ],
)
def test_a_program_given_as_a_job_file_is_answered_with_the_command_that_runs_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str, text: str, hint: str
) -> None:
    (tmp_path / name).write_text(text)
    result = CliRunner().invoke(root, ["submit", str(tmp_path / name)])
    assert isinstance(result.exception, SystemExit) and result.exit_code == 2
    said = capfd.readouterr().err
    assert "is a program, not a job file" in said and hint.format(tmp_path / name) in said


def groups(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(command, click.Group):
        yield path
        for name, child in command.commands.items():
            yield from groups(child, (*path, name))


@pytest.mark.parametrize("path", list(groups(root)), ids=" ".join)
def test_no_list_of_commands_breaks_off_in_a_sentence(path: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(root, [*path, "--help"], terminal_width=80).output
    assert "Commands:" in shown
    assert "..." not in shown.partition("Commands:")[2]


def test_every_command_says_what_it_does() -> None:
    assert markdown().count("## `holdfast") == 93
    assert "\n\n\n" not in markdown()


def test_the_version() -> None:
    assert CliRunner().invoke(root, ["--version"]).output == f"holdfast, version {__version__}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    result = CliRunner().invoke(root, ["completion", shell])
    assert result.exit_code == 0
    assert "_HOLDFAST_COMPLETE" in result.output


@pytest.mark.parametrize("value", ["", " ", "jobs/"])
def test_what_names_no_job_is_refused(value: str) -> None:
    result = CliRunner().invoke(root, ["job", "show", value])
    assert result.exit_code == 2
    assert "names no job" in result.output


@pytest.mark.parametrize("value", ["last week", "2026-13-01", "5 parsecs"])
def test_a_time_that_cannot_be_read_is_refused(value: str) -> None:
    result = CliRunner().invoke(root, ["logs", "j1", "--since", value])
    assert result.exit_code == 2
    assert "neither a span" in result.output


def test_a_fault_of_ours_is_no_exit_code_of_a_job() -> None:
    code = """
from holdfast.cli import app
from holdfast.cli.jobs import jobs
def boom(work): raise ZeroDivisionError("boom")
jobs.with_client = boom
import sys
sys.argv = ["holdfast", "ps"]
app.main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 125
    assert "ZeroDivisionError: boom" in done.stderr


@pytest.mark.parametrize(("words", "status"), [("--version", 0), ("ps --no-such-option", 2)])
@pytest.mark.parametrize(
    "meanwhile", ["pass", "sys.setprofile(lambda *_: None)", "threading.Thread(target=last).start()"]
)
def test_a_command_ends_as_any_program_does(words: str, status: int, meanwhile: str) -> None:
    """Though it leaves the taking apart of its modules out, where nobody would see that."""
    code = f"""
import atexit, sys, threading, time
from holdfast.__main__ import main
def last(): time.sleep(0.2); print("the thread's last")
atexit.register(print, "at exit")
{meanwhile}
sys.argv = ["holdfast", *{words!r}.split()]
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == status
    thread = ["the thread's last"] if "Thread" in meanwhile else []
    assert done.stdout.splitlines()[-1 - len(thread) :] == [*thread, "at exit"]
    assert bool(done.stderr) == bool(status)


def test_a_label_of_a_host_is_taken_apart() -> None:
    assert parameters.host_label("host-0:example.org/rack=a-1") == ("host-0", "example.org/rack", "a-1")


@pytest.mark.parametrize("value", ["rack=a", "host-0:rack", "host-0:=a", "host-0:rack=", ":rack=a", "host-0:a b=c"])
def test_what_is_no_label_of_a_host_is_refused(value: str) -> None:
    with pytest.raises(click.BadParameter, match="host-0:rack=a"):
        parameters.host_label(value)


def test_help_shows_a_line_to_copy_whole() -> None:
    shown = CliRunner().invoke(root, ["completion", "--help"], terminal_width=80).output
    assert 'eval "$(holdfast completion bash)"' in shown


def test_a_command_is_loaded_alone() -> None:
    program = "import sys; from holdfast.cli.app import root; root.commands['guard']; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    loaded = {name for name in done.stdout.split() if name.startswith("holdfast.cli.jobs.")}
    assert loaded == {"holdfast.cli.jobs.guard"}


def test_each_command_is_where_the_table_says() -> None:
    assert {name: command.name for name, command in root.commands.items()} == {name: name for name in root.commands}


@pytest.mark.parametrize(
    "usage", ["submit [OPTIONS] [FILE]", "web open [OPTIONS] [JOB]", "host token create [OPTIONS] [NAME]"]
)
def test_an_argument_that_may_be_left_out_is_in_brackets(usage: str) -> None:
    assert f"## `holdfast {usage}`\n" in markdown()
    words = usage.partition(" [OPTIONS]")[0].split()
    assert f"Usage: root {usage}" in CliRunner().invoke(root, [*words, "--help"]).output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["job", "show", "caf\udce9"], "names no job"),
        (["run", "--timeout", "99999999999999999999", "--", "true"], "is longer than ten thousand years"),
        (["run", "--gpus", "9999999999", "--", "true"], "9999999999 is too large; give 2147483647 at most"),
        (["job", "watch", "x", "--cursor", str(2**63)], "is too large"),
        (["job", "list", "--since", "0001-01-01T00:00:00+14:00"], "is neither a span"),
        (["quota", "set", "--project", "p", "--gpus", "9999999999"], "9999999999 is too large"),
        (["share", "set", "p", "--guarantee", "9999999999"], "9999999999 is too large"),
        (["share", "set", "p", "--guarantee", "-1"], "-1 is too small"),
        (["reservation", "create", "r", "--project", "p", "--count", "9999999999"], "9999999999 is too large"),
        (["reservation", "create", "r", "--project", "p", "--gpus", "9999999999"], "9999999999 is too large"),
    ],
)
def test_a_value_that_no_message_holds_is_refused_by_its_option(words: list[str], said: str) -> None:
    result = CliRunner().invoke(root, words)
    assert result.exit_code == 2 and said in " ".join(result.stderr.split())
