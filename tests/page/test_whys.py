"""Viewers of a resource share one question, and nothing else: each gets what their own rights allow."""

from __future__ import annotations

from contextlib import suppress

import trio
import trio.testing
from trio.testing import MockClock

from headway._gen.headway.observe import v1 as observe_pb
from headway.api import Call
from headway.errors import HeadwayError
from headway.page import PageHost, PageService, StoreParts
from headway.storage import MemoryBackend
from headway.why import OBSERVE_SERVICE, ObserveHost, Why
from tests.page import shop
from tests.page.kit import EVERYTHING, open_shop, rule
from tests.why.test_workers import ATTEND, CORE, attend, channel_to, nothing, types_only


async def test_viewers_of_a_resource_share_one_question_a_second(autojump_clock: MockClock) -> None:
    """Whether they ask together or one by one. When the one that asked leaves, the others still get an answer."""
    host = ObserveHost(nothing)
    page = PageHost([types_only()], host, types_only().registry, StoreParts(MemoryBackend()))
    whys, channel = page.whys, channel_to(host)
    async with channel.stream(ATTEND, attend("web-1", "staff/teams")) as questions:
        await anext(questions)
        asked, found, answering = 0, list[Why](), trio.Event()

        async def answer() -> None:
            nonlocal asked
            async for question in questions:
                asked += 1
                await answering.wait()
                message = observe_pb.AnswerRequest(number=question.number)
                # Nobody waits for the answer to the question of the viewer that has left.
                with suppress(HeadwayError):
                    await channel.unary(f"/{OBSERVE_SERVICE}/Answer", message, observe_pb.AnswerResponse)

        async def look(scope: trio.CancelScope | None = None) -> None:
            with scope or trio.CancelScope():
                found.append(await whys.why(CORE))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer)
            leaving = trio.CancelScope()
            async with trio.open_nursery() as viewers:
                viewers.start_soon(look, leaving)
                await trio.testing.wait_all_tasks_blocked()
                for _ in range(100):
                    viewers.start_soon(look)
                await trio.testing.wait_all_tasks_blocked()
                assert asked == 1
                leaving.cancel()
                await trio.testing.wait_all_tasks_blocked()
                answering.set()
            # One more, by one of the others.
            assert (asked, len(found), len({id(each) for each in found})) == (2, 100, 1)
            await trio.sleep(0.5)
            await look()
            assert asked == 2
            await trio.sleep(0.5)
            await look()
            assert asked == 3
            await trio.sleep(60)
            await whys.why(CORE._replace(name="other"))
            assert (asked, len(whys)) == (4, 1)
            # The service of each request shares them.
            for _ in range(3):
                service = PageService(page, types_only().registry)
                await service.why(Call(), observe_pb.WhyRequest(id=CORE.message()))
            assert (asked, len(whys)) == (5, 2)
            nursery.cancel_scope.cancel()


async def test_shared_answer_is_reduced_to_the_rights_of_each_viewer() -> None:
    """One who may observe everything looks first, and the names that others may not know stay unknown to them."""
    rules = {"all": [EVERYTHING], "orders": [rule("observe")], "nobody": [rule("observe", type="shop.v1.Depot")]}
    async with open_shop(rules=rules) as running:
        await running.client.apply(shop.ORDER.new("core", shop.Order(customer="ada", items=["tea"])))
        await running.engine.wait_idle()
        path = "/page/resource?type=shop.v1.Order&name=core"
        async with (
            running.visitor("all") as one,
            running.visitor("orders") as two,
            running.visitor("nobody") as three,
            one.events(path) as every,
            two.events(path) as some,
            three.events(path) as none,
        ):
            told = [str((await each.next("resource"))["why"]["timeline"]) for each in (every, some)]
            assert none.code == 403
        # The invoice that the reconcile wrote, and read, is of another type.
        written = "{'type': 'shop.v1.Invoice', 'partition': 'default', 'namespace': 'default', 'name': 'core'}"
        assert (written in told[0], "Invoice core" in told[0]) == (True, True)
        # Of what it may not know, a viewer learns the type and no name.
        assert (written in told[1], "Invoice core" in told[1], "Invoice" in told[1]) == (False, False, True)
