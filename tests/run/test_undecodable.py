"""Stored payloads that do not decode. Only the resources that have them are missing from indexes and mappers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

import headway
from headway import events
from headway.observe import Metrics, Pages, unready
from headway.resource import AnyMessage, pb
from headway.storage import Backend, MemoryBackend, Put
from tests.helpers.resources import Account, Team

GARBAGE = b"\x0a\x30" + b"\xff" * 48


class Program:
    """Teams list their accounts by an index, and a mapper maps each account to its team."""

    def __init__(self, *, projected: bool = False) -> None:
        self.app = headway.App("staff")
        self.team = self.app.type("staff", "v1", "Team", Team)
        self.account = self.app.type("staff", "v1", "Account", Account)
        self.seen: dict[str, list[str]] = {}
        self.runs: list[str] = []
        self.heard: list[object] = []
        self.metrics = Metrics()
        held: Any = headway.projection(self.account, Account, lambda each: each.data) if projected else self.account
        by_login = headway.indexes.by(held, "login", lambda account: account.data.login)

        def team_of(account: headway.Resource[Account], _: headway.CacheReader) -> Iterable[headway.ResourceId]:
            return [self.team.id(account.data.login)]

        @self.app.controller(
            manages=self.team, watches=[headway.watch(held, team_of, when=_login_changed)], indexes=[by_login]
        )
        async def teams(rt: headway.Runtime, request: headway.Request[Team]) -> None:
            self.runs.append(request.id.name)
            self.seen[request.id.name] = [each.name for each in rt.cache.index(by_login, request.id.name)]

    def report(self, event: object) -> None:
        self.heard.append(event)
        self.metrics(event)

    def of(self, kind: type) -> list[object]:
        return [each for each in self.heard if type(each) is kind]

    def garbage(self, name: str, over: headway.Resource[Account] | None = None) -> Put:
        uid, version = (f"uid-{name}", "") if over is None else (over.uid, over.version)
        resource = pb.Resource(
            id=pb.Id(uid=uid, name=name, type=self.account.message, tenancy=self.account.tenancy),
            generation="01ARZ3NDEKTSV4RRFFQ69G5FAX",
            data=AnyMessage(type_url=self.account.type_url, value=GARBAGE),
        )
        return Put(self.account.kind, ("default", "default", name), resource, version)


def _login_changed(old: headway.Resource[Account] | None, new: headway.Resource[Account] | None) -> bool:
    return old is None or new is None or old.data.login != new.data.login


async def put(store: Backend, program: Program, name: str, over: headway.Resource[Account] | None = None) -> None:
    """Store garbage as another writer of the same store would, without the checks of the service."""
    await store.commit((program.garbage(name, over),))


async def wait_idle(engine: headway.Engine) -> None:
    with trio.fail_after(60):
        await engine.wait_idle()


@pytest.mark.parametrize("projected", [False, True])
async def test_undecodable_payload_stops_no_reconcile(autojump_clock: MockClock, projected: bool) -> None:
    """The payload may be stored before the run or during it. The other resources are indexed, mapped and reconciled."""
    assert autojump_clock.autojump_threshold == 0
    program, store = Program(projected=projected), MemoryBackend()
    await put(store, program, "old")
    async with headway.open_engine(store, program.app, report=program.report) as engine:
        await engine.client.write(program.team.new("core"))
        await engine.client.write(program.account.new("ada", Account(login="core")))
        await wait_idle(engine)
        await put(store, program, "new")
        await engine.client.write(program.account.new("bob", Account(login="core")))
        await wait_idle(engine)
        assert program.seen["core"] == ["ada", "bob"]
        assert not [each for each in program.of(events.Reconciled) if getattr(each, "error", None)]
        for kind in (events.IndexFailed, events.MappingFailed, events.ProjectionFailed):
            assert program.of(kind) == []


@pytest.mark.parametrize("projected", [False, True])
async def test_decodable_state_of_a_change_is_still_mapped(autojump_clock: MockClock, projected: bool) -> None:
    """An account becomes undecodable and is repaired. Each time, the team that it left or joined is reconciled (C6)."""
    assert autojump_clock.autojump_threshold == 0
    program, store = Program(projected=projected), MemoryBackend()
    async with headway.open_engine(store, program.app, report=program.report) as engine:
        for team in ("core", "edge"):
            await engine.client.write(program.team.new(team))
        ada = await engine.client.write(program.account.new("ada", Account(login="core")))
        await wait_idle(engine)
        assert program.seen == {"core": ["ada"], "edge": []}
        await put(store, program, "ada", ada)
        await wait_idle(engine)
        assert program.seen == {"core": [], "edge": []}
        await engine.client.write(program.account.new("ada", Account(login="edge")))
        await wait_idle(engine)
        assert program.seen == {"core": [], "edge": ["ada"]}
        assert engine.controllers["teams"].status().notice == ""


class Owned:
    """A mapper maps an account to its team by a label, without reading the payload."""

    def __init__(self, *, looks: bool) -> None:
        self.program = Program()
        self.app, self.runs, self.failures = headway.App("staff"), list[str](), 0
        self.team = self.app.type("staff", "v1", "Team", Team)
        self.account = self.app.type("staff", "v1", "Account", Account)

        def team_of(account: headway.Resource[Account], _: headway.CacheReader) -> Iterable[headway.ResourceId]:
            if self.failures:
                self.failures -= 1
                raise RuntimeError("of the mapper's own")
            return [self.team.id(account.metadata["team"])]

        def judged(old: headway.Resource[Account] | None, new: headway.Resource[Account] | None) -> bool:
            return all(each is None or each.data.login != "" for each in (old, new))

        watch = headway.watch(self.account, team_of, when=judged if looks else None)

        @self.app.controller(manages=self.team, watches=[watch])
        async def teams(_: headway.Runtime, request: headway.Request[Team]) -> None:
            self.runs.append(request.id.name)

    async def deleted(self, failures: int) -> list[str]:
        """Return the teams that are reconciled when an undecodable account is deleted."""
        store = MemoryBackend()
        async with headway.open_engine(store, self.app, report=self.program.report) as engine:
            for team in ("core", "edge"):
                await engine.client.write(self.team.new(team))
            put = self.program.garbage("ada")
            put.resource.metadata["team"] = "core"
            await store.commit((put,))
            await wait_idle(engine)
            self.runs.clear()
            self.failures = failures
            await engine.client.delete(self.account.id("ada"))
            await wait_idle(engine)
            await trio.sleep(60)
        return self.runs


@pytest.mark.parametrize(("looks", "failures"), [(False, 0), (False, 1), (True, 0), (True, 1)])
async def test_c6_undecodable_state_is_mapped_by_a_mapper_that_reads_no_payload(
    autojump_clock: MockClock, looks: bool, failures: int
) -> None:
    """If the mapper itself fails, the change is kept.

    A failing predicate that reads the payload does not prevent the mapping.
    """
    assert autojump_clock.autojump_threshold == 0
    owned = Owned(looks=looks)
    assert await owned.deleted(failures) == ["core"]
    assert len(owned.program.of(events.MappingFailed)) == failures


@pytest.mark.parametrize("projected", [False, True])
async def test_undecodable_payload_appears_in_status_metrics_events_and_readiness(
    autojump_clock: MockClock, projected: bool
) -> None:
    """The type, a key and the number are shown until the payload is repaired or deleted. The controller stays ready."""
    assert autojump_clock.autojump_threshold == 0
    program, store = Program(projected=projected), MemoryBackend()
    for name in ("x", "y"):
        await put(store, program, name)
    async with headway.open_engine(store, program.app, report=program.report) as engine:
        await wait_idle(engine)
        await trio.sleep(2)
        program.metrics.watch(engine.status)
        status = engine.controllers["teams"].status()
        assert [each.undecodable for each in status.types if each.type == program.account.name] == [
            (("default", "default", "x"), ("default", "default", "y"))
        ]
        assert (
            status.notice == "leaves out 2 of staff.v1.Account whose payload does not decode, such as default/default/x"
        )
        assert status.problem == ""
        assert unready(engine.status) == []
        # The second event reports the rest of the burst.
        said: list[Any] = program.of(events.PayloadUndecodable)
        assert [(each.key[2], "login" in each.problem) for each in said] == [("x", True), ("y", True)]
        gauge = b'headway_cache_undecodable{controller="staff/teams",type="staff.v1.Account"} '
        assert gauge + b"2.0" in program.metrics.text()
        assert await _ready(engine) == (200, "ok\nstaff/teams: leaves out 2 resources that can't be decoded\n")
        await engine.client.write(program.account.new("x", Account(login="core")))
        await engine.client.delete(program.account.id("y"))
        await wait_idle(engine)
        assert engine.controllers["teams"].status().notice == ""
        assert gauge + b"0.0" in program.metrics.text()
        assert await _ready(engine) == (200, "ok\n")


async def test_rest_of_a_burst_of_undecodable_payloads_is_counted(autojump_clock: MockClock) -> None:
    """The events suppressed after the first one are reported a moment later, even if no further event follows."""
    assert autojump_clock.autojump_threshold == 0
    program, store = Program(), MemoryBackend()
    for name in "uvwxyz":
        await put(store, program, name)
    async with headway.open_engine(store, program.app, report=program.report) as engine:
        await wait_idle(engine)
        await trio.sleep(5)
    said: list[Any] = program.of(events.PayloadUndecodable)
    assert [each.suppressed for each in said] == [0, 4]


async def _ready(engine: headway.Engine) -> tuple[int, str]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(Pages(engine.status)), base_url="http://test") as asked:
        answer = await asked.get("/readyz")
    return answer.status_code, answer.text


async def test_view_leaves_out_undecodable_payloads(autojump_clock: MockClock) -> None:
    """An undecodable payload that has changed since the view opened does not make the view's index incomplete."""
    assert autojump_clock.autojump_threshold == 0
    program, store = Program(), MemoryBackend()
    by_login = headway.indexes.by(program.account, "login", lambda account: account.data.login)
    read = trio.Event()
    found: list[list[str]] = []
    app = headway.App("views")
    app.registry.register(program.team)
    app.registry.register(program.account)

    @app.controller(
        manages=program.team, watches=[headway.watch(program.account, headway.mappers.owner())], indexes=[by_login]
    )
    async def teams(rt: headway.Runtime, _: headway.Request[Team]) -> None:
        async with rt.cache.view(program.account) as view:
            await rt.client.write(program.account.new("x", Account(login="core")))
            assert rt.cache.list(program.account)[0].data.login == "core"
            found.append([each.name for each in view.index(by_login, "core")])
        read.set()

    await put(store, program, "x")
    async with headway.open_engine(store, app) as engine:
        await engine.client.write(program.team.new("core"))
        with trio.fail_after(60):
            await read.wait()
    assert found == [[]]
