"""Jobs in a list and their recoveries: columns that tell something, and long names on narrow terminals."""

from __future__ import annotations

import pytest

from holdfast.cli.pages import recovery_table
from holdfast.cli.pages.event_lines import restarts
from holdfast.cli.pages.job_page import page
from holdfast.cli.pages.job_tables import ran, table
from holdfast.v1 import job_pb2, spec_pb2

NOW = 1_795_233_600.0


def a_job(**fields: object) -> job_pb2.CustomJob:
    job = job_pb2.CustomJob(id="j1", display_name="train", attempt=1, generation=1)
    for name, value in fields.items():
        setattr(job, name, value)
    job.create_time.FromSeconds(int(NOW) - 60)
    return job


def titles(*jobs: job_pb2.CustomJob, wide: bool = False) -> list[str]:
    return [column.title for column in table(jobs, NOW, wide=wide)[0]]


USUAL = ["ID", "NAME", "STATE", "RANKS", "GPUS", "AGE", "REASON"]


def test_usual_jobs_have_the_usual_columns() -> None:
    assert titles(a_job(), a_job(project="default")) == USUAL
    assert titles(a_job(), wide=True) == [*USUAL[:-1], "OWNER", "PROJECT", "PRIO", "ATT", "GEN", "RAN", "REASON"]


def test_a_column_shows_once_a_job_has_something_to_say_in_it() -> None:
    urgent = a_job()
    urgent.job_spec.scheduling.priority = 3
    assert titles(a_job(), urgent) == [*USUAL[:-1], "PRIO", "REASON"]
    assert titles(a_job(project="vision")) == [*USUAL[:-1], "PROJECT", "REASON"]
    assert titles(a_job(attempt=2)) == [*USUAL[:-1], "ATT", "REASON"]
    columns, rows = table([a_job(project="vision", attempt=2), urgent], NOW, wide=False)
    assert [len(row) for row in rows] == [len(columns)] * 2
    assert [row[6:9] for row in rows] == [["vision", "1", "2"], ["default", "3", "1"]]


def test_steps_are_shown_where_any_job_has_one() -> None:
    known = a_job(step=1200.0, step_total=5000.0, phase="evaluate", saved_step=1000.0)
    columns, rows = table([known, a_job(step=7.0), a_job()], NOW, wide=False)
    at = [column.title for column in columns].index("STEP")
    assert [row[at] for row in rows] == ["1200/5000", "7", "-"]
    assert titles(known) == [*USUAL[:-2], "STEP", *USUAL[-2:]]
    assert "step        1200/5000 (24 %), evaluates, saved at 1000" in [line.strip() for line in lines_of(known)]
    assert not [line for line in lines_of(a_job()) if line.strip().startswith("step")]


@pytest.mark.parametrize(
    ("reasons", "words"),
    [
        (["NONZERO_EXIT"], ["1 restart"]),
        (["HANG", "HANG"], ["2 hang restarts"]),
        (["HANG", "SIGNALED", "LOST_HOST"], ["2 restarts", "1 hang restart"]),
    ],
)
def test_restarts_upon_hangs_are_no_restarts(reasons: list[str], words: list[str]) -> None:
    job = a_job()
    job.recoveries.extend(job_pb2.Recovery(end_reason=reason) for reason in reasons)
    assert restarts(job) == words


def test_the_controller_s_words_are_in_the_list_and_on_the_page() -> None:
    job = a_job(wait_reason="backs off")
    assert table([job], NOW, wide=False)[1][0][-1] == "backs off", "a controller of an older release"
    assert "  waits       backs off" in lines_of(job)
    job.summary.headline, job.summary.health = "Trains: step 7; 1 interruption", "Trains: step 7"
    job.summary.happened, job.summary.done = "1 interruption at 13:05:07 UTC", "Relaunched in place"
    job.summary.advice = "Nothing"
    assert table([job], NOW, wide=False)[1][0][-1] == "Trains: step 7; 1 interruption"
    assert lines_of(job)[1:5] == [
        "  now         Trains: step 7",
        "  happened    1 interruption at 13:05:07 UTC",
        "  done        Relaunched in place",
        "  to do       Nothing",
    ]
    assert not [line for line in lines_of(job) if "backs off" in line]


def test_long_sentences_are_wrapped_and_not_cut() -> None:
    job = a_job()
    job.summary.health = "word " * 40
    shown = list(page(job, NOW, wide=False, width=60, colour=False))
    assert sum(line.count("word") for line in shown) == 40
    assert max(map(len, shown)) <= 60


def lines_of(job: job_pb2.CustomJob, *, wide: bool = False) -> list[str]:
    return list(page(job, NOW, wide=wide, width=None, colour=False))


def test_the_page_names_what_is_unusual() -> None:
    usual = "\n".join(lines_of(a_job(project="default")))
    assert not any(word in usual for word in ("project", "priority", "strategy", "hosts", "notes"))
    job = a_job(project="vision")
    job.annotations["ticket"] = "a\x1b[31mb"
    scheduling = job.job_spec.scheduling
    scheduling.priority, scheduling.strategy = 2, spec_pb2.SCHEDULING_STRATEGY_SPOT
    scheduling.host_selector.avoid_labels["gpu"] = "old"
    job.job_spec.worker_pool_specs.add().host_selector.match = "rack in (a,b)"
    pool = len(job.job_spec.worker_pool_specs) - 1
    found = lines_of(job)
    for line in (
        "  project     vision",
        "  priority    2",
        "  strategy    SPOT",
        "  hosts       without gpu=old",
        f"  hosts       of workerpool{pool}: where rack in (a,b)",
        "  notes       ticket=a?[31mb",
    ):
        assert line in found


@pytest.mark.parametrize(
    ("state", "seconds"),
    [(job_pb2.JOB_STATE_RUNNING, 30.0), (job_pb2.JOB_STATE_PAUSED, None), (job_pb2.JOB_STATE_QUEUED, None)],
)
def test_job_that_holds_no_hosts_is_not_said_to_run(state: int, seconds: float | None) -> None:
    job = a_job(state=state)
    job.start_time.FromSeconds(int(NOW) - 30)
    assert ran(job, NOW) == seconds


def with_recoveries() -> job_pb2.CustomJob:
    job = a_job()
    first = job.recoveries.add(attempt=1, generation=2, end_reason="HANG", end_recover="PROC_RESTART")
    first.end_related_task = "workerpool1-1023 rank 8191"
    first.started_at.FromSeconds(int(NOW) - 50)
    first.ended_at.FromSeconds(int(NOW) - 40)
    first.lost.FromMilliseconds(95_000)
    first.phases.detect.FromMilliseconds(60_000)
    first.phases.start.FromMilliseconds(110)
    second = job.recoveries.add(attempt=2, generation=3, end_reason="LOST_HOST", end_recover="NEW_WORD")
    second.started_at.FromSeconds(int(NOW) - 30)
    return job


def shown(job: job_pb2.CustomJob, width: int | None) -> list[str]:
    return recovery_table.table(job.recoveries, NOW, width=width, colour=False).splitlines()


def test_recoveries_say_what_ended_what_was_done_and_what_it_cost() -> None:
    head, first, second = (line.split(maxsplit=3) for line in shown(with_recoveries(), None))
    assert head[:3] == ["ATT", "GEN", "STARTED"]
    assert first[:2] + second[:2] == ["1", "2", "2", "3"]
    assert " ".join(first[3].split()) == (
        "1m 35s HANG workerpool1-1023 rank 8191 restarted in place detect 1m, start 110ms"
    )
    assert " ".join(second[3].split()) == "going on LOST_HOST - NEW_WORD -"
    one_attempt = with_recoveries().recoveries[:1]
    assert recovery_table.table(one_attempt, NOW, width=None, colour=False).split()[:2] == ["GEN", "STARTED"]
    assert recovery_table.summary(with_recoveries()) == "2 recoveries, 1m 35s lost so far, 1 of them going on"
    only = job_pb2.CustomJob(recoveries=with_recoveries().recoveries[1:])
    assert recovery_table.summary(only) == "1 recovery, going on"


@pytest.mark.parametrize("width", [72, 80, 100])
def test_recoveries_fit_the_terminal(width: int) -> None:
    lines = shown(with_recoveries(), width)
    assert all(len(line) <= width for line in lines)
    assert lines[1].split()[:2] == ["1", "2"] and "1m 35s" in lines[1]
    assert lines[2] == "     detect 1m, start 110ms", "below its row, and whole"


@pytest.mark.parametrize("word", sorted(recovery_table.ANSWERS))
def test_each_answer_has_words(word: str) -> None:
    recovery = job_pb2.Recovery(end_recover=word)
    assert recovery_table.row(recovery, NOW)[-1] == recovery_table.ANSWERS[word]


@pytest.mark.parametrize(
    ("warm", "in_process", "words"),
    [
        (None, 0, ""),
        (True, 0, ", warm"),
        (False, 0, ", cold"),
        (True, 1, ", 1 rank in process"),
        (True, 3, ", 3 ranks in process"),
        (False, 3, ", 3 ranks in process, others cold"),
    ],
)
def test_a_recovery_says_how_its_ranks_began(warm: bool | None, in_process: int, words: str) -> None:
    recovery = job_pb2.Recovery(end_recover="PROC_RESTART", warm=warm, in_process_ranks=in_process)
    assert recovery_table.row(recovery, 0.0)[-1] == "restarted in place" + words


def test_a_job_page_says_what_its_ranks_are_bound_to() -> None:
    job = job_pb2.CustomJob(id="j1")
    worker = job.workers.add(name="workerpool0-0", host="host-0")
    nics = [f"mlx5_{number}" for number in range(8)]
    bindings = [
        job_pb2.RankBinding(cpus="0-3,8-11", exclusive=True, memory_nodes="0", nics=nics),
        job_pb2.RankBinding(cpus="4-7", nics=nics[:1], note="no cores of its own: 0 of 2 are free"),
        job_pb2.RankBinding(nics=nics, note="not bound: it has no GPU to be near to"),
    ]
    for number in range(12):
        worker.ranks.add(rank=number, pid=100 + number, binding=bindings[min(number, 2)])
    lines = [line.strip() for line in "\n".join(lines_of(job)).splitlines()]
    assert "Rank 0: CPUs 0-3,8-11 of its own, memory of node 0, mlx5_0, mlx5_1, mlx5_2, mlx5_3" in lines
    assert "Rank 1: CPUs 4-7, mlx5_0; no cores of its own: 0 of 2 are free" in lines
    assert "Rank 2: not bound: it has no GPU to be near to" in lines
    assert "2 more ranks are bound; see them with -o wide" in lines
    assert not [line for line in lines if line.startswith("Rank 11")]
    assert "Rank 11: not bound" in "\n".join(lines_of(job, wide=True))


def test_a_job_page_says_which_gpus_and_hosts_were_asked_for() -> None:
    big = spec_pb2.MachineSpec(accelerator_count=1, gpu_partition_size="1g.10gb", machine_type="big")
    any_ = spec_pb2.MachineSpec(cpu_count=4)

    def gang_of(*machines: spec_pb2.MachineSpec) -> str:
        job = a_job()
        del job.job_spec.worker_pool_specs[:]
        for machine in machines:
            job.job_spec.worker_pool_specs.add(replica_count=1, machine_spec=machine)
        return next(line for line in lines_of(job) if line.split()[:1] == ["gang"]).split(None, 1)[1]

    assert gang_of(any_) == "1 worker, 1 rank"
    assert gang_of(big, big) == "2 workers, 2 ranks, 2 GPUs (MIG 1g.10gb, machine type big)"
    assert gang_of(big, any_) == "2 workers, 2 ranks, 1 GPU (MIG 1g.10gb, machine type big; any)"
