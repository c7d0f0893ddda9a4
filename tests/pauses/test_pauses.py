"""Paused controllers: no process starts a reconcile of them, everything else goes on, and nothing is forgotten."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked
from ulid_transform import ulid_at_time

import headway
from headway import events
from headway._gen.headway.pause.v1 import Pause
from headway.access import Access, Authorizer, Policy, Rule, new_token
from headway.base import wall_time
from headway.engine import combine_apps
from headway.errors import InvalidArgument
from headway.pauses import PAUSE, ControllerPaused, Paused, Resumed, pause_controller, pause_name, resume_controller
from headway.resource import resource_key
from headway.rpc import InProcessChannel
from headway.service import LeaseService, ResourceService, StoreService
from headway.storage import Backend, MemoryBackend, Put
from headway.testing import ScriptedChannel
from tests.helpers.resources import TEAM, Team


class Seen:
    """A report that keeps the events, and on which a test waits for one."""

    def __init__(self) -> None:
        self.events: list[object] = []
        self._woken = trio.Event()

    def __call__(self, event: object) -> None:
        self.events.append(event)
        self._woken.set()

    def of(self, *kinds: type) -> list[object]:
        return [event for event in self.events if isinstance(event, kinds)]

    async def wait(self, kind: type, count: int = 1) -> None:
        """Wait until there have been so many events of a kind. Then let every task go on as far as it can."""
        with trio.fail_after(60):
            while len(self.of(kind)) < count:
                await self._woken.wait()
                self._woken = trio.Event()
        await wait_all_tasks_blocked()


class Noted:
    """A controller that notes what it reconciles. `gate` holds each reconcile; `begun` is set when one begins."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.done: list[str] = []
        self.gate = trio.Event()
        self.gate.set()
        self.begun = trio.Event()
        self.app = headway.App("staff")
        self.app.registry.register(TEAM)

        @self.app.controller(manages=TEAM)
        async def teams(rt: headway.Runtime, request: headway.Request[Team]) -> None:  # noqa: ARG001
            self.names.append(request.id.name)
            self.begun.set()
            await self.gate.wait()
            self.done.append(request.id.name)


async def store_broken(backend: Backend, controller: str) -> None:
    """Store a pause that does not decode, as a broken writer of the same store would."""
    message = PAUSE.new(pause_name(controller), Pause(controller=controller)).message()
    assert message.id is not None
    assert message.data is not None
    message.id.uid = message.generation = pause_name(controller)[-12:]
    # A text that is longer than what follows.
    message.data.value = b"\x0a\x7f"
    await backend.commit([Put(PAUSE.kind, resource_key(message), message, "")])


async def store_pause(backend: Backend, controller: str, uid: str) -> None:
    """Store a pause with this uid, which says when it was made."""
    message = PAUSE.new(pause_name(controller), Pause(controller=controller)).message()
    assert message.id is not None
    message.id.uid = message.generation = uid
    await backend.commit([Put(PAUSE.kind, resource_key(message), message, "")])


async def test_pause_that_does_not_decode_is_reported_and_hides_no_other() -> None:
    """The others come and go as ever, and it pauses its own controller until it is deleted."""
    noted, seen = Noted(), Seen()
    async with MemoryBackend() as backend:
        await store_broken(backend, "staff/other")
        async with headway.open_engine(nullcontext(backend), noted.app, report=seen) as engine:
            teams = engine.controllers["teams"]
            await engine.client.apply(TEAM.new("first", Team()))
            with trio.fail_after(60):
                await noted.begun.wait()
            await seen.wait(events.PayloadUndecodable)
            await pause_controller(engine.client, "staff/teams", "an audit")
            await seen.wait(Paused)
            assert teams.status().paused == "an audit"
            await resume_controller(engine.client, "staff/teams")
            await seen.wait(Resumed)
            await store_broken(backend, "staff/teams")
            await seen.wait(Paused, 2)
            assert teams.status().paused == "the payload of its pause does not decode"
            await resume_controller(engine.client, "staff/teams")
            await seen.wait(Resumed, 2)
            assert teams.status().paused is None


async def test_pause_lasts_since_it_was_made_whatever_process_asks() -> None:
    """Neither a run that begins later nor another reason begins it anew."""
    noted, seen = Noted(), Seen()
    async with MemoryBackend() as backend:
        await store_pause(backend, "staff/teams", ulid_at_time(wall_time() - 3600))
        async with headway.open_engine(nullcontext(backend), noted.app, report=seen) as engine:
            teams = engine.controllers["teams"]
            await seen.wait(Paused)
            assert 3600 <= teams.status().paused_seconds < 3660
            await pause_controller(engine.client, "staff/teams", "an audit")
            await seen.wait(Paused, 2)
            assert 3600 <= teams.status().paused_seconds < 3660
            await resume_controller(engine.client, "staff/teams")
            await seen.wait(Resumed)
            assert teams.status().paused_seconds == 0
            await store_pause(backend, "staff/teams", "not-the-time")
            await seen.wait(Paused, 3)
            assert (teams.status().paused, teams.status().paused_seconds) == ("", 0)


async def test_paused_controller_starts_no_reconcile_and_forgets_none(autojump_clock: MockClock) -> None:
    """A running reconcile finishes. What changes meanwhile is reconciled after the controller is resumed, once."""
    noted, seen = Noted(), Seen()
    async with headway.open_engine("memory:", noted.app, report=seen) as engine:
        noted.gate = trio.Event()
        await engine.client.apply(TEAM.new("first", Team()))
        await noted.begun.wait()
        assert await pause_controller(engine.client, "staff/teams", "the disks are full")
        await seen.wait(Paused)
        noted.gate.set()
        for size in range(3):
            await engine.client.apply(TEAM.new("second", Team(members=[str(size)])))
        await trio.sleep(600)
        assert (noted.names, noted.done) == (["first"], ["first"])
        assert not await pause_controller(engine.client, "staff/teams", "the disks are replaced")
        await trio.sleep(600)
        assert noted.names == ["first"]
        assert await resume_controller(engine.client, "staff/teams")
        assert not await resume_controller(engine.client, "staff/teams")
        await seen.wait(Resumed)
        await engine.wait_idle()
    assert noted.done == ["first", "second"]
    assert seen.of(Paused, Resumed) == [
        Paused("staff/teams", "the disks are full"),
        Paused("staff/teams", "the disks are replaced"),
        Resumed("staff/teams", 1),
    ]


async def test_pause_holds_from_the_first_reconcile_of_a_process_on(autojump_clock: MockClock) -> None:
    """It is in the store, so a process that starts later knows it before its first reconcile."""
    store, noted = MemoryBackend(), Noted()
    async with headway.open_engine(store, noted.app, report=events.ignore) as engine:
        await pause_controller(engine.client, "staff/teams")
    for _ in range(3):
        seen = Seen()
        async with headway.open_engine(store, noted.app, report=seen) as engine:
            await engine.client.apply(TEAM.new("core", Team()))
            await seen.wait(Paused)
            await trio.sleep(100)
            assert engine.controllers["teams"].status().paused == ""
            assert noted.names == []
    seen = Seen()
    async with headway.open_engine(store, noted.app, report=seen) as engine:
        await seen.wait(Paused)
        # The resumption counts at once, although this process learns of it a little later.
        await resume_controller(engine.client, "staff/teams")
        await engine.wait_idle()
    assert noted.done == ["core"]


async def test_run_does_not_reconcile_before_it_has_received_the_pauses(autojump_clock: MockClock) -> None:
    """Its types may be primed long before that. Then a run that reconciled would do so in spite of a pause."""
    noted, seen, script = Noted(), Seen(), ScriptedChannel()
    store = MemoryBackend()
    registry, _ = combine_apps([noted.app])
    services = (ResourceService(store, registry), LeaseService(store), StoreService(store, registry))
    channel = InProcessChannel(*services)
    client = headway.Client(channel, registry)
    await pause_controller(client, "staff/teams")
    await client.apply(TEAM.new("core", Team()))
    script.stall(PAUSE)
    async with headway.open_workers(script.over(channel), noted.app, process="web-1", report=seen):
        await seen.wait(events.Primed)
        await trio.sleep(20)
        assert (noted.names, seen.of(events.RunStarted)) == ([], [])
        script.release(PAUSE)
        await seen.wait(Paused)
        await trio.sleep(20)
        assert noted.names == []


async def test_wait_idle_names_the_paused_controller_that_has_work(autojump_clock: MockClock) -> None:
    """A paused controller without pending work is idle. Other controllers go on."""
    noted, seen = Noted(), Seen()
    async with headway.open_engine("memory:", noted.app, report=seen) as engine:
        await pause_controller(engine.client, "staff/teams", "an audit")
        await seen.wait(Paused)
        await engine.wait_idle()
        await engine.client.apply(TEAM.new("core", Team()))
        with pytest.raises(ControllerPaused) as caught:
            await engine.wait_idle()
        assert str(caught.value) == (
            "controller staff/teams is paused (an audit) and has pending work: resume it with "
            "`headway resume staff/teams`"
        )
        # The resumption counts at once, although this process learns of it a little later.
        await resume_controller(engine.client, "staff/teams")
        await engine.wait_idle()
    assert noted.done == ["core"]


class Beating:
    """A daemon that notes when it begins and ends."""

    def __init__(self) -> None:
        self.lives: list[str] = []
        self.app = headway.App("staff")
        self.app.registry.register(TEAM)

        @self.app.daemon(TEAM)
        async def heart(rt: headway.Runtime, team: headway.Resource[Team]) -> None:  # noqa: ARG001
            self.lives.append(f"{team.name} begins")
            try:
                await trio.sleep_forever()
            finally:
                self.lives.append(f"{team.name} ends")


async def test_daemons_end_with_a_pause_and_begin_again(autojump_clock: MockClock) -> None:
    """That of a resource which is deleted during the pause does not. That of a new resource begins after it."""
    beating, seen = Beating(), Seen()
    async with headway.open_engine("memory:", beating.app, report=seen) as engine:
        for name in ("kept", "gone"):
            await engine.client.apply(TEAM.new(name, Team()))
        await engine.wait_idle()
        await wait_all_tasks_blocked()
        await pause_controller(engine.client, "staff/heart")
        await seen.wait(Paused)
        assert sorted(beating.lives) == ["gone begins", "gone ends", "kept begins", "kept ends"]
        beating.lives.clear()
        await engine.client.delete(TEAM.id("gone"))
        await engine.client.apply(TEAM.new("new", Team()))
        await trio.sleep(100)
        assert beating.lives == []
        await resume_controller(engine.client, "staff/heart")
        await seen.wait(Resumed)
        await engine.wait_idle()
        await wait_all_tasks_blocked()
        assert sorted(beating.lives) == ["kept begins", "new begins"]


async def test_daemon_that_has_returned_is_not_called_after_a_pause(autojump_clock: MockClock) -> None:
    """Those that the pause has canceled are, however they have ended, and after each pause."""
    app, seen, lives = headway.App("staff"), Seen(), Counter[str]()
    app.registry.register(TEAM)

    @app.daemon(TEAM)
    async def heart(_: headway.Runtime, team: headway.Resource[Team]) -> None:
        lives[team.name] += 1
        if team.name == "returned":
            return
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            if team.name == "raises":
                raise LookupError("no desk is left") from None
            if team.name == "returns":
                return
            raise

    async with headway.open_engine("memory:", app, report=seen) as engine:
        for name in ("returned", "canceled", "raises", "returns"):
            await engine.client.apply(TEAM.new(name, Team()))
        await engine.wait_idle()
        for pauses in range(3):
            await wait_all_tasks_blocked()
            assert lives == {"returned": 1} | dict.fromkeys(("canceled", "raises", "returns"), pauses + 1)
            await pause_controller(engine.client, "staff/heart")
            await trio.sleep(1)
            await resume_controller(engine.client, "staff/heart")
            await trio.sleep(1)


async def test_worker_that_may_not_write_pauses_obeys_them() -> None:
    """Every caller with a policy may see pauses. To make one takes a right of its own."""
    noted, seen = Noted(), Seen()
    text, token = new_token(["workers"])
    rule = Rule(verbs=["*"], type="staff.v1.Team", partition="*", namespace="*")
    leases = Rule(verbs=["write"], type="internal.v1.Lease", partition="", namespace="", name_prefix="staff/")
    access = Authorizer(Access([Policy("workers", [rule, leases])], [token]))
    server = headway.App("server")
    server.registry.register(TEAM)
    async with headway.open_engine(
        "memory:", server, network=headway.Network(["127.0.0.1:0"], access=access), report=events.ignore
    ) as engine:
        await pause_controller(engine.client, "staff/teams")
        await engine.client.apply(TEAM.new("core", Team()))
        async with headway.open_workers(
            engine.addresses, noted.app, process="web-1", token=text, report=seen
        ) as workers:
            with trio.fail_after(20):
                await seen.wait(Paused)
                with pytest.raises(headway.errors.PermissionDenied):
                    await resume_controller(workers.client, "staff/teams")
                assert noted.names == []
                await resume_controller(engine.client, "staff/teams")
                await noted.begun.wait()
        assert isinstance(seen.of(Paused, events.Reconciled)[0], Paused)


async def test_pause_under_a_name_that_no_process_would_find_is_refused() -> None:
    async with headway.open_engine("memory:", Noted().app, report=events.ignore) as engine:
        await pause_controller(engine.client, "staff/teams")
        (stored,) = await engine.client.list(PAUSE)
        stored.data.controller = "staff/others"
        with pytest.raises(InvalidArgument, match="headway pause"):
            await engine.client.write(stored)
        stored.data.controller, stored.data.reason = "staff/teams", "x" * 501
        with pytest.raises(InvalidArgument, match="at most 500 characters, not 501"):
            await engine.client.write(stored)
