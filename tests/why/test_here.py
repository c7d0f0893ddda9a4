"""`Engine.why` and `Engine.stuck` in one process: the answer is right in each state that a key can be in."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import headway
from headway.client import LeaseClient
from headway.errors import InvalidArgument, PermanentFailure
from headway.journal import JournalOptions
from headway.pauses import pause_controller
from headway.reconcile import Result
from headway.rpc import InProcessChannel, Services
from headway.service import LeaseService, ResourceService
from headway.storage import MemoryBackend
from headway.why import Ref, Touched, sentences
from tests.helpers.why_programs import PATIENCE, Account, Parts, Team, broken_app, part, told

CORE = Ref("staff.v1.Team", "default", "default", "core")


async def test_failure_is_told_with_its_traceback_and_its_cause() -> None:
    """The writer of the first cause is known as well: the engine's own program has no name."""
    app, team = broken_app()
    async with headway.open_engine("memory:", app) as engine:
        core = await engine.client.apply(team.new("core", Team()))
        why = await told(engine, core.id, "waiting")
        found = part(why)
        assert (found.name, found.process, found.role) == ("staff/teams", "server", "manages")
        assert found.error == "ValueError: core has no lead"
        assert 'raise ValueError(f"{team.id.name} has no lead")' in found.traceback
        assert found.since <= why.at < found.until + PATIENCE
        assert found.attempt >= 2
        newest = found.reconciles[0]
        assert (newest.outcome, newest.error) == ("failed", found.error)
        assert newest.reads == [Touched("get", CORE, int(core.version))]
        assert why.stored is not None
        assert why.stored.version == core.version
        assert [(each.revision, each.verb) for each in why.writes] == [(int(core.version), "created")]
        # Nobody else can write here.
        assert why.writes[0].writer == "a program in the server's process"


async def test_paused_controller_is_told_with_the_reason() -> None:
    """What it owes stays queued, and counts as stuck."""
    app, team = broken_app()
    async with headway.open_engine("memory:", app) as engine:
        await pause_controller(engine.client, "staff/teams", "an audit")
        core = await engine.client.apply(team.new("core", Team()))
        why = await told(engine, core.id, "queued", also=lambda each: each.paused)
        text = "It is paused (an audit), so it reconciles nothing. To end that: `headway resume staff/teams`."
        assert [text] == [line.strip() for line in sentences(why) if "paused" in line]
        [item] = (await engine.stuck(0.0)).items
        assert (item.resource, item.state, item.error) == (CORE, "queued", "the controller is paused (an audit)")


async def test_success_makes_it_idle_and_lists_what_was_written() -> None:
    parts = Parts()

    async def write(rt: headway.Runtime, request: headway.Request) -> None:
        rt.cache.list(parts.account)
        await rt.client.apply(parts.account.new("ada", Account(team=request.id.name)))

    parts.reconcile = write
    async with headway.open_engine("memory:", parts.app) as engine:
        core = await engine.client.apply(parts.team.new("core", Team()))
        await engine.wait_idle()
        why = await told(engine, core.id, "idle")
        found = part(why)
        assert found.since == pytest.approx(found.reconciles[0].at)
        assert {each.outcome for each in found.reconciles} == {"done"}
        first = found.reconciles[-1]
        assert first.reads == [Touched("list", Ref("staff.v1.Account"))]
        [account] = await engine.client.list(parts.account)
        ada = Ref("staff.v1.Account", "default", "default", "ada")
        assert first.writes == [Touched("written", ada, int(account.version))]
        # The write comes back through the mapper, and its writer is the controller.
        echoes = [cause for each in found.reconciles for cause in each.causes if cause.resource == ada]
        assert {(each.through.rpartition(".")[2], each.writer) for each in echoes} == {
            ("team_of", "controller staff/teams")
        }


async def test_reads_of_a_reconcile_are_its_own() -> None:
    """The one worker reconciles one team after the other."""
    parts = Parts()

    async def read(rt: headway.Runtime, request: headway.Request) -> None:
        if request.id.name == "core":
            rt.cache.list(parts.account)

    parts.reconcile = read
    async with headway.open_engine("memory:", parts.app) as engine:
        core = await engine.client.apply(parts.team.new("core", Team()))
        await engine.wait_idle()
        docs = await engine.client.apply(parts.team.new("docs", Team()))
        await engine.wait_idle()
        assert [each.reads for each in part(await engine.why(core.id)).reconciles] == [
            [Touched("list", Ref("staff.v1.Account"))]
        ]
        assert [each.reads for each in part(await engine.why(docs.id)).reconciles] == [[]]


async def test_running_reconcile_is_told_with_the_line_that_it_waits_at() -> None:
    """Also if it waits in a nursery of its own."""
    parts, go = Parts(), trio.Event()

    async def wait(_: object, __: object) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_for_the_disk, go)

    parts.reconcile = wait
    async with headway.open_engine("memory:", parts.app) as engine:
        core = await engine.client.apply(parts.team.new("core", Team()))
        line = "await go.wait()  # the disk"
        found = part(await told(engine, core.id, "running", also=lambda it: line in it.stack))
        assert found.attempt == 1
        assert found.owed_since
        go.set()
        await told(engine, core.id, "idle")


async def wait_for_the_disk(go: trio.Event) -> None:
    await go.wait()  # the disk


async def test_key_behind_another_is_queued() -> None:
    """The one worker is busy. The answer names the change that queued it."""
    parts, go = Parts(), trio.Event()

    async def wait(_: object, __: object) -> None:
        await go.wait()

    parts.reconcile = wait
    async with headway.open_engine("memory:", parts.app) as engine:
        first = await engine.client.apply(parts.team.new("first", Team()))
        await told(engine, first.id, "running")
        core = await engine.client.apply(parts.team.new("core", Team()))
        found = part(await told(engine, core.id, "queued"))
        [cause] = found.causes
        assert (cause.what, cause.resource, cause.revision) == ("changed", CORE, int(core.version))
        go.set()


async def test_key_that_asked_for_a_time_is_scheduled() -> None:
    parts = Parts()

    async def later(_: object, __: object) -> Result:
        return headway.requeue_after(3600)

    parts.reconcile = later
    async with headway.open_engine("memory:", parts.app) as engine:
        core = await engine.client.apply(parts.team.new("core", Team()))
        why = await told(engine, core.id, "scheduled")
        assert 3500 < part(why).until - why.at < 3700
        assert not part(why).owed_since
        assert (await engine.stuck(0)).items == []


async def test_permanent_failure_is_given_up() -> None:
    """It is stuck, too, because only a change helps."""
    parts = Parts()

    async def fail(_: object, __: object) -> None:
        raise PermanentFailure("the name is taken")

    parts.reconcile = fail
    async with headway.open_engine("memory:", parts.app) as engine:
        core = await engine.client.apply(parts.team.new("core", Team()))
        found = part(await told(engine, core.id, "given up"))
        assert found.error == "PermanentFailure: the name is taken"
        assert 'raise PermanentFailure("the name is taken")' in found.traceback
        [item] = (await engine.stuck(0)).items
        assert (item.state, item.resource, item.error) == ("given up", CORE, found.error)


async def test_mapper_that_raises_is_told_for_the_change_and_for_whatever_it_may_concern() -> None:
    parts = Parts()

    def fail(_: object) -> list[headway.ResourceId]:
        raise KeyError("no team")

    async with headway.open_engine("memory:", parts.app) as engine:
        core = await engine.client.apply(parts.team.new("core", Team()))
        await engine.wait_idle()
        parts.map = fail
        ada = await engine.client.apply(parts.account.new("ada", Account(team="core")))
        found = part(await told(engine, core.id, "idle", also=lambda it: it.unmapped))
        [change] = found.unmapped
        assert change.resource == Ref("staff.v1.Account", "default", "default", "ada")
        assert (change.revision, change.failures) == (int(ada.version), 1)
        assert change.function.endswith("team_of")
        assert change.error == "KeyError: 'no team'"
        assert 'raise KeyError("no team")' in change.traceback
        assert found.state == "idle"
        # The watched resource has its own answer.
        [again] = part(await engine.why(ada.id), "watches").unmapped
        assert (again.resource, again.error, again.traceback) == (change.resource, change.error, change.traceback)
        # One mapper may fail for thousands of keys, so only one of their texts has the frames.
        for id in (core.id, ada.id, parts.team.id("absent")):
            text = "\n".join(sentences(await engine.why(id)))
            assert ("KeyError: 'no team'" in text, 'raise KeyError("no team")' in text) == (True, id == ada.id)
        [item] = (await engine.stuck(0)).items
        assert (item.state, item.resource) == ("unmapped", change.resource)
        other = await engine.why(parts.account.id("grace"))
        assert part(other, "watches").unmapped == []


async def test_change_that_a_predicate_turned_away_is_told() -> None:
    parts = Parts()
    async with headway.open_engine("memory:", parts.app) as engine:
        core = await engine.client.apply(parts.team.new("core", Team(lead="ada")))
        await engine.wait_idle()
        core.data.lead = "nobody"
        core = await engine.client.write(core)
        found = part(await told(engine, core.id, "idle", also=lambda it: it.turned_away))
        [turned] = found.turned_away
        assert (turned.resource, turned.revision) == (CORE, int(core.version))
        assert turned.predicate.endswith("has_a_lead")
        assert found.state == "idle"


async def test_unknown_outcome_holds_every_key_and_names_the_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reconcile that wrote is named as well. Raising the fence resolves it, so that is kept from happening."""
    parts = Parts()
    async with headway.open_engine("memory:", parts.app) as engine:
        await engine.wait_idle()
        [run] = [each.run for each in engine._supervisors if each.name == "teams"]
        assert run is not None

        async def lose(rt: headway.Runtime, request: headway.Request) -> None:
            if request.id.name == "core":
                await rt.client.apply(parts.account.new("ada", Account(team="core")))

        go = trio.Event()
        raise_fence = run._leases.raise_fence

        async def wait(*arguments: Any, **options: Any) -> Any:
            await go.wait()
            return await raise_fence(*arguments, **options)

        resources = run._runtime.client._resources
        write = resources.write

        async def break_off(*_: Any) -> Any:
            monkeypatch.setattr(resources, "write", write)
            raise RuntimeError("the connection broke")

        parts.reconcile = lose
        monkeypatch.setattr(run._leases, "raise_fence", wait)
        core = parts.team.new("core", Team())
        stored = await engine.client.apply(core)
        monkeypatch.setattr(resources, "write", break_off)
        docs = await engine.client.read(parts.team, stored.id)
        found = part(await told(engine, docs.id, "held"))
        assert found.held_write == Ref("staff.v1.Account", "default", "default", "ada")
        assert found.held_by == CORE
        assert [each.state for each in (await engine.stuck(0)).items] == ["held"]
        go.set()
        # The reconcile that lost its write fails and waits. A later hold would name its own write.
        await told(engine, docs.id, "waiting")
        assert run._writes.hold is None


async def test_resource_without_a_controller_is_told_so() -> None:
    parts = Parts()
    app = headway.App("other")
    lonely = app.type("other", "v1", "Lonely", Team)
    async with headway.open_engine("memory:", parts.app, app) as engine:
        one = await engine.client.apply(lonely.new("one", Team()))
        why = await engine.why(one.id)
        assert why.controllers == []
        assert "  No controller manages" not in sentences(why)
        assert any(each.startswith("No controller manages other.v1.Lonely") for each in sentences(why))


async def test_deleted_resource_is_told_with_its_deletion() -> None:
    parts = Parts()
    async with headway.open_engine("memory:", parts.app) as engine:
        core = await engine.client.apply(parts.team.new("core", Team()))
        await engine.client.delete(core.id)
        why = await engine.why(core.id)
        assert why.stored is None
        assert why.writes[0].verb == "deleted"
        assert sentences(why)[1].startswith("  It is not stored: it was deleted at revision ")


async def test_finalizer_names_the_controller_that_removes_it() -> None:
    """One that no controller is named after is said to be nobody's."""
    parts = Parts()
    async with headway.open_engine("memory:", parts.app) as engine:
        core = parts.team.new("core", Team())
        core.finalizers = {"teams", "backup"}
        core = await engine.client.apply(core)
        await engine.client.delete(core.id)
        stored = (await engine.why(core.id)).stored
        assert stored is not None
        assert stored.deleting
        assert [(each.name, each.controller) for each in stored.finalizers] == [
            ("backup", ""),
            ("teams", "staff/teams"),
        ]


async def test_standby_names_the_process_that_holds_the_lease() -> None:
    """That process is not connected, so only its name is known."""
    parts = Parts()
    backend = MemoryBackend()
    services = Services(ResourceService(backend, parts.app.registry), LeaseService(backend))
    leases = LeaseClient(InProcessChannel(services))
    assert (await leases.acquire("staff/teams", "web-7", 60)).acquired
    async with headway.open_engine(backend, parts.app) as engine:
        core = await engine.client.apply(parts.team.new("core", Team()))
        why = await told(engine, core.id, "standby")
        assert part(why).holder == "web-7"
        assert any("process web-7 holds the lease staff/teams" in each for each in sentences(why))


async def test_priming_is_told_with_its_types_and_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts()
    from headway.run import RunCaches

    async def never(*_: object) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(RunCaches, "prime", never)
    async with headway.open_engine("memory:", parts.app) as engine:
        why = await told(engine, parts.team.id("core"), "priming")
        assert part(why).since
        [item] = [each for each in (await engine.stuck(0)).items if each.controller == "staff/teams"]
        assert (item.state, item.resource) == ("priming", Ref("staff.v1.Team"))


async def test_failed_run_is_told_with_its_error() -> None:
    parts = Parts()

    @parts.app.controller(manages=parts.account, initialiser=broken_start)
    async def accounts(_: headway.Runtime, __: headway.Request) -> None: ...

    async with headway.open_engine("memory:", parts.app) as engine:
        why = await told(engine, parts.account.id("ada"), "resting", "staff/accounts")
        found = part(why)
        assert found.error == "ValueError: no licence"
        assert 'raise ValueError("no licence")' in found.traceback


async def broken_start(_: headway.Runtime) -> None:
    raise ValueError("no licence")


async def test_without_a_journal_the_state_is_still_told() -> None:
    app, team = broken_app()
    async with headway.open_engine("memory:", app, journal=JournalOptions(memory=0)) as engine:
        core = await engine.client.apply(team.new("core", Team()))
        why = await told(engine, core.id, "waiting")
        assert part(why).error == "ValueError: core has no lead"
        assert (part(why).reconciles, part(why).traceback, why.writes) == ([], "", [])


async def test_oldest_work_is_listed_first_and_younger_work_is_not() -> None:
    parts = Parts()

    async def fail(_: object, __: object) -> None:
        raise ValueError("no")

    parts.reconcile = fail
    async with headway.open_engine("memory:", parts.app) as engine:
        for name in ("first", "second"):
            made = await engine.client.apply(parts.team.new(name, Team()))
            await told(engine, made.id, "waiting")
        listed = await engine.stuck(0)
        assert [each.resource.name for each in listed.items if each.resource] == ["first", "second"]
        assert [each.state for each in listed.items] == ["waiting", "waiting"]
        assert (await engine.stuck(3600)).items == []


@pytest.mark.parametrize("given", [-1, True, float("nan"), float("inf"), "60"])
async def test_invalid_time_is_refused(given: Any) -> None:
    parts = Parts()
    async with headway.open_engine("memory:", parts.app) as engine:
        with pytest.raises(InvalidArgument, match="longer_than must be >= 0 seconds"):
            await engine.stuck(given)
