"""All of the output is written, or an error is raised, whatever stdout is."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from holdfast.cli.kit.console import ERR, OUT, Console

SCHEMA = (sys.executable, "-m", "holdfast", "job", "schema")
SLOW = """\
import os, sys, time
time.sleep(0.5)
sys.stdout.write(str(len(sys.stdin.buffer.read())))
"""


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_file_that_takes_no_more_is_an_error(tmp_path: Path, unbuffered: str) -> None:
    def bounded() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))

    with (tmp_path / "schema").open("wb") as file:
        ended = subprocess.run(
            SCHEMA,
            stdout=file,
            stderr=subprocess.PIPE,
            text=True,
            timeout=180,
            # What is compiled would be kept cut off, for all programs after this one.
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered, "PYTHONDONTWRITEBYTECODE": "1"},
            preexec_fn=bounded,
        )
    assert ended.returncode != 0
    assert "The output can't be written whole: File too large." in ended.stderr and "Traceback" not in ended.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_all_of_it_goes_through_a_pipe_that_another_program_has_made_non_blocking(unbuffered: str) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with subprocess.Popen([sys.executable, "-c", SLOW], stdin=reading, stdout=subprocess.PIPE, text=True) as slow:
        os.close(reading)
        ended = subprocess.run(
            SCHEMA,
            stdout=writing,
            stderr=subprocess.PIPE,
            timeout=180,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
        os.close(writing)
        size, _ = slow.communicate(timeout=180)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert int(size) == len(subprocess.run(SCHEMA, capture_output=True, check=True, timeout=180).stdout)


@pytest.mark.parametrize(("fd", "goes_on"), [(OUT, False), (ERR, True)], ids=["output", "notes"])
def test_output_that_cannot_be_written_is_an_error_and_a_lost_note_is_none(
    tmp_path: Path, fd: int, goes_on: bool
) -> None:
    said = tmp_path / "said"
    program = f"from holdfast.cli.kit.console import Console; Console().data({fd}, b'x'); open({str(said)!r}, 'w')"
    with open("/dev/full", "wb") as full:
        out, err = (full, subprocess.PIPE) if fd == OUT else (subprocess.PIPE, full)
        ended = subprocess.run([sys.executable, "-c", program], stdout=out, stderr=err, timeout=180)

    assert said.exists() is goes_on
    if fd == OUT:
        assert b"StorageFull: The output can't be written whole: No space left on device." in bytes(ended.stderr)


def test_output_of_ranks_waits_for_a_reader_that_is_slow() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    kept = os.dup(OUT)
    os.dup2(writing, OUT)
    os.close(writing)
    got: list[bytes] = []

    def read() -> None:
        while piece := os.read(reading, 1000):
            got.append(piece)

    reader = threading.Thread(target=read)
    try:
        reader.start()
        Console().data(OUT, b"x" * 300_000)
    finally:
        os.dup2(kept, OUT)
        os.close(kept)
        reader.join()
        os.close(reading)
    assert sum(map(len, got)) == 300_000
