"""Answers in JSON, written so that no other call waits for it: long lists in slices, large messages beside the loop."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from google.protobuf.message import Message
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from holdfast._base.printable import json_text
from holdfast._sdk import json_view
from holdfast.v1 import job_pb2
from holdfast_controller.shell.calls.slices import TURNS, apart

WRITTEN_BYTES = 4 << 10
"""Of a message: less becomes JSON in two milliseconds, at half a microsecond a byte."""

ROWS_KEPT = 1_024
"""Rows of jobs whose text is kept, of a kilobyte each."""

M = TypeVar("M", bound=Message)
T = TypeVar("T")


class Json(JSONResponse):
    """An answer in JSON; ``curl`` prints it on terminals."""

    def render(self, content: Any) -> bytes:
        """Encode the body of the answer."""
        return text_of(content).encode()


def text_of(content: Any) -> str:
    """JSON on one line, as answers have it."""
    return json_text(content, separators=(",", ":"), allow_nan=False)


class Listed(Response):
    """A page of a list, as its entries; texts and body are made when they are asked for, or it is sent."""

    def __init__(
        self, key: str, entries: Sequence[object], token: str, text: Callable[[int], str], *, ages: bool = False
    ) -> None:
        """``entries`` equal those of another page that say the same; ``text`` is that of the n-th. ``ages``: texts of
        equal entries may differ a little.
        """
        super().__init__(media_type=Json.media_type)
        self.key, self.entries, self.token, self.text, self.ages = key, entries, token, text, ages

    def whole(self) -> bytes:
        """Returns the body of the answer."""
        texts = ",".join(map(self.text, range(len(self.entries))))
        return f'{{{text_of(self.key)}:[{texts}],"nextPageToken":{text_of(self.token)}}}'.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await Response(self.whole(), media_type=self.media_type)(scope, receive, send)


async def listed(key: str, messages: Iterable[M], printed: Callable[[M], object], token: str) -> Listed:
    """The answer for a page of a list, with what ``printed`` makes of each entry. Each becomes text in a slice: one
    text of all would hold the loop up, wherever it was made.
    """
    return await _listed(key, messages, lambda each: text_of(printed(each)), token)


async def listed_rows(key: str, jobs: Iterable[job_pb2.CustomJob], token: str) -> Listed:
    """The answer for a page of rows of jobs. Of most rows nothing is new since they became text the last time."""
    return await _listed(key, jobs, _row_text, token)


async def _listed(key: str, messages: Iterable[M], text: Callable[[M], str], token: str) -> Listed:
    slices, texts = TURNS.begin(), list[str]()
    for message in messages:
        texts.append(await written(message, text))
        await slices.rest()
    return Listed(key, texts, token, texts.__getitem__)


def _row_text(job: job_pb2.CustomJob) -> str:
    return _text_of_row(job.SerializeToString(deterministic=True))


@functools.lru_cache(maxsize=ROWS_KEPT)
def _text_of_row(packed: bytes) -> str:
    return text_of(json_view.job_row(job_pb2.CustomJob.FromString(packed)))


async def answered(message: Message, content: Callable[[], object]) -> Response:
    """The answer for a message, with what ``content`` makes of it."""
    return await written(message, lambda _: Json(content()))


async def written(message: M, write: Callable[[M], T]) -> T:
    """Returns what ``write`` makes of a message, beside the event loop if that is large."""
    return await apart(write, message) if message.ByteSize() > WRITTEN_BYTES else write(message)
