"""The answers of a cache's handles, by their questions. Equal questions share one answer."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar, cast

import trio

from headway.errors import InvalidArgument
from headway.notify._cuts import Cuts
from headway.notify._fetches import Fetch
from headway.notify._handle import Answer
from headway.notify._reads import Read

A = TypeVar("A", bound=Answer[Any])


class Answers:
    """The answers that have a handle.

    Args:
        nursery: runs the fetches.
    """

    def __init__(self, cuts: Cuts, nursery: trio.Nursery) -> None:
        self._cuts = cuts
        self._nursery = nursery
        self._answers: dict[Hashable, Answer[Any]] = {}

    def find(self, key: Hashable, make: Callable[[], A]) -> A:
        """Return the answer to a question. Make it, and begin it, if the question is new.

        Raises InvalidArgument for a question that is not hashable.
        """
        try:
            answer = self._answers.get(key)
        except TypeError as error:
            raise InvalidArgument(
                f"the arguments of a handle must be hashable, because equal ones share: {error}"
            ) from error
        if answer is None:
            answer = self._answers[key] = make()
            if isinstance(answer, Fetch):
                self._nursery.start_soon(answer.run, name=f"fetching {answer.name}")
            elif isinstance(answer, Read):
                self._cuts.add(answer)
        return cast("A", answer)

    def ended(self, answer: Answer[Any]) -> None:
        """Forget an answer without handles."""
        if self._answers.get(answer.key) is answer:
            del self._answers[answer.key]
            if isinstance(answer, Read):
                self._cuts.end_read(answer)
