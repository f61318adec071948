"""What must hold when the agent, a shim or the controller dies."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

import pytest
from tests.integration.agent.conftest import Agent
from tests.integration.agent.controller import Controller, assignment
from tests.integration.agent.launch.test_launch import SLEEP, launch

from holdfast.v1 import agent_pb2, job_pb2
from holdfast_agent.shell.shims.shim_link import connect

PYTHON = sys.executable


def state(name: str) -> int:
    return agent_pb2.ReportedState.Value(f"REPORTED_STATE_{name}")


async def test_exit_while_the_agent_is_dead_is_delivered_by_the_next_one(
    agent: Agent, controller: Controller
) -> None:
    await controller.connected()
    await launch(controller, [PYTHON, "-c", "import sys; sys.stdin; input()"], processes=1)
    report = await controller.exit()  # stdin is empty: EOFError
    assert report.exit.exit_code == 1
    fifo = agent.root / "go"
    os.mkfifo(fifo)
    await launch(controller, [PYTHON, "-c", f"open({str(fifo)!r}).read(); raise SystemExit(9)"], generation=2)
    running = await controller.state("RUNNING", generation=2)
    agent.kill()
    controller.heard.clear()
    fifo.write_text("x")
    await agent.journalled("exited", generation=2)
    agent.start()
    hello = await controller.connected(times=2)
    assert [(w.state, w.generation, w.attempt) for w in hello.workers] == [(state("EMPTY"), 2, 1)]
    late = await controller.exit(generation=2)
    assert late.exit.exit_code == 9
    assert late.exit.attempt == 1
    assert [report.exit.generation for report in controller.exits()] == [2], "the acknowledged one came again"
    assert agent.shim_pids() == [running.shim_pid]


async def test_running_worker_is_adopted_and_its_exit_told(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    await launch(controller, SLEEP, processes=2)
    before = await controller.state("RUNNING")
    agent.kill()
    agent.start()
    hello = await controller.connected(times=2)
    assert [(w.state, list(w.ranks)) for w in hello.workers] == [(state("RUNNING"), list(before.ranks))]
    os.kill(before.ranks[1].pid, signal.SIGSEGV)
    assert (await controller.exit(1)).exit.signal == signal.SIGSEGV
    await launch(controller, SLEEP, processes=2, generation=2)
    after = await controller.state("RUNNING", generation=2)
    assert after.shim_pid == before.shim_pid


async def test_shim_that_cannot_be_reached_at_once_is_not_taken_for_dead(
    agent: Agent, controller: Controller
) -> None:
    await controller.connected()
    await launch(controller, SLEEP, processes=2)
    before = await controller.state("RUNNING")
    agent.kill()
    os.kill(before.shim_pid, signal.SIGSTOP)
    (sock,) = agent.workers.glob("*/*/sock")
    waiting: list[socket.socket] = []
    try:
        with pytest.raises(BlockingIOError):
            waiting.extend(connect(sock.parent) for _ in range(100))
        agent.start()
        await agent.logged("shim.unreachable")
    finally:
        for each in waiting:
            each.close()
        os.kill(before.shim_pid, signal.SIGCONT)
    hello = await controller.connected(times=2)
    assert [(w.state, list(w.ranks)) for w in hello.workers] == [(state("RUNNING"), list(before.ranks))]


async def test_sigterm_leaves_workers_alone(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    await launch(controller, SLEEP)
    running = await controller.state("RUNNING")
    assert agent.kill(signal.SIGTERM) == 0
    os.kill(running.ranks[0].pid, 0)
    os.kill(running.shim_pid, 0)


async def test_shim_killed_alone_empties_the_place_and_invents_no_code(
    agent: Agent, controller: Controller
) -> None:
    await controller.connected()
    daemon = "import os, time\nif os.fork() == 0:\n    os.setsid()\nos.write(1, b'up\\n')\ntime.sleep(600)"
    await launch(controller, [PYTHON, "-c", daemon], processes=2)
    running = await controller.state("RUNNING")
    for rank in (0, 1):
        await agent.output(f"job-1/g1/workerpool0-0.r{rank}.out", "up\nup")
    os.kill(running.shim_pid, signal.SIGKILL)
    for rank in (0, 1):
        report = await controller.exit(rank)
        assert report.exit.reason == job_pb2.EXIT_REASON_LOST_SHIM_DIED
        assert not report.exit.HasField("exit_code")
        assert not report.exit.HasField("signal")
    await controller.state("EMPTY")
    assert not list(agent.processes(but=agent.spares()))
    await launch(controller, SLEEP, processes=2, generation=2)
    again = await controller.state("RUNNING", generation=2)
    assert again.shim_pid != running.shim_pid


async def test_shim_and_agent_killed_together(agent: Agent, controller: Controller) -> None:
    controller.acknowledge = False
    await controller.connected()
    await launch(controller, SLEEP)
    running = await controller.state("RUNNING")
    agent.kill()
    os.kill(running.shim_pid, signal.SIGKILL)
    controller.heard.clear()
    agent.start()
    lost = await controller.exit()
    assert lost.exit.reason == job_pb2.EXIT_REASON_LOST_SHIM_DIED
    await controller.state("EMPTY")
    agent.kill()
    controller.heard.clear()
    agent.start()
    again = await controller.exit()
    assert again.exit == lost.exit, "an end, once written, never changes"


async def test_exit_recorded_before_the_shims_death_is_told_as_it_is(agent: Agent, controller: Controller) -> None:
    controller.acknowledge = False
    await controller.connected()
    first_only = "import os, time; os.environ['RANK'] == '0' and os._exit(5); time.sleep(600)"
    await launch(controller, [PYTHON, "-c", first_only], processes=2)
    running = await controller.state("RUNNING")
    await controller.exit(0)
    os.kill(running.shim_pid, signal.SIGKILL)
    assert (await controller.exit(1)).exit.reason == job_pb2.EXIT_REASON_LOST_SHIM_DIED
    assert [(r.exit.rank, r.exit.exit_code) for r in controller.exits()] == [(0, 5), (1, 0)]
    assert not controller.exits()[1].exit.HasField("exit_code")


async def test_exits_of_a_moment_come_together_only_to_a_controller_that_takes_them(
    agent: Agent, controller: Controller
) -> None:
    controller.acknowledge = False
    await controller.connected()
    await launch(controller, [PYTHON, "-c", "import os; os._exit(3 + int(os.environ['RANK']))"], processes=3)
    await controller.state("EMPTY")
    for taking in (False, True):
        agent.kill()
        controller.heard.clear()
        controller.takes_exits_together = controller.acknowledge = taking
        agent.start()
        await controller.until(lambda: len(controller.exits()) == 3, "three exits again")
        assert sorted(report.exit.exit_code for report in controller.exits()) == [3, 4, 5]
        kinds = [message.WhichOneof("message") for message in controller.heard]
        assert (kinds.count("exit_report"), kinds.count("exit_reports")) == ((0, 1) if taking else (3, 0))
    await controller.heartbeats(2)
    agent.kill()
    controller.heard.clear()
    agent.start()
    await controller.connected(times=4)
    await controller.heartbeats(2)
    assert controller.exits() == [], "those that were acknowledged together are forgotten"


async def test_journal_of_another_boot_is_lost_by_reboot(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    await launch(controller, SLEEP)
    running = await controller.state("RUNNING")
    agent.kill()
    os.kill(running.shim_pid, signal.SIGKILL)
    os.kill(running.ranks[0].pid, signal.SIGKILL)
    agent.rewrite_boot("00000000-0000-0000-0000-000000000000")
    controller.heard.clear()
    agent.start()
    assert (await controller.exit()).exit.reason == job_pb2.EXIT_REASON_LOST_REBOOT


async def test_intent_without_a_start_is_not_started(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    agent.kill()
    agent.write_intent("job-1", "workerpool0-0", generation=4, ranks=[0, 1])
    agent.start()
    await controller.connected(times=2)
    for rank in (0, 1):
        report = await controller.exit(rank, generation=4)
        assert report.exit.reason == job_pb2.EXIT_REASON_NOT_STARTED
    await controller.assign(assignment("RUN", SLEEP, generation=4, prepared=agent_pb2.WorkerReport(port=21190)))
    await controller.state("EMPTY", generation=4)
    assert not list(agent.processes(but=agent.spares())), "a generation was launched twice"


async def test_place_that_the_controller_does_not_know_is_left_alone(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    await launch(controller, SLEEP)
    running = await controller.state("RUNNING")
    controller.assigned.clear()
    agent.kill()
    agent.start()
    hello = await controller.connected(times=2)
    assert [worker.state for worker in hello.workers] == [state("RUNNING")]
    await controller.heartbeats(2)
    os.kill(running.ranks[0].pid, 0)


async def test_prepared_place_is_launched_on_the_same_ports_after_an_agent_restart(
    agent: Agent, controller: Controller
) -> None:
    await controller.connected()
    await controller.assign(assignment("PREPARE", SLEEP))
    prepared = await controller.state("PREPARED")
    agent.kill()
    controller.assigned["job-1", "workerpool0-0"] = assignment("RUN", SLEEP, prepared=prepared)
    agent.start()
    await controller.connected(times=2)
    await controller.state("RUNNING")


async def test_launch_after_a_restart_says_which_port_is_taken(agent: Agent, controller: Controller) -> None:
    import socket

    await controller.connected()
    await controller.assign(assignment("PREPARE", SLEEP))
    prepared = await controller.state("PREPARED")
    agent.kill()
    with socket.socket() as squatter:
        squatter.bind(("", prepared.port))
        squatter.listen()
        controller.assigned["job-1", "workerpool0-0"] = assignment("RUN", SLEEP, prepared=prepared)
        agent.start()
        refused = await controller.state("CANNOT_PREPARE")
    assert f"port {prepared.port} is taken" in refused.message


async def test_controllers_death_kills_no_work_and_loses_no_exit(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    fifo = agent.root / "go"
    os.mkfifo(fifo)
    await launch(controller, [PYTHON, "-c", f"open({str(fifo)!r}).read(); raise SystemExit(3)"])
    await controller.state("RUNNING")
    await controller.stop()
    fifo.write_text("x")
    await agent.journalled("exited", generation=1)
    await controller.start()
    await controller.connected(times=2)
    assert (await controller.exit()).exit.exit_code == 3


async def test_controller_of_an_earlier_term_is_refused(agent: Agent, controller: Controller) -> None:
    controller.epoch = 5
    await controller.connected()
    await launch(controller, SLEEP, epoch=5)
    running = await controller.state("RUNNING")
    await controller.assign(assignment("STOP", epoch=4))
    await controller.heartbeats(2)
    os.kill(running.ranks[0].pid, 0)
    agent.kill()
    controller.epoch = 4
    agent.start()
    await controller.connected(times=3)  # it comes again and again, and never stays
    assert controller.hellos[-1].epoch == 5
    os.kill(running.ranks[0].pid, 0)


async def test_older_generation_is_ignored_and_a_repeated_wish_changes_nothing(
    agent: Agent, controller: Controller
) -> None:
    await controller.connected()
    prepared = await launch(controller, SLEEP, generation=2)
    running = await controller.state("RUNNING", generation=2)
    await controller.assign(assignment("STOP", generation=1))
    for _ in range(3):
        await controller.assign(assignment("RUN", SLEEP, generation=2, prepared=prepared))
    await controller.heartbeats(2)
    os.kill(running.ranks[0].pid, 0)
    assert not controller.exits()
    journals = list(agent.workers.glob("*/*/*.journal"))
    assert [path.name for path in journals] == ["g2.journal"]
    assert json.loads(journals[0].read_text().split("\n")[0].partition(" ")[2])["ranks"] == [0]
