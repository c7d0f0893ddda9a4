"""The contract through a whole program on a real API server, without faults of the server itself."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import trio

import headway
from headway import kubernetes
from headway.engine import Engine, Timing
from headway.events import DeletionsUnknown, StreamEnded, StreamLagging, WriteResolved
from headway.kubernetes._http import ApiServer
from headway.kubernetes._kubeconfig import load_config
from headway.kubernetes._open import open_channel
from tests.helpers.kube_server import KubeServer
from tests.kubernetes.connected import CRD, Program, Website, kubeconfig, running
from tests.kubernetes.gates import GatedServer

SOON = 40.0


@asynccontextmanager
async def gated_engine(
    kube: KubeServer, program: Program, namespace: str, folder: Path, **options: Any
) -> AsyncIterator[tuple[Engine, GatedServer]]:
    """Run the controllers of a program behind a connection that loses answers."""
    config = load_config(kubeconfig(kube, namespace, folder))
    async with ApiServer(config) as server:
        gated = GatedServer(server)
        async with (
            open_channel(gated, program.app.registry, namespace) as channel,  # type: ignore[arg-type]  # the same methods
            headway.open_workers(channel, program.app, **options) as engine,
        ):
            yield engine, gated


async def until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    with trio.fail_after(SOON):
        while not condition():  # noqa: ASYNC110  # another program changes it
            await trio.sleep(0.02)


class Maps:
    """ConfigMaps that a test writes at the API server, as another program does."""

    def __init__(self, kube: KubeServer, namespace: str) -> None:
        self._kube = kube
        self._path = f"/api/v1/namespaces/{namespace}/configmaps"

    def write(self, name: str, **data: str) -> None:
        body = {"metadata": {"name": name}, "data": data}
        with self._kube.client() as client:
            made = client.post(self._path, json=body)
            if made.status_code == httpx.codes.CONFLICT:
                made = client.put(f"{self._path}/{name}", json=body)
            made.raise_for_status()

    def delete(self, name: str) -> None:
        with self._kube.client() as client:
            client.delete(f"{self._path}/{name}").raise_for_status()


async def test_c1_nothing_runs_before_every_type_is_primed(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    """A type that the cluster does not have yet is not empty."""
    program = Program()
    group = f"{namespace}.headway.dev"
    late = kubernetes.resource(program.app, group, "v1", "Website", Website)
    seen: list[str] = []

    @program.app.controller(
        manages=program.config_map.within(namespace=namespace), watches=[headway.watch(late, headway.mappers.owner())]
    )
    async def sites(_: headway.Runtime, request: headway.Request[Any]) -> None:
        seen.append(request.id.name)

    Maps(kube, namespace).write("web")
    async with running(kube, program, namespace, tmp_path) as engine:
        with trio.move_on_after(2):
            await engine.wait_idle()
        assert seen == []
        crd = copy.deepcopy(CRD)
        crd["metadata"]["name"] = f"websites.{group}"
        crd["spec"]["group"] = group
        with kube.client() as client:
            path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            headers = {"Content-Type": "application/json"}
            client.post(path, content=json.dumps(crd), headers=headers).raise_for_status()
        with trio.fail_after(SOON):
            await engine.wait_idle()
        assert seen == ["web"]


async def test_c4_a_reconcile_sees_every_type_at_the_revision_of_its_change(
    kube: KubeServer, namespace: str, tmp_path: Path
) -> None:
    """What was answered to a third program before the change is in the cache, though it came on another stream."""
    program = Program()
    managed = program.config_map.within(namespace=namespace, metadata="part=a")
    other = kubernetes.builtin(program.app, "v1", "Secret").within(namespace=namespace)
    missing: list[str] = []
    seen: list[str] = []

    @program.app.controller(manages=managed, watches=[headway.watch(other, lambda _, __: [])], concurrency=4)
    async def sites(rt: headway.Runtime, request: headway.Request[Any]) -> None:
        seen.append(request.id.name)
        if rt.cache.get(other, other.id(request.id.name)) is None:
            missing.append(request.id.name)

    async with running(kube, program, namespace, tmp_path) as engine:
        await engine.wait_idle()

        def write(first: int) -> None:
            with kube.client() as client:
                for number in range(first, 60, 3):
                    meta = {"name": f"w{number}", "labels": {"part": "a"}}
                    secret = client.post(f"/api/v1/namespaces/{namespace}/secrets", json={"metadata": meta})
                    secret.raise_for_status()
                    made = client.post(f"/api/v1/namespaces/{namespace}/configmaps", json={"metadata": meta})
                    made.raise_for_status()

        with trio.fail_after(SOON):
            async with trio.open_nursery() as nursery:
                for first in range(3):
                    nursery.start_soon(trio.to_thread.run_sync, write, first)
            await until(lambda: len(set(seen)) == 60)
            await engine.wait_idle()
    assert missing == []


async def test_c5_own_writes_are_seen_and_lost_answers_found_out(
    kube: KubeServer, namespace: str, tmp_path: Path
) -> None:
    """A reconciler that makes a child if it sees none makes one, although every second answer is lost."""
    program = Program()
    parents = program.config_map.within(namespace=namespace, metadata="role=parent")
    secret = kubernetes.builtin(program.app, "v1", "Secret")
    unseen: list[str] = []
    events: list[object] = []
    made = Counter[str]()
    gated: list[GatedServer] = []

    @program.app.controller(manages=parents, watches=[headway.watch(secret, headway.mappers.owner())])
    async def sites(rt: headway.Runtime, request: headway.Request[Any]) -> None:
        parent = rt.cache.get(program.config_map, request.id)
        if parent is None:
            return
        children = [each for each in rt.cache.list(secret) if each.owner == parent.id]
        if not children:
            made[parent.name] += 1
            (server,) = gated
            if sum(made.values()) % 2:
                server.loses, server.arrives_at_once = 1, sum(made.values()) % 4 == 1
            name = f"{parent.name}-{made[parent.name]}"
            child = secret.new(name, {"stringData": {"a": "b"}}, namespace=namespace, owner=parent)
            stored = await rt.client.create(child)
            if rt.cache.get(secret, stored.id) is None:
                unseen.append(name)

    async with gated_engine(kube, program, namespace, tmp_path, report=events.append) as (engine, server):
        gated.append(server)
        await engine.wait_idle()
        with kube.client() as client:
            for number in range(12):
                meta = {"name": f"p{number}", "labels": {"role": "parent"}}
                body = {"metadata": meta}
                client.post(f"/api/v1/namespaces/{namespace}/configmaps", json=body).raise_for_status()
        await until(lambda: len(made) == 12)
        with trio.fail_after(SOON):
            await engine.wait_idle()
        # A creation that arrives late finds its name taken.
        await server.arrive()
        with trio.fail_after(SOON):
            await engine.wait_idle()
            children = await engine.client.list(secret.within(namespace=namespace))
    assert unseen == []
    assert len(children) == 12, sorted(each.name for each in children)
    assert any(isinstance(each, WriteResolved) for each in events)


async def test_c5_what_others_have_undone_is_applied_again(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    """The same apply makes no call only while the object is as it was."""
    program = Program()
    parents = program.config_map.within(namespace=namespace, metadata="role=parent")
    secret = kubernetes.builtin(program.app, "v1", "Secret")

    @program.app.controller(manages=parents, watches=[headway.watch(secret, headway.mappers.owner())])
    async def sites(rt: headway.Runtime, request: headway.Request[Any]) -> None:
        parent = rt.cache.get(program.config_map, request.id)
        if parent is not None:
            child = secret.new("child", {"data": {"a": "YQ=="}}, namespace=namespace, owner=parent)
            await rt.client.apply(child, force=True)

    path = f"/api/v1/namespaces/{namespace}/secrets/child"
    async with running(kube, program, namespace, tmp_path) as engine:
        await engine.wait_idle()
        with kube.client() as client:
            body = {"metadata": {"name": "p", "labels": {"role": "parent"}}}
            client.post(f"/api/v1/namespaces/{namespace}/configmaps", json=body).raise_for_status()

            def data() -> object:
                return client.get(path).json().get("data")

            await until(lambda: data() == {"a": "YQ=="})
            with trio.fail_after(SOON):
                await engine.wait_idle()
            client.delete(path).raise_for_status()
            await until(lambda: data() == {"a": "YQ=="})
            with trio.fail_after(SOON):
                await engine.wait_idle()
            client.patch(
                path, json={"data": {"a": "Yg=="}}, headers={"Content-Type": "application/merge-patch+json"}
            ).raise_for_status()
            await until(lambda: data() == {"a": "YQ=="})


async def test_c6_every_change_is_seen_also_between_two_runs(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    program = Program()
    maps = Maps(kube, namespace)
    seen: dict[str, str | None] = {}

    @program.app.controller(manages=program.config_map.within(namespace=namespace))
    async def sites(rt: headway.Runtime, request: headway.Request[Any]) -> None:
        found = rt.cache.get(program.config_map, request.id)
        seen[request.id.name] = None if found is None else found.data.get("data", {}).get("v")

    options: dict[str, Any] = {"process": "web-1", "timing": Timing(lease_ttl=3)}
    async with running(kube, program, namespace, tmp_path, **options) as engine:
        await engine.wait_idle()
        for number in range(5):
            maps.write("kept", v=str(number))
            maps.write(f"m{number}", v="1")
        maps.delete("m0")
        await until(lambda: seen.get("kept") == "4" and seen.get("m0", "") is None)
        with trio.fail_after(SOON):
            await engine.wait_idle()
    maps.delete("m1")
    maps.write("m2", v="2")
    maps.write("new", v="1")
    maps.write("short", v="1")
    maps.delete("short")
    seen.clear()
    events: list[object] = []
    async with running(kube, program, namespace, tmp_path, report=events.append, **options) as engine:
        with trio.fail_after(SOON):
            await engine.wait_idle()
    assert seen == {"kept": "4", "m1": None, "m2": "2", "m3": "1", "m4": "1", "new": "1", "short": None}
    assert not any(isinstance(each, DeletionsUnknown) for each in events)


async def test_c7_one_process_runs_the_controller(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    maps = Maps(kube, namespace)
    seen: list[tuple[str, str]] = []

    def program_of(process: str) -> Program:
        program = Program()

        @program.app.controller(manages=program.config_map.within(namespace=namespace))
        async def sites(_: headway.Runtime, request: headway.Request[Any]) -> None:
            seen.append((process, request.id.name))

        return program

    timing = Timing(lease_ttl=3)
    async with trio.open_nursery() as nursery:
        leaving = trio.Event()

        async def first() -> None:
            one = program_of("one")
            async with running(kube, one, namespace, tmp_path, process="one", timing=timing) as engine:
                await engine.wait_idle()
                maps.write("a")
                await until(lambda: ("one", "a") in seen)
                await leaving.wait()

        nursery.start_soon(first)
        await until(lambda: seen)
        async with running(kube, program_of("two"), namespace, tmp_path, process="two", timing=timing) as engine:
            await until(lambda: engine.status()[0].phase == "standby")
            maps.write("b")
            await until(lambda: ("one", "b") in seen)
            assert all(process == "one" for process, _ in seen)
            leaving.set()
            await until(lambda: ("two", "b") in seen)
            maps.write("c")
            await until(lambda: ("two", "c") in seen)
    assert ("one", "c") not in seen


async def test_an_idle_stream_is_not_taken_for_one_that_lags(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    """An API server says nothing for a minute: the patrol asks, and the stream tells how far it is."""
    program = Program()
    events: list[object] = []

    @program.app.controller(manages=program.config_map.within(namespace=namespace))
    async def sites(_: headway.Runtime, request: headway.Request[Any]) -> None: ...

    timing = Timing(lag_limit=1)
    async with running(kube, program, namespace, tmp_path, report=events.append, timing=timing) as engine:
        await engine.wait_idle()
        for number in range(6):
            with kube.client() as client:
                meta = {"metadata": {"name": f"s{number}"}}
                client.post(f"/api/v1/namespaces/{namespace}/secrets", json=meta).raise_for_status()
            await trio.sleep(0.5)
    assert not [each for each in events if isinstance(each, StreamEnded | StreamLagging)]


async def test_events_are_those_of_the_cluster(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    program = Program()
    maps = Maps(kube, namespace)

    @program.app.controller(manages=program.config_map.within(namespace=namespace))
    async def sites(rt: headway.Runtime, request: headway.Request[Any]) -> None:
        found = rt.cache.get(program.config_map, request.id)
        if found is not None:
            rt.event(found, "Seen", "it was seen", warning=True)

    async with running(kube, program, namespace, tmp_path) as engine:
        await engine.wait_idle()
        maps.write("web", v="1")
        maps.write("web", v="2")
        path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"

        def recorded() -> list[dict[str, Any]]:
            with kube.client() as client:
                items: list[dict[str, Any]] = client.get(path).json()["items"]
                return items

        await until(recorded)
        (event,) = recorded()
    assert (event["reason"], event["note"], event["type"]) == ("Seen", "it was seen", "Warning")
    assert (event["regarding"]["kind"], event["regarding"]["name"]) == ("ConfigMap", "web")
    assert event["reportingController"] == "sites/sites"
