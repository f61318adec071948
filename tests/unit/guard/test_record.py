"""The folder in which a guard keeps its record."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import anyio

from holdfast.client import Client
from holdfast.guard.record import Record
from holdfast.guard.run import Words
from holdfast.v1 import job_pb2


def words(said: list[str]) -> Words:
    return Words(said.append, lambda event: "", lambda job: (), lambda found: "")


def test_a_record_never_takes_the_place_of_another(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "of-a-file").write_text("kept")

    made = [Record(tmp_path / "in/rec", words(said)) for _ in range(3)]
    made.append(Record(tmp_path / "of-a-file", words(said)))

    assert [each.directory.name for each in made] == ["rec", "rec-2", "rec-3", "of-a-file-2"]
    assert all(each.directory.is_dir() and not each.problem for each in made)
    assert said == [
        f"{tmp_path}/{name} is there already: the record is in {tmp_path}/{new}"
        for name, new in (("in/rec", "in/rec-2"), ("in/rec", "in/rec-3"), ("of-a-file", "of-a-file-2"))
    ]


def test_a_folder_that_takes_no_record_is_said_once(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "file").write_text("")

    record = Record(tmp_path / "file/rec", words(said))
    record.close_to_commands()

    assert said == [f"{record.problem}; name another folder with --record"]
    assert record.problem == f"no record can be written to {tmp_path}/file/rec: Not a directory"


def test_a_hang_of_which_no_evidence_came_says_so(tmp_path: Path) -> None:
    class Controller:
        async def hang_evidence(self, job: str, number: int) -> AsyncIterator[Any]:
            nothing: tuple[Any, ...] = ()
            for each in nothing:
                yield each

    record = Record(tmp_path / "rec", words([]))
    job = job_pb2.CustomJob(hangs=[job_pb2.Hang(number=1)])
    anyio.run(record.finish, cast(Client, Controller()), job)

    assert (tmp_path / "rec/hang-1.txt").read_text() == (
        "None was kept: no host had sent any when the restart was due.\n"
    )
