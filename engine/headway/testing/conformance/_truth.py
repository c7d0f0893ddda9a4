"""The expected contents at any revision, computed from the writers' commits."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

import trio

from headway.resource import Position
from headway.storage import Backend, Operation
from headway.testing.conformance._reader import Held
from headway.testing.conformance._tools import putting, removing, thing

WRITERS = ("u", "v", "w", "x")
"""The writers of `Truth.writing`. The names of a writer's resources begin with its letter."""


class Fact(NamedTuple):
    """The effect of one commit on one name."""

    revision: int
    name: str
    uid: str
    deleted: bool


class Truth:
    """The commits of writers that each write resources of their own. They are complete once the writers have ended.

    Attributes:
        ended: set when all writers of `writing` have ended.
    """

    def __init__(self) -> None:
        self._facts: list[Fact] = []
        self.ended = trio.Event()

    @property
    def done(self) -> bool:
        """True if all writers of `writing` have ended."""
        return self.ended.is_set()

    @asynccontextmanager
    async def writing(self, backend: Backend, *, steps: int = 25) -> AsyncIterator[trio.Nursery]:
        """Run writers. Yields a nursery for tasks that read at the same time.

        The block ends when the writers and these tasks have ended; a reading task should run until `done`.
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
        """Create, change and delete three resources that no other writer touches, one or two in a commit."""
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
        """Return what was stored at a position."""
        there: Held = {}
        for revision, name, uid, deleted in sorted(self._facts):
            if revision > position.revision:
                break
            there.pop(("default", "default", name), None)
            if not deleted:
                there["default", "default", name] = (uid, str(revision))
        return there

    def after(self, position: Position) -> Sequence[tuple[int, str, bool]]:
        """Return the changes after a position, in the form of `summary`."""
        return [
            (fact.revision, fact.name, fact.deleted)
            for fact in sorted(self._facts)
            if fact.revision > position.revision
        ]


def owner_of(writer: str) -> str:
    """Return the uid of the owner of all resources of a writer."""
    return f"owner-of-{writer}"


def written_by(writer: str, there: Held) -> Held:
    """Return the part of a state that one writer has written."""
    return {key: value for key, value in there.items() if key[2].startswith(writer)}
