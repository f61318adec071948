"""What a gang waits for goes ahead of what only has to be recorded."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

from holdfast.tls import TlsFiles
from holdfast.v1 import agent_pb2
from holdfast_agent.shell.link import Link


async def test_message_that_a_gang_waits_for_overtakes_those_that_wait() -> None:
    link = Link("127.0.0.1:1", TlsFiles(Path("ca"), Path("cert"), Path("key")), Mock())
    link._open = True
    exits = [agent_pb2.SessionRequest(exit_report=agent_pb2.ExitReport(sequence=n)) for n in (1, 2)]
    ready = agent_pb2.SessionRequest(worker_report=agent_pb2.WorkerReport(generation=2))
    assert link.send(exits[0])
    assert link.send(exits[1])
    assert link.send(ready, ahead=True)
    assert list(link._unsent) == [ready, *exits]
