"""What was stored at any revision: recomputed from what writers have been told of their commits."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

import trio

from headway.resource import Position
from headway.storage import Backend, Operation
from headway.testing._conformance_tools import Held, putting, removing, thing

WRITERS = ("u", "v", "w", "x")
"""The writers of `Truth.writing`; the names that one writes begin with its letter."""


class Fact(NamedTuple):
    """What one commit did to one name."""

    revision: int
    name: str
    uid: str
    deleted: bool


class Truth:
    """The commits of writers who each write resources of their own, complete once they have ended.

    Attributes:
        ended: is set when all writers of `writing` have ended.
    """

    def __init__(self) -> None:
        self._facts: list[Fact] = []
        self.ended = trio.Event()

    @property
    def done(self) -> bool:
        """Whether all writers of `writing` have ended."""
        return self.ended.is_set()

    @asynccontextmanager
    async def writing(self, backend: Backend, *, steps: int = 25) -> AsyncIterator[trio.Nursery]:
        """Writers for the length of the block and longer; the nursery is for those who look meanwhile.

        Who looks goes on until `done`.
        """
        async with trio.open_nursery() as lookers:

            async def write_all() -> None:
                async with trio.open_nursery() as writers:
                    for writer in WRITERS:
                        writers.start_soon(self.write, backend, writer, steps)
                self.ended.set()

            lookers.start_soon(write_all)
            yield lookers

    async def write(self, backend: Backend, writer: str, steps: int = 25) -> None:
        """Create, change and delete three resources that nobody else writes, one or two in a commit."""
        choose = random.Random(writer)
        there: dict[str, tuple[str, str]] = {}
        names = [f"{writer}{letter}" for letter in "abc"]
        for step in range(steps):
            operations: list[Operation] = []
            facts: list[Fact] = []
            for name in choose.sample(names, choose.choice((1, 1, 2))):
                uid, version = there.get(name, (f"{name}-{step}", ""))
                resource = thing(name, uid=uid, owner_uid=owner_of(writer))
                deleted = bool(version) and choose.random() < 0.4
                operations.append(removing(resource, version) if deleted else putting(resource, version))
                facts.append(Fact(0, name, uid, deleted))
            revision = (await backend.commit(operations)).revision
            for fact in facts:
                self._facts.append(fact._replace(revision=revision))
                there.pop(fact.name, None)
                if not fact.deleted:
                    there[fact.name] = (fact.uid, str(revision))

    def at(self, position: Position) -> Held:
        """What was stored where a position is."""
        there: Held = {}
        for revision, name, uid, deleted in sorted(self._facts):
            if revision > position.revision:
                break
            there.pop(("default", "default", name), None)
            if not deleted:
                there["default", "default", name] = (uid, str(revision))
        return there

    def after(self, position: Position) -> Sequence[tuple[int, str, bool]]:
        """The changes after a position, as `told` has them."""
        return [
            (fact.revision, fact.name, fact.deleted)
            for fact in sorted(self._facts)
            if fact.revision > position.revision
        ]


def owner_of(writer: str) -> str:
    """The uid of what owns all that a writer has written."""
    return f"owner-of-{writer}"


def written_by(writer: str, there: Held) -> Held:
    """The part of a state that one writer has written."""
    return {key: value for key, value in there.items() if key[2].startswith(writer)}
