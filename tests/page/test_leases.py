"""The leases and the failures in the lists of the page, by the rights of their caller."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import headway
from headway.access import Rule
from headway.client import LeaseClient
from headway.page import PageHost, StoreParts, _host, _leases
from headway.page._failing import failing_of
from headway.page._others import Other
from headway.page._overview import Visible, overview
from headway.rpc import InProcessChannel, Services
from headway.service import LeaseService
from headway.storage import MemoryBackend
from headway.why import ControllerNow, Elsewhere, Failing, ObserveHost, Ref
from tests.page import shop
from tests.page.kit import EVERYTHING, Shop, Visitor, open_shop, rule
from tests.page.opened import lost_order
from tests.why.test_workers import nothing, types_only

ORDERS = "/page/search?type=shop.v1.Order"


async def hold(backend: MemoryBackend, *names: str) -> None:
    """Let a process hold leases of this name."""
    client = LeaseClient(InProcessChannel(Services(LeaseService(backend))))
    for name in names:
        assert (await client.acquire(name, f"holder of {name}", 600)).acquired


async def test_leases_are_listed_by_rights_and_by_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    """With holder, since when, its last renewal, and its end. Without the right to list them there are none."""
    verbs = ["list", "read"]
    leases = Rule(verbs=verbs, type="internal.v1.Lease", partition="", namespace="", name_prefix="staff/")
    backend = MemoryBackend()
    await hold(backend, "staff/teams", "staff/rooms#3", "other/things")
    async with open_shop(
        store=backend, rules={"all": [EVERYTHING], "staff": [leases, rule("view")], "none": [rule("view")]}
    ) as shop_:
        async with shop_.visitor("all") as visitor:
            found = (await visitor.http.get("/page/leases")).json()
            held = {each["name"]: each for each in found["leases"]}
            assert {"staff/teams", "staff/rooms#3", "other/things"} <= held.keys()
            assert list(held) == sorted(held)
            teams = held["staff/teams"]
            assert (teams["holder"], teams["ttl"], teams["term"]) == ("holder of staff/teams", 600, 1)
            assert 0 <= teams["renewed"] < 60
            assert 540 < teams["ends"] <= 600
            assert teams["renewed"] + teams["ends"] == pytest.approx(600, abs=0.01)
            [listed] = await shop_.client.leases.list("staff/t")
            assert listed.acquired_at is not None
            assert teams["since"] == pytest.approx(listed.acquired_at.timestamp())
            assert (await visitor.http.get("/page/leases?prefix=nobody")).json() == {"leases": [], "more": 0}
            assert (await visitor.http.get("/page/leases?other=x")).status_code == 400
            monkeypatch.setattr(_leases, "LEASES", 1)
            cut = (await visitor.http.get("/page/leases?prefix=staff/")).json()
            assert ([each["name"] for each in cut["leases"]], cut["more"]) == (["staff/rooms#3"], 1)
        async with shop_.visitor("staff") as visitor:
            found = (await visitor.http.get("/page/leases?prefix=staff/t")).json()
            assert [each["name"] for each in found["leases"]] == ["staff/teams"]
            assert (await visitor.http.get("/page/leases")).status_code == 403
        async with shop_.visitor("none") as visitor:
            assert (await visitor.http.get("/page/leases?prefix=staff/")).status_code == 403


async def failing(visitor: Visitor, query: str = "") -> dict[str, object]:
    answer = await visitor.http.get(ORDERS + query)
    assert answer.status_code == 200, answer.text
    rows = {each["name"]: each.get("failing", "not shown") for each in answer.json()["rows"]}
    # The first failure writes a condition, for which there may be another attempt or not.
    assert all(each.pop("attempts") >= 1 for row in rows.values() if row != "not shown" for each in row)
    return rows


async def failed(running: Shop, name: str) -> None:
    """Store an order that fails, and wait until the page knows of it."""
    await lost_order(running, name)
    async with running.visitor("all") as visitor, visitor.events("/page/live") as live:
        await live.until(lambda event: any(each["resource"]["name"] == name for each in event.get("failing", ())))


async def test_list_says_what_fails_to_those_who_may_observe_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those alone, without the others. Without the right, the list says nothing about it, and finds nothing."""
    monkeypatch.setattr(_host, "TICK", 0.05)
    rules = {
        "all": [EVERYTHING],
        "views": [rule("view")],
        "some": [rule("view"), rule("observe", name_prefix="lost-1")],
    }
    async with open_shop(rules=rules) as running:
        await running.client.apply(shop.ORDER.new("fine", shop.Order(customer="ada", items=["tea"])))
        for name in ("lost-1", "lost-2"):
            await failed(running, name)
        error = "ValueError: order {} has no customer to send an invoice to"
        one, two = (
            [{"controller": "shop/billing", "outcome": "failed", "error": error.format(name)}]
            for name in ("lost-1", "lost-2")
        )
        async with running.visitor("all") as visitor:
            assert await failing(visitor) == {"fine": [], "lost-1": one, "lost-2": two}
            assert await failing(visitor, "&failing=yes") == {"lost-1": one, "lost-2": two}
            assert await failing(visitor, "&failing=yes&q=2") == {"lost-2": two}
            assert (await visitor.http.get(ORDERS + "&failing=no")).status_code == 400
        async with running.visitor("views") as visitor:
            assert await failing(visitor) == dict.fromkeys(("fine", "lost-1", "lost-2"), "not shown")
            assert await failing(visitor, "&failing=yes") == {}
        async with running.visitor("some") as visitor:
            assert await failing(visitor) == {"fine": "not shown", "lost-1": one, "lost-2": "not shown"}
            assert await failing(visitor, "&failing=yes") == {"lost-1": one}


async def test_failures_of_other_processes_are_in_the_list_the_newest_first() -> None:
    """A type that a process makes up is none, and a process that is gone fails no more."""

    def of(process: str, *failing: Failing, gone: float = 0.0) -> Other:
        kind = shop.ORDER.kind
        return Other(Elsewhere("", process, "shop/billing", kind, ControllerNow(failing=list(failing)), gone=gone))

    def order(at: float, error: str, type: str = "shop.v1.Order") -> Failing:
        return Failing(Ref(type, "p", "n", "a"), "failed", error, 2, at)

    host = PageHost([], ObserveHost(nothing), types_only().registry, StoreParts(MemoryBackend()))
    host.others.seen = [
        of("web-1", order(1, "old"), order(3, "other type", "shop.v1.Parcel"), order(3, "no type", "Order")),
        of("web-2", order(2, "x" * 1000), Failing()),
        of("web-3", order(9, "gone"), gone=1.0),
    ]
    [(key, found)] = (await failing_of(host, shop.ORDER.kind)).items()
    assert key == ("p", "n", "a")
    assert [(each["error"][0], each["attempts"]) for each in found] == [("x", 2), ("o", 2)]
    assert len(found[0]["error"]) < 200
    assert await failing_of(host, headway.App("x").type("other", "v1", "Order", shop.Order).kind) == {}


async def test_many_failures_of_one_resource_leave_turns_and_are_shown_in_part() -> None:
    """A process invents the names of its controllers, and may say of each that the same resource fails."""
    order = Failing(Ref("shop.v1.Order", "p", "n", "a"), "failed", "no", 2, 1.0)
    host = PageHost([], ObserveHost(nothing), types_only().registry, StoreParts(MemoryBackend()))
    now = ControllerNow(failing=[order] * 40)
    host.others.seen = [Other(Elsewhere("", "web-1", f"shop/{n}", shop.ORDER.kind, now)) for n in range(100)]
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        [found] = (await failing_of(host, shop.ORDER.kind)).values()
        nursery.cancel_scope.cancel()
    assert len(found) == 20
    assert turns >= 10


async def test_failing_says_since_when_its_work_has_been_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through all attempts. What has given up is not pending."""
    monkeypatch.setattr(_host, "TICK", 0.05)
    app = headway.App("staff")
    team = app.type("staff", "v1", "Team", shop.Order)

    @app.controller(manages=team, backoff=headway.Backoff(base=0.01, maximum=0.02))
    async def teams(_: headway.Runtime, request: headway.Request[shop.Order]) -> None:
        raise headway.PermanentFailure("given up") if request.id.name == "ends" else ValueError("no")

    async with open_shop(app=app) as running:
        for name in ("ends", "goes-on"):
            await running.client.apply(team.new(name, shop.Order()))
        async with running.visitor() as visitor, visitor.events("/page/live") as live:

            def entries(event: dict[str, object]) -> dict[str, dict[str, float]]:
                found: list[dict[str, dict[str, float]]] = event.get("failing", [])  # type: ignore[assignment]  # JSON
                return {each["resource"]["name"]: each for each in found}  # type: ignore[misc]  # likewise

            def enough(attempts: float) -> object:
                return lambda event: entries(event).get("goes-on", {"attempts": 0})["attempts"] > attempts

            first = entries(await live.until(enough(1)))
            later = entries(await live.until(enough(first["goes-on"]["attempts"] + 2)))
            assert first["ends"]["pendingSince"] is None
            assert first["ends"]["outcome"] == "permanent"
            since = [each["goes-on"]["pendingSince"] for each in (first, later)]
            assert since[0] == pytest.approx(since[1], abs=0.01)
            assert later["goes-on"]["at"] > first["goes-on"]["at"] > since[0]
            why = (await running.engine.why(team.id("goes-on"))).controllers[0]
            assert why.owed_since == pytest.approx(since[0], abs=0.01)


OBSERVE = rule("observe", type="shop.*.*")
READ = Rule(verbs=["read"], type="internal.v1.Lease", partition="", namespace="", name_prefix="shop/billing")


async def test_overview_shows_who_holds_a_lease_only_to_callers_who_may_read_it() -> None:
    """As `why` does. Others learn that the controller stands by."""
    backend = MemoryBackend()
    await hold(backend, "shop/billing", "shop/shipping")
    rules = {"observer": [OBSERVE], "reader": [OBSERVE, READ]}
    async with open_shop(store=backend, rules=rules) as shop_:
        for token, holder in (("observer", ""), ("reader", "holder of shop/billing")):
            async with shop_.visitor(token) as visitor, visitor.events("/page/live") as live:
                state = await live.until(lambda event: len(standing_by(event)) == 2)
                assert standing_by(state) == {"shop/billing": holder, "shop/shipping": ""}


def standing_by(event: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["leader"] for each in event.get("controllers", ()) if each["phase"] == "standby"}


def test_holder_that_another_process_names_is_shown_by_the_same_right() -> None:
    page = PageHost([types_only()], ObserveHost(nothing), types_only().registry, StoreParts(MemoryBackend()))
    known = frozenset(each.name for each in types_only().registry)
    names = ("staff/teams", "staff/rooms")
    page.others.seen = [
        Other(Elsewhere("", "web-1", each, ("staff", "Team"), ControllerNow(each, phase="standby", leader="web-7")))
        for each in names
    ]
    visible = Visible(frozenset(), known, known, reads_lease=lambda name: name == "staff/teams")
    assert [each["leader"] for each in overview(page, visible, ())["elsewhere"]] == ["web-7", ""]
