"""Words of hosts and users are cleaned before anything reads them."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from tests.security.hostile_controller import HOSTILE, Hostile

from holdfast._base.printable import is_safe
from holdfast.errors import InvalidInput
from holdfast.v1 import agent_pb2, host_pb2
from holdfast_controller.shell.convert.clean_words import clean
from holdfast_controller.shell.notify.render import TITLE_MOST, in_words
from holdfast_controller.shell.services.agent_service import input_of


def texts(message: Message) -> list[str]:
    found: list[str] = []
    for field, value in message.ListFields():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            for key in value:
                found += [key] if isinstance(key, str) else []
                found += texts(value[key]) if isinstance(value[key], Message) else []
                found += [value[key]] if isinstance(value[key], str) else []
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            for each in value if field.is_repeated else [value]:
                found += texts(each)
        elif field.type == FieldDescriptor.TYPE_STRING:
            found += value if field.is_repeated else [value]
    return found


@pytest.mark.parametrize("kind", [agent_pb2.SessionRequest, agent_pb2.TransferRequest, host_pb2.Host])
def test_each_text_of_a_message_is_cleaned(kind: type[Message]) -> None:
    hostile = Hostile()
    seen = 0
    for _ in range(20):
        message = hostile.fill(kind.DESCRIPTOR)
        seen += sum(HOSTILE in text for text in texts(message))
        assert all(map(is_safe, texts(clean(message))))
    assert seen >= 10


def test_nothing_that_an_agent_says_reaches_the_core_as_it_was() -> None:
    hostile, taken = Hostile(), set()
    for _ in range(60):
        message = hostile.fill(agent_pb2.SessionRequest.DESCRIPTOR)
        assert isinstance(message, agent_pb2.SessionRequest)
        try:
            said = input_of("host-0", 1, message)
        except InvalidInput:
            continue
        taken.add(message.WhichOneof("message"))
        assert "\x1b" not in repr(said) and "\\x1b" not in repr(said) and "\\u202e" not in repr(said)
        assert "\\n" not in repr(said)
    assert taken >= {"worker_report", "exit_report", "heartbeat", "features", "archive"}


def test_lines_of_programs_keep_their_indentation() -> None:
    report = agent_pb2.ExitReport(stderr_tail=["  File \x1b[1mx\x1b[0m", "a"])
    assert list(clean(report).stderr_tail) == ["  File ?[1mx?[0m", "a"]


def test_in_mail_and_chat_words_of_others_are_words() -> None:
    said = "<!channel> @Everyone [your bank](http://x) `rm -rf` <http://x|click>\r\nBcc: all@example.org\x1b[2J"
    job = {"id": "j1", "owner": "ann@example.org", "project": "p", "displayName": "x\r\nBcc: a@b\u202e" + "y" * 999}
    sent = {"event": "FAILED", "message": said, "cluster": "c", "job": job}
    words = in_words(json.dumps(sent))
    assert "\n" not in words["title"] and len(words["title"]) <= TITLE_MOST
    assert words["body"].split("\n") == [
        "‹!channel› @ Everyone [your bank] (http://x) 'rm -rf' ‹http://x|click› Bcc: all@example.org?[2J",
        "j1 of ann@example.org, project p, cluster c",
    ]
    assert all(map(is_safe, [words["title"], *words["body"].split("\n")]))


def test_in_digests_too() -> None:
    item = {
        "event": "HOST_LOST",
        "time": "t",
        "subject": "host/a",
        "message": "gone\nOK: all is well",
        "changes": 1,
    }
    sent = {"event": "HOST_LOST", "cluster": "c", "message": "a\nb", "leftOut": 0, "items": [item | {"since": "t"}]}
    words = in_words(json.dumps(sent))
    assert (words["title"], words["body"]) == ("cluster c: a b", "t HOST_LOST: gone OK: all is well")


class KindOfProtobuf5:
    """A kind of message whose fields can be asked for no more than protobuf 5 knows of them."""

    def __init__(self, kind: Any) -> None:
        known = "name", "type", "message_type", "default_value"
        self.fields = [SimpleNamespace(**{each: getattr(field, each) for each in known}) for field in kind.fields]


class OfProtobuf5:
    """A message of such a kind."""

    def __init__(self, message: Message) -> None:
        self._message = message
        self.DESCRIPTOR = KindOfProtobuf5(message.DESCRIPTOR)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._message, name)


def test_lists_are_cleaned_with_each_release_of_protobuf_that_is_allowed() -> None:
    hello = agent_pb2.Hello(workers=[agent_pb2.WorkerReport(message="a\x1bb")])
    clean(OfProtobuf5(hello))  # type: ignore[type-var]
    assert is_safe(hello.workers[0].message)
