"""`rt.watch` in controllers of other processes: their rights, and the processes that take over from each other."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

import headway
from headway import events, field
from headway.access import Access, Authorizer, Policy, Rule, new_token
from headway.errors import PermissionDenied
from tests.helpers.cluster import Cluster, Member
from tests.helpers.plain_types import Team
from tests.helpers.shards import SHARDS, has_all, shard, shards_of

PATIENCE = 40


@headway.message(name="added.Hint")
class Hint:
    job: str = field(1)


async def test_missing_right_is_an_error_of_the_reconcile() -> None:
    """The run goes on. Once the right is granted, the next attempt adds the watch."""
    app = headway.App("staff")
    team = app.type("staff", "v1", "Team", Team)
    secret = app.type("staff", "v1", "Secret", Team)
    server = headway.App("types")
    for each in (team, secret):
        server.registry.register(each)
    done: list[str] = []
    reported: list[Any] = []
    changed = trio.Event()

    def report(event: object) -> None:
        nonlocal changed
        reported.append(event)
        changed.set()
        changed = trio.Event()

    @app.controller(manages=team, concurrency=2, backoff=headway.Backoff(0.05, 0.2))
    async def look(rt: headway.Runtime, request: headway.Request) -> None:
        if request.id.name == "wants":
            await rt.watch(headway.watch(secret, headway.mappers.same_name()))
        done.append(request.id.name)

    rules = [
        Rule(verbs=["*"], type="staff.v1.Team", partition="*", namespace="*"),
        Rule(verbs=["write"], type="internal.v1.Lease", partition="", namespace="", name_prefix="staff/"),
    ]
    text, token = new_token(["some", "all"])
    access = Authorizer(Access([Policy("some", rules), Policy("all", [])], [token]))
    async with headway.open_engine(
        "memory:", server, network=headway.Network(["127.0.0.1:0"], access=access)
    ) as engine:
        await engine.client.apply(team.new("wants", Team()))
        async with headway.open_workers(engine.addresses, app, process="w", token=text, report=report) as workers:

            def failures() -> list[BaseException]:
                return [each.error for each in reported if isinstance(each, events.Reconciled) and each.error]

            with trio.fail_after(PATIENCE):
                while len(failures()) < 3:
                    await changed.wait()
                await engine.client.apply(team.new("other", Team()))
                while "other" not in done:
                    await changed.wait()
            assert {type(error) for error in failures()} == {PermissionDenied}
            assert "staff.v1.Secret cannot be watched" in str(failures()[0])
            status = workers.controllers["look"].status()
            assert (status.phase, status.restarts, status.added_watches) == ("running", 0, ())
            assert [str(each.type) for each in status.types] == ["staff.v1.Team"]
            more = Rule(verbs=["read", "watch"], type="staff.v1.Secret", partition="*", namespace="*")
            access.replace(Access([Policy("some", rules), Policy("all", [more])], [token]))
            with trio.fail_after(PATIENCE):
                await workers.wait_idle()
            assert "wants" in done
            assert workers.controllers["look"].status().added_watches == ("staff.v1.Secret by mappers.same_name()",)


class HintedCluster(Cluster):
    """A cluster whose reconciles watch hints, which name jobs."""

    def __init__(self, clock: MockClock, placement: Any) -> None:
        # (member, job, hints for it) of each reconcile after the call.
        self.hinted: list[tuple[str, str, list[str]]] = []
        super().__init__(clock, placement)
        self.around = self._watch

    def app(self, member: str) -> headway.App:
        app = super().app(member)
        self.hint = app.type("staff", "v1", "Hint", Hint)
        self.hints = {**getattr(self, "hints", {}), member: self.hint}
        return app

    async def _watch(self, member: str, rt: headway.Runtime, request: headway.Request[Any]) -> None:
        hint, job = self.hints[member], rt.cache.manages
        await rt.watch(headway.watch(hint, headway.mappers.reference(lambda each: job.id(each.data.job))))
        hints = [each.name for each in rt.cache.list(hint) if each.data.job == request.id.name]
        self.hinted.append((member, request.id.name, hints))

    async def write_hint(self, name: str, job: str) -> None:
        await self.client.apply(self.hints["server"].new(name, Hint(job=job)))

    def added(self, member: Member) -> int:
        return len(member.events_of(events.WatchAdded))


@pytest.mark.parametrize("placement", ["every_process", headway.sharded(shards=SHARDS)], ids=["every", "sharded"])
async def test_each_process_adds_the_watch_for_its_own_keys(autojump_clock: MockClock, placement: Any) -> None:
    """In a sharded controller, the shards return to the process whose run ended."""
    cluster = HintedCluster(autojump_clock, placement)
    jobs = [f"j{number}" for number in range(24)]
    async with cluster.open("web-1", "web-2"):
        first, second = cluster.members.values()
        for name in jobs:
            await cluster.write(name, "1")
        await cluster.until(lambda: cluster.added(first) == 1 and cluster.added(second) == 1, 60)
        if placement != "every_process":
            await has_all(cluster, first, second)
        await cluster.until(lambda: cluster.copied(**dict.fromkeys(jobs, "1")), 60)
        await trio.sleep(10)
        seen = len(cluster.hinted)
        for name in jobs:
            await cluster.write_hint(f"for-{name}", name)
        await trio.sleep(20)
        found = {(member, name) for member, name, hints in cluster.hinted[seen:] if hints == [f"for-{name}"]}
        if placement == "every_process":
            assert found == {(member.name, name) for member in (first, second) for name in jobs}
        else:
            owner = {each: member.name for member in (first, second) for each in shards_of(member)}
            assert found == {(owner[shard(name)], name) for name in jobs}
        assert (cluster.added(first), cluster.added(second)) == (1, 1)
        for member in (first, second):
            with trio.fail_after(60):
                await member.engine.wait_idle()
    cluster.check_fences()
