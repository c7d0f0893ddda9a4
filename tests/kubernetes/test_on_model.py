"""The services of headway.kubernetes on the model of the API server, in virtual time, and the model's faults."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import headway
from headway.engine import Engine, open_workers
from headway.errors import Conflict, HeadwayError, HistoryCompacted, NotFound
from headway.events import DeletionsUnknown, Report, ignore
from headway.kubernetes._errors import ApiStatus, Request, refused_by
from headway.kubernetes._open import open_channel
from headway.testing.kubernetes import (
    Front,
    ModelCluster,
    ModelServer,
    collect_garbage,
    end_namespaces,
)
from tests.kubernetes.connected import Program, deployment
from tests.kubernetes.faulty_api import FaultyApi

MERGE = "application/merge-patch+json"
MAPS = "/api/v1/namespaces/default/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
INITIAL = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}


@pytest.fixture
async def cluster(autojump_clock: MockClock) -> ModelCluster:
    return ModelCluster()


@pytest.fixture
async def model(cluster: ModelCluster) -> ModelServer:
    return ModelServer(cluster)


def config_map(name: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **more}, "data": {"replicas": "2"}}


# --- Services -----------------------------------------------------------------


def rollouts() -> Program:
    """A controller that applies a Deployment for each ConfigMap."""
    program = Program()

    @program.app.controller(
        manages=program.config_map, watches=[headway.watch(program.deployment, headway.mappers.owner())]
    )
    async def rollouts(rt: headway.Runtime, request: headway.Request[Any]) -> None:
        config = rt.cache.get(program.config_map, request.id)
        if config is not None:
            wanted = deployment(int(config.data["data"]["replicas"]))
            await rt.client.apply(program.deployment.new(config.name, wanted, namespace="default", owner=config))

    return program


@asynccontextmanager
async def running(
    server: ModelServer | Front | FaultyApi, program: Program, report: Report = ignore
) -> AsyncIterator[Engine]:
    async with (
        open_channel(server, program.app.registry, "default") as channel,  # type: ignore[arg-type]  # the same methods
        open_workers(channel, program.app, report=report) as engine,
    ):
        yield engine


async def replicas_of(model: ModelServer) -> dict[str, int]:
    found = await model.call("GET", DEPLOYMENTS)
    return {each["metadata"]["name"]: each["spec"]["replicas"] for each in found["items"]}


async def test_controller_works_through_a_cut_stream(autojump_clock: MockClock, model: ModelServer) -> None:
    async with running(model, rollouts()) as engine:
        await engine.wait_idle()
        await model.call("POST", MAPS, body=config_map("web"))
        await engine.wait_idle()
        assert await replicas_of(model) == {"web": 2}
        model.cut()
        await model.call("PATCH", f"{MAPS}/web", body={"data": {"replicas": "3"}}, content_type=MERGE)
        await engine.wait_idle()
        assert await replicas_of(model) == {"web": 3}
        await model.call("DELETE", f"{MAPS}/web")
        await engine.wait_idle()
        assert await replicas_of(model) == {"web": 3}
        assert collect_garbage(model.cluster) == 1
        await engine.wait_idle()
        assert await replicas_of(model) == {}


async def test_c6_a_kill_hides_no_deletion(autojump_clock: MockClock, model: ModelServer) -> None:
    """Before a held watch brings what was created and deleted, the process records how far it is, and is killed."""
    program, seen = Program(), set[str]()

    @program.app.controller(
        manages=program.config_map, watches=[headway.watch(program.deployment, headway.mappers.owner())]
    )
    async def sees(_: headway.Runtime, request: headway.Request[Any]) -> None:
        seen.add(request.id.name)

    api: Any = FaultyApi([model])  # type: ignore[list-item]  # the same methods
    async with running(api, program) as engine:
        await engine.wait_idle()
        api.streams("configmaps").hold()
        await model.call("POST", MAPS, body=config_map("short"))
        await model.call("DELETE", f"{MAPS}/short")
        # What waits for the held type asks for a barrier.
        body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, **deployment()}
        await model.call("POST", DEPLOYMENTS, body=body)
        await engine.wait_idle()
        assert not seen
        await trio.sleep(8)
        api.die()
    async with running(model, program) as engine:
        await engine.wait_idle()
    assert seen == {"short"}


@pytest.mark.parametrize("killed", [True, False])
async def test_a_start_soon_after_a_change_of_a_crd_knows_all_deletions(
    autojump_clock: MockClock, model: ModelServer, killed: bool
) -> None:
    """The change ends the history of its type alone. The checkpoint must be above it for all types."""
    program, unknown = Program(), list[object]()

    @program.app.controller(
        manages=program.config_map, watches=[headway.watch(program.deployment, headway.mappers.owner())]
    )
    async def fails(_: headway.Runtime, __: headway.Request[Any]) -> None:
        raise ValueError

    def report(event: object) -> None:
        if isinstance(event, DeletionsUnknown):
            unknown.append(event)

    await model.call("POST", MAPS, body=config_map("web"))
    api: Any = FaultyApi([model])  # type: ignore[list-item]  # the same methods
    async with running(api, program, report):
        await trio.sleep(12)
        body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, **deployment()}
        await model.call("POST", DEPLOYMENTS, body=body)
        await model.call("DELETE", f"{DEPLOYMENTS}/web")
        # A definition is an object of another type.
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "web"}}
        await model.call("POST", "/api/v1/namespaces/default/secrets", body=secret)
        model.cache.evict(model.target(MAPS).kind)
        model.cut(model.target(MAPS).kind)
        await trio.sleep(10)
        if killed:
            api.die()
    async with running(model, program, report):
        # It waits for the lease of the first, and then reads what was deleted.
        await trio.sleep(30)
    assert not unknown


async def test_controller_works_through_a_restart_and_a_failover_to_a_lagging_server(
    autojump_clock: MockClock, cluster: ModelCluster, model: ModelServer
) -> None:
    second = ModelServer(cluster)
    front = Front(model)
    async with running(front, rollouts()) as engine:
        await engine.wait_idle()
        await model.call("POST", MAPS, body=config_map("one"))
        await engine.wait_idle()
        second.cache.hold()
        await model.call("POST", MAPS, body=config_map("two"))
        await engine.wait_idle()
        front.fail_over(second)
        await trio.sleep(1)
        second.cache.release()
        await engine.wait_idle()
        assert await replicas_of(model) == {"one": 2, "two": 2}
        second.restart()
        await model.call("POST", MAPS, body=config_map("three"))
        await engine.wait_idle()
        assert (await replicas_of(model)).keys() == {"one", "two", "three"}


class SlowWatches(ModelServer):
    """A server whose watches of ConfigMaps take some time to open, so that other calls are answered before."""

    seconds = 0.0

    @asynccontextmanager
    async def watch(self, path: str, params: Any = None, **options: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        await trio.sleep(self.seconds if path.endswith("/configmaps") else 0.0)
        async with super().watch(path, params, **options) as lines:
            yield lines


async def test_nothing_is_made_of_what_was_cached_before_a_restore_that_skips_revisions(
    autojump_clock: MockClock, cluster: ModelCluster
) -> None:
    """A list answers before the watch does. An object in it that is older than the delivered one shows the restore."""
    server = SlowWatches(cluster)
    async with running(server, rollouts()) as engine:
        await engine.wait_idle()
        await server.call("POST", MAPS, body=config_map("web"))
        backup = cluster.revision
        await engine.wait_idle()
        await server.call("PATCH", f"{MAPS}/web", body={"data": {"replicas": "3"}}, content_type=MERGE)
        await engine.wait_idle()
        server.seconds = 10.0
        cluster.restore(backup, bump=1000)
        await trio.sleep(30)
        await engine.wait_idle()
        later = [each.object for each in cluster.log if each.revision > backup and each.name.plural == "deployments"]
        assert {each["spec"]["replicas"] for each in later if each is not None} == {2}


# --- Streams ------------------------------------------------------------------


async def events(model: ModelServer | Front, params: dict[str, str], path: str = MAPS, most: int = 100) -> list[Any]:
    """Return what a watch sends: the types of its events, with the names of objects and the revisions of bookmarks."""
    found: list[Any] = []
    async with model.watch(path, params) as lines:
        async for line in lines:
            event = json.loads(line)
            if event["type"] == "ERROR":
                raise refused_by(ApiStatus(event["object"]), Request("GET", path, "the model"))
            meta = event["object"]["metadata"]
            found.append((event["type"], meta.get("name") or int(meta["resourceVersion"])))
            if len(found) == most:
                break
    return found


async def test_streamed_list_ends_with_a_bookmark_and_another_one_comes_before_its_end(
    autojump_clock: MockClock, model: ModelServer
) -> None:
    await model.call("POST", MAPS, body=config_map("one"))
    at, before = model.cluster.revision, trio.current_time()
    wanted = [("ADDED", "one"), ("BOOKMARK", at), ("BOOKMARK", at)]
    assert await events(model, {**INITIAL, "timeoutSeconds": "3"}, most=3) == wanted
    assert trio.current_time() - before == 1
    assert await events(model, {**INITIAL, "timeoutSeconds": "3"}) == wanted
    assert trio.current_time() - before == 4


async def test_bookmark_of_an_idle_type_moves_only_by_a_consistent_read(
    autojump_clock: MockClock, model: ModelServer
) -> None:
    here = model.cluster.revision
    await model.call("POST", DEPLOYMENTS, body={**deployment(), "metadata": {"name": "web"}})
    since = {"resourceVersion": str(here), "allowWatchBookmarks": "true", "timeoutSeconds": "3"}
    assert await events(model, since) == [("BOOKMARK", here)]
    await model.call("GET", MAPS, params={"limit": "1"})
    assert await events(model, since) == [("BOOKMARK", model.cluster.revision)]


async def test_history_is_gone_after_an_eviction_and_a_restart(autojump_clock: MockClock, model: ModelServer) -> None:
    here = model.cluster.revision
    await model.call("POST", MAPS, body=config_map("one"))
    assert await events(model, {"resourceVersion": str(here)}, most=1) == [("ADDED", "one")]
    model.cache.evict()
    with pytest.raises(HistoryCompacted):
        await events(model, {"resourceVersion": str(here)})
    here = model.cluster.revision
    await model.call("POST", MAPS, body=config_map("two"))
    model.restart()
    with pytest.raises(HistoryCompacted):
        await events(model, {"resourceVersion": str(here)})
    first = await model.call("GET", MAPS, params={"limit": "1"})
    model.cluster.compacted = model.cluster.revision + 1
    with pytest.raises(HistoryCompacted):
        await model.call("GET", MAPS, params={"limit": "1", "continue": first["metadata"]["continue"]})


async def test_lagging_cache_delivers_late_and_in_order(
    autojump_clock: MockClock, cluster: ModelCluster, model: ModelServer
) -> None:
    other = ModelServer(cluster)
    other.cache.hold()
    await model.call("POST", MAPS, body=config_map("one"))
    assert (await other.call("GET", MAPS, params={"resourceVersion": "0"}))["items"] == []
    assert len((await other.call("GET", MAPS))["items"]) == 1
    with pytest.raises(HeadwayError, match="Too large resource version"):
        await other.call("GET", MAPS, params={"resourceVersion": str(cluster.revision)})
    with pytest.raises(HeadwayError, match="Too large resource version"):
        await events(other, INITIAL)
    other.cache.release()
    assert await events(other, INITIAL, most=2) == [("ADDED", "one"), ("BOOKMARK", cluster.revision)]


async def test_restored_state_is_older_and_goes_on_from_there(
    autojump_clock: MockClock, cluster: ModelCluster, model: ModelServer
) -> None:
    await model.call("POST", MAPS, body=config_map("one"))
    here = cluster.revision
    await model.call("POST", MAPS, body=config_map("two"))
    cluster.restore(here)
    found = await model.call("GET", MAPS)
    assert [each["metadata"]["name"] for each in found["items"]] == ["one"]
    assert found["metadata"]["resourceVersion"] == str(here)
    await model.call("POST", MAPS, body=config_map("three"))
    assert cluster.revision == here + 1


# --- Calls --------------------------------------------------------------------


@pytest.mark.parametrize("how", ["fail over", "stop"])
async def test_open_watches_are_cut(
    autojump_clock: MockClock, cluster: ModelCluster, model: ModelServer, how: str
) -> None:
    front = Front(model)
    async with front.watch(MAPS, INITIAL) as lines:
        await anext(lines)
        if how == "stop":
            model.stop()
        else:
            front.fail_over(ModelServer(cluster))
        with pytest.raises(HeadwayError, match="connection was lost"), trio.fail_after(5):
            await anext(lines)


async def test_refused_call_is_repeated_and_a_stopped_server_refuses_connections(
    autojump_clock: MockClock, model: ModelServer
) -> None:
    model.refuses = 429
    before = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(model.call, "POST", MAPS, body=config_map("one")))
        await trio.sleep(5)
        model.refuses = 0
    assert trio.current_time() - before >= 5
    model.stop()
    with pytest.raises(HeadwayError, match="cannot be reached"):
        await model.call("GET", MAPS)


# --- The cluster's own controllers ---------------------------------------------


async def owned(model: ModelServer, name: str, owner: dict[str, Any], **more: Any) -> Any:
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }
    return await model.call("POST", MAPS, body=config_map(name, ownerReferences=[{**reference, **more}]))


async def test_garbage_collector_deletes_what_has_lost_its_owner(
    autojump_clock: MockClock, cluster: ModelCluster, model: ModelServer
) -> None:
    owner = await model.call("POST", MAPS, body=config_map("owner"))
    await owned(model, "child", await owned(model, "parent", owner))
    assert collect_garbage(cluster) == 0
    await model.call("DELETE", f"{MAPS}/owner")
    assert collect_garbage(cluster, 1) == 1
    assert [each["metadata"]["name"] for each in (await model.call("GET", MAPS))["items"]] == ["child"]
    assert collect_garbage(cluster) == 1
    assert (await model.call("GET", MAPS))["items"] == []


@pytest.mark.parametrize("policy", ["Foreground", "Orphan"])
async def test_deletion_waits_for_the_garbage_collector(
    autojump_clock: MockClock, cluster: ModelCluster, model: ModelServer, policy: str
) -> None:
    owner = await model.call("POST", MAPS, body=config_map("owner"))
    await owned(model, "child", owner, blockOwnerDeletion=True)
    marked = await model.call("DELETE", f"{MAPS}/owner", body={"propagationPolicy": policy})
    assert marked["metadata"]["deletionTimestamp"]
    assert collect_garbage(cluster, 1) == 1
    assert (await model.call("GET", f"{MAPS}/owner"))["metadata"]["finalizers"]
    collect_garbage(cluster)
    left = (await model.call("GET", MAPS))["items"]
    assert [each["metadata"]["name"] for each in left] == ([] if policy == "Foreground" else ["child"])
    assert not any("ownerReferences" in each["metadata"] for each in left)


async def test_owner_waits_for_a_dependent_with_a_finalizer(
    autojump_clock: MockClock, cluster: ModelCluster, model: ModelServer
) -> None:
    await owned(model, "child", await model.call("POST", MAPS, body=config_map("owner")), blockOwnerDeletion=True)
    patch = {"metadata": {"finalizers": ["example.org/own"]}}
    await model.call("PATCH", f"{MAPS}/child", body=patch, content_type=MERGE)
    await model.call("DELETE", f"{MAPS}/owner", body={"propagationPolicy": "Foreground"})
    assert collect_garbage(cluster) == 1
    assert (await model.call("GET", f"{MAPS}/child"))["metadata"]["deletionTimestamp"]
    await model.call("PATCH", f"{MAPS}/child", body={"metadata": {"finalizers": None}}, content_type=MERGE)
    assert collect_garbage(cluster) == 1
    assert (await model.call("GET", MAPS))["items"] == []


async def test_namespace_ends_with_what_is_in_it(
    autojump_clock: MockClock, cluster: ModelCluster, model: ModelServer
) -> None:
    path = "/api/v1/namespaces"
    await model.call("POST", path, body={"metadata": {"name": "team"}})
    await model.call("POST", f"{path}/team/configmaps", body=config_map("one"))
    assert (await model.call("DELETE", f"{path}/team"))["status"]["phase"] == "Terminating"
    with pytest.raises(HeadwayError, match="being terminated"):
        await model.call("POST", f"{path}/team/configmaps", body=config_map("two"))
    end_namespaces(cluster)
    with pytest.raises(NotFound):
        await model.call("GET", f"{path}/team")
    assert (await model.call("GET", "/api/v1/configmaps"))["items"] == []


async def test_same_requests_give_the_same_state(autojump_clock: MockClock) -> None:
    states = []
    for _ in range(2):
        cluster = ModelCluster(now=lambda: 10.0)
        await ModelServer(cluster).call("POST", MAPS, body=config_map("one"))
        states.append(cluster.objects)
    assert states[0] == states[1]


async def test_writes_at_an_old_version_conflict(autojump_clock: MockClock, model: ModelServer) -> None:
    made = await model.call("POST", MAPS, body=config_map("one"))
    await model.call("PUT", f"{MAPS}/one", body={**made, "data": {}})
    with pytest.raises(Conflict):
        await model.call("PUT", f"{MAPS}/one", body=made)


async def test_same_apply_of_an_empty_mapping_changes_nothing(autojump_clock: MockClock, model: ModelServer) -> None:
    """An empty mapping is applied and not stored, so an object is compared as it is stored."""
    body, kind = {**config_map("web"), "data": {}}, "application/apply-patch+yaml"
    first = await model.call("PATCH", f"{MAPS}/web", params={"fieldManager": "ada"}, body=body, content_type=kind)
    await trio.sleep(5)
    assert (
        await model.call("PATCH", f"{MAPS}/web", params={"fieldManager": "ada"}, body=body, content_type=kind) == first
    )
