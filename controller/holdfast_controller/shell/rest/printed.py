"""Answers in JSON, written so that no other call waits for it: long lists in slices, large messages beside the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from google.protobuf.message import Message
from starlette.responses import JSONResponse, Response

from holdfast._base.printable import json_text
from holdfast_controller.shell.calls.slices import TURNS, apart

WRITTEN_BYTES = 4 << 10
"""Of a message: less becomes JSON in two milliseconds, at half a microsecond a byte."""

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


async def listed(key: str, messages: Iterable[M], printed: Callable[[M], object], token: str) -> Response:
    """The answer for a page of a list, with what ``printed`` makes of each entry."""
    return await listed_texts(key, messages, lambda each: text_of(printed(each)), token)


async def listed_texts(key: str, messages: Iterable[M], text: Callable[[M], str], token: str) -> Response:
    """The answer for a page of a list. Each entry becomes text in a slice: one text of all would hold the loop up,
    wherever it was made.
    """
    slices, texts = TURNS.begin(), []
    for message in messages:
        texts.append(await _written(message, text))
        await slices.rest()
    body = f'{{{text_of(key)}:[{",".join(texts)}],"nextPageToken":{text_of(token)}}}'
    return Response(body.encode(), media_type=Json.media_type)


async def answered(message: Message, content: Callable[[], object]) -> Response:
    """The answer for a message, with what ``content`` makes of it."""
    return await _written(message, lambda _: Json(content()))


async def _written(message: M, write: Callable[[M], T]) -> T:
    return await apart(write, message) if message.ByteSize() > WRITTEN_BYTES else write(message)
