"""The folder in which a guard keeps its record."""

from __future__ import annotations

from pathlib import Path

from holdfast.guard.record import Record
from holdfast.guard.run import Words


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
