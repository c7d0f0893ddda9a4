"""A process that attends: the questions to it, and its answers."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from dataclasses import replace
from enum import Enum
from typing import TypeVar

import trio

from headway._gen.headway.observe import v1 as observe_pb
from headway.base import give_way
from headway.resource import Kind
from headway.why._rights import TURN, AttendingRights
from headway.why.answers import cleaned

M = TypeVar("M")

PATIENCE = 2.0
"""The seconds that a question waits for its answer."""
_RANDOM = 56
"""The random bits of the number of a question. Those above are the number of the process that asks."""
_QUESTIONS = 16
"""The number of questions that may wait for one process."""


class Sort(Enum):
    """The kind of a process that attends: a worker, a worker relayed by a sibling, or a sibling.

    A sibling is another process of this server.
    """

    WORKER = "worker"
    RELAYED = "relayed"
    SIBLING = "sibling"


def asker_of(number: int) -> int:
    """Return the number of the process that has asked a question."""
    return number >> _RANDOM


class Busy(Exception):
    """The maximum number of processes attend already."""


class Attending:
    """A process that attends.

    Args:
        asker: the number of this process among the processes of its server. Answers find their way back by it.

    Attributes:
        controllers: the kinds that its controllers manage, by the names of the controllers.
        scoped: those of its controllers that manage a part of their kind only.
        caller: the caller whose process it is.
        sort: what kind of process it is.
        rights: what it may be asked about; None for everything.
        questions: the questions to send to it.
        ended: set at the end of its stream.
    """

    def __init__(
        self,
        process: str,
        controllers: dict[str, Kind],
        caller: str = "",
        sort: Sort = Sort.WORKER,
        rights: AttendingRights | None = None,
        asker: int = 0,
        scoped: Collection[str] = (),
    ) -> None:
        self.process = process
        self.scoped = scoped
        self.controllers = controllers
        self.caller = caller
        self.sort = sort
        self.rights = rights
        self.ended = trio.Event()
        self._asker = asker
        self._send, self.questions = trio.open_memory_channel[observe_pb.Question](_QUESTIONS)
        self._waiting: dict[int, _Waiting] = {}

    async def ask(self, question: observe_pb.Question) -> observe_pb.AnswerRequest | None:
        """Return the answer of the process, or None if it does not answer in time.

        If the process may not be asked this question, return an empty answer.
        """
        if self.rights is not None:
            reduced = await self.rights.reduced(question)
            if reduced is None:
                return observe_pb.AnswerRequest(stuck=observe_pb.StuckList())
            question = reduced
        number = question.number = self._asker << _RANDOM | secrets.randbits(_RANDOM) | 1
        waiting = self._waiting[number] = _Waiting()
        try:
            with trio.move_on_after(PATIENCE):
                self._send.send_nowait(question)
                await waiting.answered.wait()
        except (trio.WouldBlock, trio.BrokenResourceError, trio.ClosedResourceError):
            return None
        finally:
            del self._waiting[number]
        answer = waiting.answer
        return (
            answer if answer is None or self.rights is None else await self.rights.corrected(answer, self.controllers)
        )

    def answered(self, answer: observe_pb.AnswerRequest) -> bool:
        """Hand an answer to the question that it belongs to. Return False if the question no longer waits."""
        waiting = self._waiting.get(answer.number)
        if waiting is None:
            return False
        waiting.answer = answer
        waiting.answered.set()
        return True

    def end(self) -> None:
        """End the stream of the process."""
        self._send.close()
        self.ended.set()


class _Waiting:
    """A question that waits for its answer."""

    def __init__(self) -> None:
        self.answered = trio.Event()
        self.answer: observe_pb.AnswerRequest | None = None


async def stuck_of(message: observe_pb.StuckList) -> observe_pb.StuckList:
    """Return the list of a process. It may be long, and there may be hundreds of processes."""
    items, standbys = await _cleaned(message.items), await _cleaned(message.standbys)
    message.items, message.standbys = [], []
    return replace(cleaned(message), items=items, standbys=standbys)


async def _cleaned(messages: Sequence[M]) -> list[M]:
    made = []
    for number, each in enumerate(messages, 1):
        made.append(cleaned(each))
        if number % TURN == 0:
            await give_way()
    return made
