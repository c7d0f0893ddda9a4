"""An authorizer that raises: the caller gets an error, and a writer learns that nothing was written."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable

import pytest
from grpclib.const import Status

from headway.access import Access, Authorizer, Guarded, Policy, Rule, new_token
from headway.client import Client, LeaseClient
from headway.errors import Conflict, HeadwayError, OutcomeUnknown, PayloadError, PermissionDenied, Unavailable
from headway.resource import Resource, pb
from headway.rpc import InProcessChannel
from headway.service import RESOURCE_SERVICE, Decision, LeaseService, ResourceService
from headway.storage import MemoryBackend
from tests.helpers.declared import NOTE, Note, registry
from tests.helpers.heard_writes import Heard
from tests.helpers.service_errors import status_of
from tests.service.conftest import reached


class Failing:
    """An authorizer that allows everything, and raises at one kind of question."""

    def __init__(self, error: Exception | None = None) -> None:
        self.question = ""
        self.fails: Callable[[], bool] = lambda: True
        self.error = error or LookupError("a mistake of the authorizer's")

    def _asked(self, question: str) -> bool:
        if question == self.question and self.fails():
            raise self.error
        return True

    def may_know(self, *_: object) -> bool:
        return self._asked("know")

    def may_read(self, *_: object) -> Decision:
        self._asked("read")
        return Decision.ALLOWED

    def may_write(self, *_: object) -> bool:
        return self._asked("write")

    def may_delete(self, *_: object) -> bool:
        return self._asked("delete")

    def may_take_lease(self, *_: object) -> bool:
        return self._asked("take")

    def may_list(self, *_: object) -> bool:
        return self._asked("list")

    def may_list_leases(self, *_: object) -> bool:
        return self._asked("list")

    def may_read_lease(self, *_: object) -> bool:
        return self._asked("read")


async def watched(client: Client) -> None:
    async with client.watch(NOTE) as items:
        await anext(aiter(items))


Verb = Callable[[Client, Resource[Note]], Awaitable[object]]
FAULTS: list[tuple[str, str, Verb]] = [
    ("know", "create", lambda client, _: client.create(NOTE.new("two"))),
    ("know", "delete", lambda client, one: client.delete(one)),
    ("write", "write", lambda client, _: client.write(NOTE.new("two"))),
    ("write", "update", lambda client, one: client.write(one)),
    ("write", "create", lambda client, _: client.create(NOTE.new("two"))),
    ("write", "write_status", lambda client, one: client.write_status(one, "mine", [])),
    ("write", "validate", lambda client, one: client.validate(one)),
    ("delete", "delete", lambda client, one: client.delete(one)),
    ("read", "delete", lambda client, one: client.delete(one)),
    ("read", "apply", lambda client, one: client.apply(one)),
    ("read", "read", lambda client, _: client.read(NOTE, "one")),
    ("read", "list", lambda client, _: client.list(NOTE)),
    ("list", "list", lambda client, _: client.list(NOTE)),
    ("read", "watch", lambda client, _: watched(client)),
    ("list", "watch", lambda client, _: watched(client)),
]


@pytest.mark.parametrize(
    ("question", "call"),
    [pytest.param(question, call, id=f"{question} in {verb}") for question, verb, call in FAULTS],
)
@pytest.mark.parametrize("how", ["in process", "network"])
async def test_authorizer_fault_leaves_no_unknown_outcome(how: str, question: str, call: Verb) -> None:
    """The authorizer is asked before anything is stored.

    The operator gets the error. Its text is not sent to the caller.
    """
    failing, heard = Failing(), Heard()
    async with reached(how, MemoryBackend(), failing) as calls:
        client = Client(calls.channel, registry(), heard)
        one = await client.write(NOTE.new("one"))
        one.metadata["changed"] = "yes"
        before = calls.revision
        failing.question = question
        with pytest.raises(Unavailable, match=r"^INTERNAL: the authorizer failed$"):
            await call(client, one)
        assert (len(heard.unknowns), calls.revision) == (0, before)
        assert {type(each) for each in calls.unexpected} == {LookupError}


@pytest.mark.parametrize("error", [Conflict("a secret"), PermissionDenied("a secret"), PayloadError("a secret")])
@pytest.mark.parametrize("question", ["know", "read"])
async def test_error_of_headway_in_an_authorizer_is_no_refusal(question: str, error: Exception) -> None:
    """Its text is the program's own. The operator gets it, and the caller does not."""
    failing, failed = Failing(error), list[BaseException]()
    service = ResourceService(MemoryBackend(), registry(), failing)
    client = Client(InProcessChannel(service, report=lambda _, each: failed.append(each)), registry())
    failing.question = question
    with pytest.raises(Unavailable, match=r"^INTERNAL: the authorizer failed$"):
        await client.read(NOTE, "one")
    assert failed == [error]


async def test_fault_while_a_similar_type_is_looked_for_is_no_refusal() -> None:
    """The names of types that the caller may know are offered for a type that is not registered."""
    failing, failed = Failing(), list[type[BaseException]]()
    asked = itertools.count()
    failing.fails = lambda: next(asked) > 0
    failing.question = "know"
    service = ResourceService(MemoryBackend(), registry(), failing)
    channel = InProcessChannel(service, report=lambda _, each: failed.append(type(each)))
    unknown = pb.Id(type=pb.Type(group="tests", group_version="v1", kind="Notee"), name="one")
    with pytest.raises(HeadwayError, match="the authorizer failed") as caught:
        await channel.unary(f"/{RESOURCE_SERVICE}/Read", pb.ReadRequest(id=unknown), pb.ReadResponse)
    assert (status_of(caught.value), failed) == (Status.INTERNAL, [LookupError])


@pytest.mark.parametrize("how", ["in process", "network"])
async def test_authorizer_fault_after_the_commit_leaves_the_outcome_unknown(how: str) -> None:
    """The content of a reply is authorized after the write is stored."""
    failing, heard = Failing(), Heard()
    async with reached(how, MemoryBackend(), failing) as calls:
        client = Client(calls.channel, registry(), heard)
        failing.question, failing.fails = "read", lambda: calls.revision > 0
        with pytest.raises(OutcomeUnknown):
            await client.write(NOTE.new("one"))
        assert (len(heard.unknowns), calls.revision) == (1, 1)


@pytest.mark.parametrize(
    ("question", "call"),
    [
        ("take", lambda leases: leases.acquire("staff/reports", "me", 15)),
        ("take", lambda leases: leases.raise_fence("staff/reports", "")),
        ("list", lambda leases: leases.list()),
        ("read", lambda leases: leases.list()),
    ],
)
async def test_fault_of_a_lease_authorizer_is_named(
    question: str, call: Callable[[LeaseClient], Awaitable[object]]
) -> None:
    """A holder tries again, and its report gives the reason."""
    backend, failing, failed = MemoryBackend(), Failing(), []
    await backend.acquire_lease("staff/other", "ada", 100.0, "")
    failing.question = question
    channel = InProcessChannel(LeaseService(backend, failing), report=lambda _, error: failed.append(type(error)))
    with pytest.raises(Unavailable, match=r"^INTERNAL: the authorizer failed$"):
        await call(LeaseClient(channel))
    assert failed == [LookupError]


@pytest.mark.parametrize("verb", ["write", "write_status", "delete", "read"])
async def test_authentication_fault_leaves_no_unknown_outcome(verb: str) -> None:
    """For example, the clock that a token's expiry is compared with may raise."""
    text, token = new_token(["all"], expires_at=100.0)
    everything = Rule(verbs=["*"], type="*", partition="*", namespace="*")
    works = True

    def clock() -> float:
        if not works:
            raise LookupError("a mistake of the clock's")
        return 0.0

    access = Authorizer(Access([Policy("all", [everything])], [token]), clock=clock)
    backend, heard, failed = MemoryBackend(), Heard(), []
    guarded = Guarded(lambda caller: ResourceService(backend, registry(), caller), access, registry())
    channel = InProcessChannel(guarded, report=lambda _, error: failed.append(type(error)))
    client = Client(channel, registry(), heard, token=text)
    one = await client.write(NOTE.new("one"))
    works = False
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "write": lambda: client.write(NOTE.new("two")),
        "write_status": lambda: client.write_status(one, "mine", []),
        "delete": lambda: client.delete(one),
        "read": lambda: client.read(NOTE, "one"),
    }
    with pytest.raises(HeadwayError, match=r"^INTERNAL: the authorizer failed$") as caught:
        await calls[verb]()
    assert type(caught.value) is Unavailable
    assert (len(heard.unknowns), backend.position.revision, failed) == (0, 1, [LookupError])
