"""Types and topics that do not fit a server's, and a channel that compares them with prepared descriptions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import trio

from headway.errors import HeadwayError
from headway.protobuf import field, message
from headway.resource import ResourceType, types_pb
from headway.subscription import Topic
from headway.versions import Comparison


@message
class Team:
    members: list[str] = field(1)
    color: str = field(2)


@message(renamed={2: "color"})
class Newer:
    members: list[str] = field(1)
    shade: str = field(2)
    size: int = field(3)


@message
class Owner:
    name: str = field(1)


@message
class Wrong:
    members: str = field(1)
    color: str = field(2)


@message
class Rate:
    cents: int = field(1)
    note: str = field(2)


@message
class Other:
    count: int = field(1)
    reason: str = field(2)


TEAM: ResourceType[Team] = ResourceType("staff", "v1", "Team", Team)
NEWER: ResourceType[Newer] = ResourceType("staff", "v1", "Team", Newer)
WRONG: ResourceType[Wrong] = ResourceType("staff", "v1", "Team", Wrong)
OWNER: ResourceType[Owner] = ResourceType("staff", "v1", "Owner", Owner)
SAID = (
    "the server has other schemas than this program:\n"
    "staff.v1.Team.members (field 1): expected list of string as the server has it, got string; "
    "keep list of string, or use a new number, such as field(3)"
)


RATES = Topic("rates", Rate, lambda _: {"EUR": Rate(cents=108)}, wildcard=True)
OTHER: Topic[Other] = Topic("rates", Other, lambda _: {}, wildcard=True)
SAID_OF_TOPIC = (
    "the server has other schemas than this program:\n"
    "topic rates.count (field 1): expected the name 'cents' as the server has it, got 'count'; "
    "if it is the same field, declare @headway.message(renamed={1: 'cents'}) for the topic's message class; "
    "otherwise use a new number, such as field(3)\n"
    "topic rates.reason (field 2): expected the name 'note' as the server has it, got 'reason'; "
    "if it is the same field, declare @headway.message(renamed={2: 'note'}) for the topic's message class; "
    "otherwise use a new number, such as field(3)"
)


class Lists:
    """A types service that replays answers, and counts its calls."""

    def __init__(self, *answers: types_pb.ListResponse | HeadwayError) -> None:
        self.answers = list(answers)
        self.asked = 0
        self.may_answer = trio.Event()
        self.calls: list[str] = []
        self.knows_outcomes = False

    async def unary(self, path: str, *_: Any, **__: Any) -> Any:
        self.calls.append(path)
        if not path.endswith("TypesService/List"):
            return "answered"
        self.asked += 1
        await self.may_answer.wait()
        answer = self.answers.pop(0)
        if isinstance(answer, HeadwayError):
            raise answer
        return answer

    def stream(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


class Compared:
    """A channel with one connection to such a service. It is compared before the first call."""

    def __init__(self, lists: Lists, *types: ResourceType[Any], topics: Iterable[Topic[Any]] = ()) -> None:
        self.comparison = Comparison(types, topics)
        self._connection = self.comparison(lists)
        self._lists = lists
        self.knows_outcomes = False
        self.stream = lists.stream

    async def unary(self, path: str, request: Any, reply_type: Any, *, metadata: Any = None) -> Any:
        if not self._connection.admits(request):
            await self._connection.admit(request, metadata)
        return await self._lists.unary(path, request, reply_type, metadata=metadata)
