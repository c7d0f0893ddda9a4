"""What a process that attends is asked about, and may speak about: what its caller may read, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

import pytest
import trio

import headway
from headway import field
from headway._gen.headway.observe import v1 as observe_pb
from headway.access import Access, Authorizer, Guarded, Policy, Rule, new_token
from headway.resource import Need, ResourceId, TypeName, pb
from headway.rpc import InProcessChannel
from headway.why import ATTEND, OBSERVE_SERVICE, ObserveHost, ObserveService
from tests.helpers.why_programs import Team
from tests.why.test_workers import rule

T = TypeVar("T")
ANSWER = f"/{OBSERVE_SERVICE}/Answer"


@headway.message(name="tests.Account")
class Account:
    office: str = field(1)


app = headway.App("bank")
TEAM = app.type("staff", "v1", "Team", Team)
OFFICE = app.type("staff", "v1", "Office", Team)
V1 = app.type("bank", "v1", "Account", Account)
V2 = app.type(
    "bank",
    "v2",
    "Account",
    Account,
    hooks=headway.Hooks(needs=lambda verb, account: [Need(verb, OFFICE.id(account.data.office))]),
)
app.converter(V1, V2, up=lambda old: Account(office=old.office), down=lambda new: Account(office=new.office))
MERGER = V1.id("merger")
LEASE = Rule(verbs=["write"], type="internal.v1.Lease", partition="", namespace="", name_prefix="bank/")
TEAMS = rule(["view"], "staff.v1.Team")


def ref(type: TypeName, name: str = "") -> observe_pb.Ref:
    return observe_pb.Ref(str(type), "default", "default", name)


def stuck(type: TypeName, name: str, controller: str = "bank/teams") -> observe_pb.StuckItem:
    return observe_pb.StuckItem(controller, resource=ref(type, name), state="waiting", since=1.0)


class Process:
    """A process that attends with some rules, and notes what it is asked. To each question it gives one answer."""

    def __init__(self, host: ObserveHost, *rules: Rule) -> None:
        text, token = new_token(["workers"])
        authorizer = Authorizer(Access([Policy("workers", rules)], [token]))
        services = Guarded(lambda each: ObserveService(host, app.registry, each), authorizer, app.registry)
        self._channel = InProcessChannel(services)
        self._metadata = {"x-consul-token": text}
        self.asked: list[observe_pb.Question] = []
        self.answer = observe_pb.AnswerRequest(stuck=observe_pb.StuckList())

    @asynccontextmanager
    async def attending(self, manages: TypeName = TEAM.name) -> AsyncIterator[None]:
        controllers = [observe_pb.Attended("bank/teams", manages.message())]
        request = observe_pb.AttendRequest("web-1", controllers)
        async with AsyncExitStack() as stack:
            questions = await stack.enter_async_context(self._channel.stream(ATTEND, request, metadata=self._metadata))
            await anext(questions)
            nursery = await stack.enter_async_context(trio.open_nursery())
            nursery.start_soon(self._answer, questions)
            yield
            nursery.cancel_scope.cancel()

    async def _answer(self, questions: AsyncIterator[observe_pb.Question]) -> None:
        async for each in questions:
            self.asked.append(each)
            self.answer.number = each.number
            await self._channel.unary(ANSWER, self.answer, observe_pb.AnswerResponse, metadata=self._metadata)


def storing(*stored: pb.Resource) -> ObserveHost:
    async def read(id: ResourceId) -> pb.Resource | None:
        return next((each for each in stored if each.id is not None and each.id.name == id.name), None)

    return ObserveHost(read)


async def answered(process: Process, ask: Callable[[], Awaitable[T]], manages: TypeName = TEAM.name) -> T:
    async with process.attending(manages):
        return await ask()


@pytest.mark.parametrize(
    ("rules", "asked"),
    [
        ([TEAMS], False),
        ([TEAMS, rule(["view"], "bank.v1.Account", "other")], False),
        ([TEAMS, rule(["list", "observe"], "bank.*.Account")], False),
        # Controllers answer about the types that they watch, too.
        ([TEAMS, rule(["view"], "bank.v1.Account", "mer")], True),
    ],
)
async def test_process_is_asked_about_what_its_caller_may_read(rules: Sequence[Rule], asked: bool) -> None:
    """It learns no other name, and delays no answer."""
    host = storing()
    process = Process(host, LEASE, *rules)
    why = await answered(process, lambda: host.why(MERGER))
    assert [each.why is not None and each.why.name for each in process.asked] == (["merger"] if asked else [])
    assert why.unreachable == []


async def test_process_speaks_as_manager_of_the_types_that_it_attends_for_only() -> None:
    """Of another type it can say that it watches it."""
    host = storing()
    process = Process(host, LEASE, TEAMS, rule(["view"], "bank.*.Account"), rule(["view"], "staff.v1.Office"))
    for role, seen in (("manages", 0), ("watches", 1)):
        process.answer.controllers = [
            observe_pb.ControllerWhy("bank/teams", role=role, state="waiting", error="run me")
        ]
        assert len((await answered(process, lambda: host.why(MERGER))).controllers) == seen


async def test_process_names_only_what_its_caller_may_read() -> None:
    """In the list of what is stuck, and among what fails."""
    host = storing()
    process = Process(host, LEASE, TEAMS)
    process.answer = observe_pb.AnswerRequest(
        stuck=observe_pb.StuckList(
            items=[
                stuck(TEAM.name, "core"),
                stuck(V1.name, "merger"),
                stuck(TEAM.name, ""),
                stuck(V1.name, ""),
                observe_pb.StuckItem("bank/teams", resource=observe_pb.Ref("no type", name="x")),
                observe_pb.StuckItem("bank/teams"),
            ]
        ),
        now=[
            observe_pb.ControllerNow(
                "bank/teams",
                failing=[observe_pb.Failing(ref(TEAM.name, "core")), observe_pb.Failing(ref(V1.name, "merger"))],
            )
        ],
    )
    said = (await answered(process, lambda: host.stuck(1))).items
    assert [(each.resource.type, each.resource.name) for each in said if each.resource is not None] == [
        ("staff.v1.Team", "core"),
        ("staff.v1.Team", ""),
    ]
    host._gone.clear()
    [of], _ = await answered(process, lambda: host.elsewhere(10))
    assert of.now is not None
    assert [each.resource.name for each in of.now.failing if each.resource is not None] == ["core"]
