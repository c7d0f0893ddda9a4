"""Answers why a resource is not done, shared by the viewers of the resource. Each viewer's rights apply afterwards."""

from __future__ import annotations

import trio

from headway._gen.headway.observe.v1 import Why
from headway.resource import ResourceId
from headway.why import ObserveHost

FRESH = 0.9
"""The time for which an answer is shared, in seconds from its question: less than the time between two looks."""


class _Question:
    """A question in progress, or its answer."""

    def __init__(self, began: float) -> None:
        self.began = began
        self.ended = trio.Event()
        self.why: Why | None = None


class SharedWhys:
    """The last answers. Each process is asked about a resource once a second, however many viewers it has."""

    def __init__(self, observe: ObserveHost) -> None:
        self._observe = observe
        self._questions: dict[ResourceId, _Question] = {}

    def __len__(self) -> int:
        return len(self._questions)

    async def why(self, id: ResourceId) -> Why:
        """Return an answer for all callers that is at most `FRESH` seconds old, or wait for a question in progress."""
        while True:
            question = self._questions.get(id)
            if question is None or (question.ended.is_set() and trio.current_time() - question.began >= FRESH):
                return await self._ask(id)
            await question.ended.wait()
            if question.why is not None:
                return question.why
            # The caller that asked was canceled or got an error, so ask again.

    async def _ask(self, id: ResourceId) -> Why:
        self._forget_old()
        question = self._questions[id] = _Question(trio.current_time())
        try:
            why = question.why = await self._observe.why(id)
        finally:
            if question.why is None:
                del self._questions[id]
            question.ended.set()
        return why

    def _forget_old(self) -> None:
        """Drop the answers that are too old to be shared, so that memory is bounded by the questions of a second."""
        limit = trio.current_time() - FRESH
        for id in [id for id, each in self._questions.items() if each.ended.is_set() and each.began <= limit]:
            del self._questions[id]
