"""What is said of a worker waits for the last look at a rank that failed, in its order; of others nothing waits."""

from __future__ import annotations

from collections.abc import Collection

import anyio

from holdfast._session.reports import WorkerId
from holdfast_agent.shell.driver.last_looks import LastLooks

ONE, OTHER = WorkerId("job-1", "workerpool0-0"), WorkerId("job-1", "workerpool1-0")


class Stage:
    """Looks that last until they are let go."""

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        self.story: list[object] = []
        self.seen = anyio.Event()
        self.looks = LastLooks(self._look, tasks)

    async def _look(self, key: WorkerId, ended: Collection[int]) -> None:
        self.story.append((key.worker, list(ended)))
        await self.seen.wait()

    def say(self, key: WorkerId, word: str, ended: int | None = None) -> None:
        self.looks.then(key, lambda: self.story.append(word), ended=ended)


async def test_what_comes_behind_a_failing_exit_waits_for_the_look() -> None:
    async with anyio.create_task_group() as tasks:
        stage = Stage(tasks)
        stage.say(ONE, "started")
        stage.say(ONE, "rank 0 failed", ended=0)
        stage.say(ONE, "rank 1 failed", ended=1)
        stage.say(OTHER, "other started")
        assert stage.story == ["started", "other started"]
        await anyio.wait_all_tasks_blocked()
        stage.say(ONE, "empty")
        assert stage.story[2:] == [("workerpool0-0", [0, 1])], "one look for both"
        stage.seen.set()
    assert stage.story[3:] == ["rank 0 failed", "rank 1 failed", "empty"]


async def test_a_rank_that_fails_during_the_look_gets_one_of_its_own() -> None:
    async with anyio.create_task_group() as tasks:
        stage = Stage(tasks)
        stage.say(ONE, "rank 0 failed", ended=0)
        await anyio.wait_all_tasks_blocked()
        stage.say(ONE, "rank 1 failed", ended=1)
        stage.seen.set()
    assert stage.story == [("workerpool0-0", [0]), "rank 0 failed", ("workerpool0-0", [1]), "rank 1 failed"]


async def test_a_message_that_is_none_ends_nothing() -> None:
    message: dict[str, int] = {}
    async with anyio.create_task_group() as tasks:
        stage = Stage(tasks)
        stage.say(ONE, "rank 0 failed", ended=0)
        stage.looks.then(ONE, lambda: print(message["generation"]))
        stage.say(ONE, "empty")
        stage.seen.set()
    assert stage.story[1:] == ["rank 0 failed", "empty"]
    async with anyio.create_task_group() as tasks:
        stage.looks = LastLooks(stage._look, tasks)
        stage.say(ONE, "at once")
        assert stage.story[-1] == "at once"
