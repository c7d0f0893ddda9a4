"""A guarded service: the caller's identity decides the answer, and a refusal reveals nothing stored."""

from __future__ import annotations

import gc
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import pytest
from grpclib.const import Status
from typing_extensions import override

from headway.access import REFUSED, Access, Authorizer, Caller, Guarded, Limit, Policy, Rule, Token, new_token
from headway.api import Call, stream
from headway.base import CALLER
from headway.errors import HeadwayError
from headway.resource import ResourceId, pb, type_name
from headway.rpc import InProcessChannel
from headway.service import Decision, ResourceService
from headway.storage import Backend, MemoryBackend
from tests.helpers.declared import NOTE, PLANET, REGION, a_note, a_type, an_id, registry
from tests.helpers.service_errors import status_of

SERVICE = "/headway.resource.v1.ResourceService"
VERBS = ["read", "list", "watch", "write", "write_status", "delete"]


def token_for(*rules: Rule) -> tuple[str, Access]:
    text, token = new_token(["some"])
    return text, Access([Policy("some", rules)], [token])


def rule(*verbs: str, **changed: str) -> Rule:
    return Rule(verbs=verbs, **{"type": "tests.v1.*", "partition": "*", "namespace": "*", **changed})


async def said(text: str, authorizer: Authorizer, backend: Backend, name: str) -> tuple[Status, str | None]:
    channel = InProcessChannel(
        Guarded(lambda caller: ResourceService(backend, registry(), caller), authorizer, registry())
    )
    id = an_id(name, partition="default", namespace="default")
    try:
        request = pb.ReadRequest(id=id)
        await channel.unary(f"{SERVICE}/Read", request, pb.ReadResponse, metadata={"x-consul-token": text})
    except HeadwayError as error:
        return status_of(error), str(error)
    return Status.OK, None


async def test_denied_call_is_answered_alike_whether_or_not_the_resource_exists() -> None:
    """The caller has a wrong token, none, or one with too few rights. Only a reader learns of the resource."""
    backend = MemoryBackend()
    text, access = token_for(rule("read", name_prefix="mine"))
    authorizer = Authorizer(access)
    wrong = new_token([])[0]
    callers = (wrong, "", text)
    before = [await said(each, authorizer, backend, "theirs") for each in callers]
    absent = await said(text, authorizer, backend, "mine")
    for name in ("theirs", "mine"):
        request = pb.WriteRequest(resource=a_note(name))
        await InProcessChannel(ResourceService(backend, registry())).unary(
            f"{SERVICE}/Write", request, pb.WriteResponse
        )

    unknown = "permission denied: none of your rules covers type tests.v1.Note"
    missing = 'verbs: [read], type: tests.v1.Note, partition: "default", namespace: "default", name_prefix: "theirs"'
    denied = "permission denied: you may not read Note theirs"
    hint = f"{denied}: none of your rules covers all of it; ask for one such as {{{missing}}}"
    assert before == [
        (Status.UNAUTHENTICATED, REFUSED),
        (Status.PERMISSION_DENIED, f"{unknown}: no token was sent"),
        (Status.PERMISSION_DENIED, hint),
    ]
    assert [await said(each, authorizer, backend, "theirs") for each in callers] == before
    assert (absent[0], await said(text, authorizer, backend, "mine")) == (Status.NOT_FOUND, (Status.OK, None))


async def test_store_knows_for_which_caller_it_works() -> None:
    """Callers take turns there. Callers without a token take turns by their hosts."""
    text, access = token_for(rule("read"))
    seen: list[object] = []

    class Noted(MemoryBackend):
        @override
        async def read(self, *args: Any, **options: Any) -> Any:
            seen.append(CALLER.get())
            return await super().read(*args, **options)

    await said(text, Authorizer(access), Noted(), "one")
    assert seen == [text.split("_")[1]]


def _nothing() -> None:
    """Do nothing."""


class Recording(ResourceService):
    """A service that answers with the caller's rights, and calls ``meanwhile`` before that."""

    def __init__(self, caller: Caller) -> None:
        super().__init__(MemoryBackend(), registry())
        self._caller = caller
        self.meanwhile: Callable[[], None] = _nothing

    async def _answer(self, _: Call, request: Any) -> Any:
        name = ResourceId(NOTE.name, "one", "default", "default")
        tenancy = getattr(request, "tenancy", None) or pb.Tenancy(partition="*", namespace="*")
        type = type_name(getattr(request, "type", None) or a_type())
        answers = {
            "read": self._caller.may_read(name) is Decision.ALLOWED,
            "write": self._caller.may_write(name),
            "delete": self._caller.may_delete(name),
            "list": self._caller.may_list(type, tenancy.partition, tenancy.namespace),
        }
        self.meanwhile()
        return answers

    def __getattribute__(self, name: str) -> Any:
        # Each unary method answers so.
        unary = {each.name for each in type(self).methods.values() if not each.cardinality.server_streaming}
        return super().__getattribute__("_answer" if name in unary else name)

    @override
    @stream
    async def watch_list(self, call: Call, request: pb.WatchListRequest) -> AsyncGenerator[Any, None]:
        yield await self._answer(call, request)
        yield "more"


def recording(authorizer: Authorizer, meanwhile: Any = None) -> InProcessChannel:
    def serve(caller: Caller) -> Recording:
        service = Recording(caller)
        service.meanwhile = meanwhile or service.meanwhile
        return service

    return InProcessChannel(Guarded(serve, authorizer, registry()))


async def answers(channel: InProcessChannel, method: str, request: object, text: str) -> dict[str, bool]:
    metadata = {"authorization": f"Bearer {text}"}
    if method != "WatchList":
        return dict(await channel.unary(f"{SERVICE}/{method}", request, dict, metadata=metadata))
    async with channel.stream(f"{SERVICE}/{method}", request, metadata=metadata) as items:
        return dict(await anext(items))


@pytest.mark.parametrize(
    ("method", "question", "verb"),
    [
        ("Read", "read", "read"),
        ("List", "list", "list"),
        ("WatchList", "list", "watch"),
        ("ListByOwner", "read", "read"),
        ("Write", "write", "write"),
        ("MutateAndValidate", "write", "write"),
        ("WriteStatus", "write", "write_status"),
        ("Delete", "delete", "delete"),
    ],
)
async def test_called_method_determines_the_verb(method: str, question: str, verb: str) -> None:
    """The service asks about reading, writing, deleting and listing.

    The method decides which of the verbs is checked.
    """
    asked = {}
    # A listed resource must be readable as well, with either of the list verbs.
    also = ("read",) if question == "list" else ()
    for each in VERBS:
        text, access = token_for(rule(each, *also))
        asked[each] = (await answers(recording(Authorizer(access)), method, pb.ListRequest(), text))[question]

    assert [each for each in VERBS if asked[each]] == [verb]


@pytest.mark.parametrize("method", ["List", "WatchList"])
@pytest.mark.parametrize(("prefix", "allowed"), [("", False), ("mi", False), ("mine", True), ("mine-too", True)])
async def test_list_is_authorized_by_its_prefix(method: str, prefix: str, allowed: bool) -> None:
    """A caller with a rule for a prefix may list that prefix, and no more."""
    text, access = token_for(rule("list", "watch", "read", name_prefix="mine"))
    request = pb.ListRequest(type=a_type(), name_prefix=prefix)

    assert (await answers(recording(Authorizer(access)), method, request, text))["list"] is allowed


@pytest.mark.parametrize(
    ("type", "asked", "partition", "namespace"),
    [(PLANET, ("*", "*"), "", ""), (REGION, ("east", "*"), "east", ""), (NOTE, ("east", "*"), "east", "*")],
)
async def test_list_is_authorized_in_the_units_of_its_type(
    type: Any, asked: tuple[str, str], partition: str, namespace: str
) -> None:
    """In a store, units that a type does not have match any unit. The rule for types without units covers the list."""
    text, access = token_for(rule("list", "read", partition=partition, namespace=namespace))
    request = pb.ListRequest(type=a_type(type), tenancy=pb.Tenancy(partition=asked[0], namespace=asked[1]))

    assert (await answers(recording(Authorizer(access)), "List", request, text))["list"]


@pytest.mark.parametrize("method", ["List", "WatchList"])
@pytest.mark.parametrize(
    ("readable", "prefix", "allowed"),
    [
        ({}, "", True),
        ({"name_prefix": "mine"}, "", True),
        ({"name_prefix": "mine"}, "mine-too", True),
        ({"name_prefix": "mine"}, "theirs", False),
        ({"partition": "east", "namespace": "west"}, "", True),
        ({"type": "tests.v1.Planet"}, "", False),
        (None, "", False),
    ],
)
async def test_list_of_an_unreadable_scope_is_denied(
    method: str, readable: dict[str, str] | None, prefix: str, allowed: bool
) -> None:
    """The list would always be empty."""
    read = [] if readable is None else [rule("read", **readable)]
    text, access = token_for(rule("list", "watch"), *read)
    request = pb.ListRequest(type=a_type(), tenancy=pb.Tenancy(partition="*", namespace="*"), name_prefix=prefix)

    assert (await answers(recording(Authorizer(access)), method, request, text))["list"] is allowed


@pytest.fixture
async def watched() -> AsyncIterator[tuple[Authorizer, AsyncIterator[Any], Token]]:
    text, access = token_for(rule("view"))
    authorizer = Authorizer(access)
    metadata = {"x-consul-token": text}
    async with recording(authorizer).stream(f"{SERVICE}/WatchList", pb.WatchListRequest(), metadata=metadata) as items:
        await anext(items)
        yield authorizer, items, next(iter(access.tokens))


async def test_stream_continues_while_its_token_means_the_same(watched: Any) -> None:
    """A reload that changes nothing for the caller does not end the stream."""
    authorizer, items, token = watched
    authorizer.replace(Access([Policy("some", [rule("view")])], [token]))

    assert [item async for item in items] == ["more"]


async def test_stream_ends_with_its_token(watched: Any) -> None:
    """The token is revoked in the middle. Nothing more is sent, and the caller gets the reason."""
    authorizer, items, _ = watched
    authorizer.replace(Access())
    with pytest.raises(HeadwayError) as caught:
        await anext(items)

    assert (status_of(caught.value), str(caught.value)) == (Status.UNAUTHENTICATED, REFUSED)


@pytest.mark.parametrize("method", ["Read", "List", "ListByOwner", "Write", "WriteStatus", "Delete"])
async def test_token_that_ends_during_a_call_hides_no_write_and_truncates_no_list(method: str) -> None:
    """A completed write is answered. A read that may be incomplete is not."""
    text, access = token_for(rule("*"))
    authorizer = Authorizer(access)
    channel = recording(authorizer, lambda: authorizer.replace(Access()))
    is_write = method in ("Write", "WriteStatus", "Delete")
    if is_write:
        assert (await answers(channel, method, pb.ListRequest(), text))["delete"]
    else:
        with pytest.raises(HeadwayError, match=REFUSED):
            await answers(channel, method, pb.ListRequest(), text)


async def test_guarded_calls_are_freed_without_a_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call holds its request. In a cycle, requests of strangers would stay beyond the budget for them."""
    text, access = token_for(rule("read"))
    limit = Limit(name="many", categories=["read"], per=[], per_second=1e6, burst=1_000_000)
    access = Access(access.policies.values(), access.tokens, limits=[limit])
    alive: weakref.WeakSet[Call] = weakref.WeakSet()
    made = Call.__init__

    def noted(self: Call, *given: Any) -> None:
        made(self, *given)
        alive.add(self)

    monkeypatch.setattr(Call, "__init__", noted)
    gc.collect()
    gc.disable()
    try:
        for _ in range(20):
            await said(text, Authorizer(access), MemoryBackend(), "one")
        assert len(alive) <= 1
    finally:
        gc.enable()


def test_decision_is_neither_true_nor_false() -> None:
    """`if not caller.may_read(id)` would let everyone in."""
    for decision in Decision:
        with pytest.raises(TypeError, match="compare it"):
            bool(decision)
