"""Secrets in an agent: the core has their names, the shell their values; no order is given that lacks one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.agent.desired import FACTS, KEY, LAUNCH, RENDEZVOUS, desired

from holdfast._base.secret import Secret
from holdfast._session.assignment import Launch, Phase, SecretVariable
from holdfast._session.reports import ReportedState, WorkerId, WorkerReport
from holdfast.v1 import agent_pb2
from holdfast_agent.core.launch.environment import HostFacts, WorkerUser, plan_ranks
from holdfast_agent.core.worker import actions as act
from holdfast_agent.core.worker import events as ev
from holdfast_agent.core.worker.reactor import Reactor
from holdfast_agent.shell.prepare.launch_order import Means, launch_order
from holdfast_agent.shell.prepare.secret_values import SecretValues
from holdfast_agent.shell.session.assignment_checks import checked_assignment
from holdfast_agent.shell.users import secret_files

CANARY = "sk-canary-77"
SECRETS = (SecretVariable("KEY"), SecretVariable("TOKEN", "/etc/keys/token"), SecretVariable("RANK"))


def with_secrets(launch: Launch = LAUNCH) -> Launch:
    return replace(launch, task=replace(launch.task, secrets=SECRETS), rendezvous=RENDEZVOUS)


def order(**secrets: str) -> agent_pb2.Assignment:
    message = agent_pb2.Assignment(
        epoch=1, job_id=KEY.job, worker=KEY.worker, generation=2, phase=agent_pb2.ASSIGNMENT_PHASE_RUN
    )
    message.launch.process.command.append("true")
    message.launch.processes = 1
    for name, value in secrets.items():
        message.launch.secrets.add(name=name, value=value.encode())
    message.launch.rendezvous.master_port = 1
    return message


def launched() -> act.LaunchRanks:
    ranks = plan_ranks(desired(Phase.RUN, 2, launch=with_secrets()), FACTS)
    return act.LaunchRanks(KEY, 2, ranks)


def test_names_that_are_ours_are_not_taken_by_a_secret() -> None:
    for rank in launched().ranks:
        assert rank.secrets == ("KEY",)
        assert list(rank.secret_files) == ["TOKEN"]
        assert "KEY" not in rank.env


def test_an_order_to_a_shim_has_values_from_the_store_and_paths_of_files() -> None:
    said = launch_order(launched(), FACTS.user, Means(), secrets={"KEY": Secret(b"\xff" + CANARY.encode())})
    for rank in said["ranks"]:
        assert rank["env"]["KEY"].encode("utf-8", "surrogateescape") == b"\xff" + CANARY.encode()
        assert rank["secret_files"] == {"TOKEN": "/etc/keys/token"}
        names = ("rank", "argv", "env", "cwd", "stdout", "stderr", "secret_files", "terminal", "binding")
        assert tuple(rank) == names, "shims of earlier releases read these"
    json.dumps(said)


def test_an_order_without_a_value_is_not_given() -> None:
    with pytest.raises(KeyError, match="KEY"):
        launch_order(launched(), FACTS.user, Means())


def test_values_are_taken_out_of_the_message_before_anybody_reads_it() -> None:
    values, message = SecretValues(), order(KEY=CANARY)
    values.take(message)
    assert CANARY not in str(message) + str(checked_assignment(message)) + str(vars(values))
    assert values.of(KEY, 2) == {"KEY": Secret(CANARY.encode())}


def test_values_are_those_of_the_newest_order_and_of_its_generation_alone() -> None:
    values = SecretValues()
    values.take(order(KEY="old"))
    values.take(order(KEY="new"))
    assert values.of(KEY, 2) == {"KEY": Secret(b"new")}
    assert values.of(KEY, 1) == values.of(KEY, 3) == values.of(WorkerId("other", KEY.worker), 2) == {}
    forget = agent_pb2.Assignment(job_id=KEY.job, worker=KEY.worker, phase=agent_pb2.ASSIGNMENT_PHASE_FORGET)
    values.take(forget)
    assert values.of(KEY, 2) == {}
    assert not forget.HasField("launch")


def test_a_place_that_lacks_a_secret_is_not_even_prepared() -> None:
    reactor, lacking = Reactor(FACTS), replace(LAUNCH, lacks="the secret wandb of ann is gone")
    reactor.step(ev.Welcomed(1), 0.0)
    report = WorkerReport(KEY, 1, 1, ReportedState.CANNOT_PREPARE, message=lacking.lacks)
    assert reactor.step(ev.Assigned(desired(Phase.PREPARE, launch=lacking)), 0.0) == [
        act.RememberAttempt(KEY, 1, 1),
        act.SendReport(report),
    ]


def test_a_secret_that_goes_between_preparation_and_launch_keeps_the_ranks_from_starting() -> None:
    reactor, lacking = Reactor(FACTS), replace(with_secrets(), lacks="the secret wandb of ann is gone")
    reactor.step(ev.Welcomed(1), 0.0)
    reactor.step(ev.Assigned(desired(Phase.PREPARE)), 0.0)
    reactor.step(ev.WorkerPrepared(KEY, 1, 2, 3, 7), 0.0)
    report = WorkerReport(KEY, 1, 1, ReportedState.CANNOT_PREPARE, shim_pid=7, message=lacking.lacks)
    assert reactor.step(ev.Assigned(desired(Phase.RUN, launch=lacking)), 0.0) == [
        act.FreePorts(KEY),
        act.SendReport(report),
    ]


def with_files(facts: HostFacts, *files: Path) -> str:
    secrets = tuple(SecretVariable(f"S{number}", str(file)) for number, file in enumerate(files))
    return secret_files.unreadable(replace(LAUNCH, task=replace(LAUNCH.task, secrets=secrets)), facts)


def test_files_are_looked_for_before_anything_is_promised(tmp_path: Path) -> None:
    there, missing = tmp_path / "a b", tmp_path / "none"
    there.write_text("x")
    assert with_files(FACTS) == with_files(FACTS, there) == ""
    assert with_files(FACTS, there, missing) == f"host-0: S1: {missing} is no file that ada can read."
    assert with_files(FACTS, tmp_path) == f"host-0: S0: {tmp_path} is no file that ada can read."


@pytest.mark.require("root")
def test_a_file_of_another_account_and_one_that_is_not_there_look_the_same(tmp_path: Path) -> None:
    (tmp_path / "roots").mkdir(mode=0o700)
    hidden = tmp_path / "roots" / "key"
    hidden.write_text("x")
    facts = replace(FACTS, user=WorkerUser("nobody", "/", "/bin/sh", 65534, 65534, ()))
    for file in (hidden, hidden.with_name("none")):
        assert with_files(facts, file) == f"host-0: S0: {file} is no file that nobody can read."
