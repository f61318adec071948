"""What a start of a dev cluster says at its end."""

from __future__ import annotations

from pathlib import Path

from holdfast.dev import starting
from holdfast.dev.layout import Layout
from holdfast.dev.plan import Cluster
from holdfast.dev.processes import Process


def test_a_folder_with_a_blank_in_its_name_is_written_as_a_shell_reads_it() -> None:
    run = starting._Run(Layout(Path("/home/ann/my work")), Cluster(7001, ()), {"controller": Process(1, 1)})
    assert "  export HOLDFAST_CONFIG='/home/ann/my work/client.toml'\n" in starting._summary(run, 1.0)
