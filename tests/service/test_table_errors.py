"""The answer of every verb in every situation: one row for each situation, one column for each verb."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from headway.errors import HeadwayError, StoreUnusable
from headway.resource import FINALIZERS, NAMESPACE, TOMBSTONE, Registry, Resource, ResourceId, ResourceType, TypeName
from headway.service import Decision
from headway.storage import Backend, MemoryBackend, SqliteBackend
from tests.helpers.calls import PLACES, Calls, Interrupted
from tests.helpers.declared import (
    CHILD,
    HOOKED,
    NOTE,
    NOTE_V2,
    PLANET,
    REGION,
    ULID,
    UNKNOWN,
    Note,
    a_note,
    a_type,
    an_id,
    registry,
)
from tests.helpers.service_errors import status_of
from tests.helpers.verb_answers import (
    EMPTY,
    FOUND,
    GONE,
    LEFT,
    OK,
    VERBS,
    Arguments,
    Cell,
    Difference,
    expected_answer,
    outcome,
)
from tests.service.conftest import TABLE_PLACES, reached

INVALID, MISSING, DENIED = "INVALID_ARGUMENT", "NOT_FOUND", "PERMISSION_DENIED"
CONFLICT, PRECONDITION, INTERNAL = "ABORTED", "FAILED_PRECONDITION", "INTERNAL"
UNAVAILABLE, BEHIND = "UNAVAILABLE", "OUT_OF_RANGE"


Given = Callable[[Calls], Awaitable[Arguments]]
NO_TYPE = ResourceType("tests", "v1", "Empty", Note)
NO_TYPE.name = TypeName("", "", "")
SCOPES = "a resource that Read can't find and Delete can't remove must not be stored"


def plain(**parts: Any) -> Given:
    """Prepare nothing."""

    async def given(_: Calls) -> Arguments:
        return Arguments(**parts)

    return given


def stored(uid: str | None = None, version: str = "", **parts: Any) -> Given:
    """Store a resource that owns another. ``uid`` and ``version`` replace the stored values in the request."""

    async def given(calls: Calls) -> Arguments:
        asked = Arguments(**parts)
        kept = await calls.stored(asked.resource)
        await calls.write(a_note("child", type=CHILD, owner=kept.id))
        asked.of(kept)
        asked.version = version
        asked.uid = asked.uid if uid is None else uid
        return asked

    return given


async def in_a_marked_namespace(calls: Calls) -> Arguments:
    await calls.make_room(("default", "up"))
    asked = Arguments(namespace="up")
    kept = await calls.stored(asked.resource)
    await calls.write(a_note("child", type=CHILD, owner=kept.id))
    await calls.delete(an_id("up", NAMESPACE))
    asked.text = "changed"
    return asked.of(kept)


async def finalizers_that_go_in_a_marked_namespace(calls: Calls) -> Arguments:
    await calls.make_room(("default", "up"))
    asked = Arguments(namespace="up", metadata={FINALIZERS: "a b"})
    kept = await calls.stored(asked.resource)
    await calls.delete(an_id("up", NAMESPACE))
    await calls.delete(asked.id)
    asked.metadata = {FINALIZERS: "a"}
    return asked.of(kept)


async def another_version_of_the_kind(calls: Calls) -> Arguments:
    asked = Arguments()
    kept = await calls.stored(Arguments(type=NOTE_V2).resource)
    await calls.write(a_note("child", type=CHILD, owner=kept.id))
    return asked.of(kept)


# Each row has a situation, its setup, and the answers in the order of `VERBS`. None: the verb does not apply.
ROWS: list[tuple[str, Given, tuple[Cell | None, ...]]] = [
    (
        "an invalid name",
        plain(name="No name"),
        (INVALID,) * 8,
    ),
    (
        "an invalid partition",
        plain(partition="Up"),
        (INVALID,) * 8,
    ),
    (
        "a type that is not registered",
        plain(type=UNKNOWN),
        (
            INVALID,
            INVALID,
            INVALID,
            INVALID,
            Difference(EMPTY, INVALID, "the uid is the owner, and its children can still be found"),
            INVALID,
            INVALID,
            INVALID,
        ),
    ),
    (
        "no type",
        plain(type=NO_TYPE),
        (INVALID,) * 8,
    ),
    ("a namespace on a partition-scoped type", plain(type=REGION, namespace="default"), (INVALID,) * 8),
    (
        "a tenancy on a cluster-scoped type",
        plain(type=PLANET, partition="default", namespace="default"),
        (
            INVALID,
            Difference(INVALID, OK, SCOPES),
            Difference(INVALID, OK, SCOPES),
            Difference(INVALID, OK, SCOPES),
            INVALID,
            INVALID,
            INVALID,
            Difference(INVALID, OK, SCOPES),
        ),
    ),
    (
        "a namespace that does not exist",
        plain(namespace="up"),
        (MISSING, INVALID, INVALID, EMPTY, EMPTY, GONE, EMPTY, INVALID),
    ),
    (
        "a partition that does not exist",
        plain(partition="far"),
        (MISSING, INVALID, INVALID, EMPTY, EMPTY, GONE, EMPTY, INVALID),
    ),
    (
        "a namespace that is marked for deletion",
        in_a_marked_namespace,
        (OK, INVALID, OK, FOUND, FOUND, GONE, FOUND, INVALID),
    ),
    (
        "finalizers removed in a namespace that is marked for deletion",
        finalizers_that_go_in_a_marked_namespace,
        (OK, OK, OK, FOUND, EMPTY, LEFT, FOUND, INVALID),
    ),
    ("a missing resource", plain(), (MISSING, OK, MISSING, EMPTY, EMPTY, GONE, EMPTY, OK)),
    (
        "a missing resource, by a version",
        plain(version="7"),
        (MISSING, CONFLICT, MISSING, EMPTY, EMPTY, GONE, EMPTY, OK),
    ),
    (
        "a missing resource, by a uid",
        plain(uid=ULID),
        (
            MISSING,
            Difference(PRECONDITION, OK, "a late write must not recreate a deleted resource"),
            MISSING,
            EMPTY,
            EMPTY,
            GONE,
            EMPTY,
            OK,
        ),
    ),
    (
        "a resource with another uid",
        stored(uid=ULID),
        (MISSING, PRECONDITION, MISSING, FOUND, EMPTY, LEFT, FOUND, OK),
    ),
    (
        "a resource at another version",
        stored(version="999"),
        (OK, CONFLICT, CONFLICT, FOUND, FOUND, CONFLICT, FOUND, OK),
    ),
    (
        "a resource at another version, without a uid",
        stored(uid="", version="999"),
        (
            OK,
            CONFLICT,
            None,
            FOUND,
            None,
            Difference(CONFLICT, OK, "the request has a version"),
            FOUND,
            OK,
        ),
    ),
    ("an existing resource", stored(), (OK, OK, OK, FOUND, FOUND, GONE, FOUND, OK)),
    (
        "a resource stored as another version of the kind",
        another_version_of_the_kind,
        (
            INVALID,
            OK,
            Difference(INVALID, INTERNAL, "the error is the caller's, not the server's"),
            EMPTY,
            FOUND,
            Difference(INVALID, INTERNAL, "the error is the caller's, not the server's"),
            EMPTY,
            OK,
        ),
    ),
    (
        "a resource that the validate hook refuses",
        plain(type=HOOKED, text="bad"),
        (None, INVALID, None, None, None, None, None, INVALID),
    ),
    (
        "a resource that the mutate hook fails on",
        plain(type=HOOKED, text="crash"),
        (None, INTERNAL, None, None, None, None, None, INTERNAL),
    ),
    (
        "a tombstone written by a caller",
        plain(name="tombstone-x", type=TOMBSTONE),
        (
            MISSING,
            Difference(INVALID, OK, "a tombstone would delete the children of a living owner"),
            MISSING,
            EMPTY,
            EMPTY,
            GONE,
            EMPTY,
            Difference(INVALID, OK, "a tombstone would delete the children of a living owner"),
        ),
    ),
]


def cells() -> list[Any]:
    """Return each cell as a test's parameters, named after its row and its verb."""
    return [
        pytest.param(given, verb, cell, id=f"{words}-{verb}")
        for words, given, row in ROWS
        for verb, cell in zip(VERBS, row, strict=True)
        if cell is not None
    ]


@pytest.mark.parametrize("anywhere", TABLE_PLACES, indirect=True)
@pytest.mark.parametrize(("given", "verb", "cell"), cells())
async def test_verb_answers_as_in_the_table(anywhere: Calls, given: Given, verb: str, cell: Cell) -> None:
    """The answer is the same on each store, in process and over the network.

    Internal failures are reported, too.
    """
    asked = await given(anywhere)
    assert await outcome(anywhere, verb, asked) == expected_answer(cell)
    assert [str(each) for each in anywhere.unexpected] == ["the hook is broken"] * (cell == INTERNAL)
    anywhere.unexpected.clear()


class Gate:
    """An authorizer that denies a given set of rights."""

    def __init__(self, *denied: str) -> None:
        self._denied = denied

    def may_know(self, type: TypeName) -> bool:  # noqa: ARG002 - the protocol's
        return True

    def may_read(self, id: ResourceId, resource: Resource[Any] | None) -> Decision:  # noqa: ARG002 - the protocol's
        return Decision.DENIED if "read" in self._denied else Decision.ALLOWED

    def may_write(self, id: ResourceId, resource: Resource[Any] | None) -> bool:  # noqa: ARG002 - likewise
        return "write" not in self._denied

    def may_delete(self, id: ResourceId) -> bool:  # noqa: ARG002 - likewise
        return "write" not in self._denied

    def may_take_lease(self, name: str) -> bool:  # noqa: ARG002 - the protocol's
        return True

    def may_list(self, type: TypeName, partition: str, namespace: str) -> bool:  # noqa: ARG002 - likewise
        return "list" not in self._denied


NO_SCOPE = "owned resources may be of any type in any tenancy, so each is authorized on its own"
# Each row has the denied rights, and the answers in the order of `VERBS`.
DENIALS: list[tuple[tuple[str, ...], tuple[Cell, ...]]] = [
    (("read", "write", "list"), (DENIED,) * 8),
    (("read",), (DENIED, OK, OK, EMPTY, DENIED, GONE, EMPTY, OK)),
    (("write",), (OK, DENIED, DENIED, FOUND, FOUND, DENIED, FOUND, DENIED)),
    (("list",), (OK, OK, OK, DENIED, Difference(FOUND, DENIED, NO_SCOPE), GONE, DENIED, OK)),
]


def denials() -> list[Any]:
    return [
        pytest.param(denied, verb, cell, id=f"no {', '.join(denied)}-{verb}")
        for denied, row in DENIALS
        for verb, cell in zip(VERBS, row, strict=True)
    ]


@pytest.mark.parametrize(("backend", "how"), PLACES[:1], indirect=["backend"])
@pytest.mark.parametrize(("denied", "verb", "cell"), denials())
async def test_denied_caller_is_answered_as_in_the_table(
    backend: Backend, how: str, denied: tuple[str, ...], verb: str, cell: Cell
) -> None:
    """Denied requests are refused. Unreadable resources are left out of lists."""
    asked = await stored()(Calls(backend, registry()))
    async with reached(how, backend, Gate(*denied)) as calls:
        assert await outcome(calls, verb, asked) == expected_answer(cell)
        assert calls.unexpected == []


class Unusable(Interrupted):
    """A store that has just become unusable."""

    def __init__(self, inner: Backend) -> None:
        super().__init__(inner)
        for method in ("read", "list", "list_by_owner", "commit", "watch"):
            setattr(self, method, self._fail)

    async def _fail(self, *_: object, **__: object) -> None:
        raise StoreUnusable("the disk is gone")


@pytest.mark.parametrize(("backend", "how"), PLACES, indirect=["backend"])
async def test_owned_resource_of_an_unregistered_type_is_found(backend: Backend, how: str) -> None:
    """In Consul, one such child makes the whole ListByOwner fail."""
    asked = await stored()(Calls(backend, registry()))
    without = Registry()
    without.register(NOTE)
    cell = Difference(FOUND, INVALID, "a child stored by an older program must not hide the other children")
    async with reached(how, backend, types=without) as calls:
        assert await outcome(calls, "ListByOwner", asked) == expected_answer(cell)


@pytest.mark.parametrize(("store", "how"), PLACES)
async def test_watch_that_the_store_cannot_continue_ends(store: str, how: str, tmp_path: Path) -> None:
    """Consul always answers ABORTED, and its clients then discard everything."""
    opened = MemoryBackend(max_changes=3) if store == "memory" else SqliteBackend(tmp_path / "s.db", max_changes=3)
    cell = Difference(
        BEHIND, CONFLICT, "history is compacted, but the cache is still true: take a new snapshot over it"
    )
    async with opened as backend, reached(how, backend) as calls:
        seen = backend.position
        for number in range(20):
            await calls.write(a_note(f"note-{number}"))
        with pytest.raises(HeadwayError) as caught:
            async with calls.watch(a_type(), resume_after=seen.message()) as items:
                await anext(items)
        assert status_of(caught.value).name == expected_answer(cell)


NOT_A_BUG = "it is not a bug, and the call can be retried"


@pytest.mark.parametrize(("backend", "how"), PLACES, indirect=["backend"])
async def test_store_that_cannot_answer_is_unavailable(backend: Backend, how: str) -> None:
    """Consul answers INTERNAL if a strongly consistent read is impossible."""
    expected = expected_answer(Difference(UNAVAILABLE, INTERNAL, NOT_A_BUG))
    async with reached(how, Unusable(backend)) as calls:
        for verb in VERBS:
            assert await outcome(calls, verb, Arguments(namespace="up")) == expected, verb
        assert calls.unexpected == []
