"""The bug that Headway was made against, on Kubernetes: a reconciler that acts on a cache that is not what it seems.

A plain program watches two types over httpx, keeps what it sees, and reconciles at each event. It has both forms of the
bug, and makes a second child of each parent, or undoes a newer change. The same program on Headway does neither. Each
test holds or cuts the streams of the real API server at the same place for both.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import trio

import headway
from headway import kubernetes
from headway.engine import Engine
from headway.kubernetes._http import ApiServer
from headway.kubernetes._kubeconfig import load_config
from headway.kubernetes._open import open_channel
from tests.helpers.kube_server import ADMIN, KubeServer
from tests.kubernetes.connected import Program, kubeconfig
from tests.kubernetes.gates import GatedServer
from tests.kubernetes.test_kube_contract import Maps, until

PARENTS, CHILDREN = "configmaps", "secrets"


class Streams:
    """What a test does to the streams of both programs.

    Attributes:
        gates: a line of a type passes when its gate is open.
        passed: the lines of each type that have passed.
        cuts: the streams of these types end before their next line.
    """

    def __init__(self) -> None:
        self.gates = {PARENTS: trio.Event(), CHILDREN: trio.Event()}
        self.passed = {PARENTS: 0, CHILDREN: 0}
        self.cuts = set[str]()

    async def passes(self, kind: str) -> bool:
        """Wait for the gate. Return False if the stream is cut."""
        await self.gates[kind].wait()
        if kind in self.cuts:
            self.cuts.discard(kind)
            return False
        self.passed[kind] += 1
        return True


class Plain:
    """A plain program. `reconcile` is called with the name of a parent, after its cache has changed."""

    def __init__(self, http: httpx.AsyncClient, namespace: str, streams: Streams) -> None:
        self.http = http
        self.path = f"/api/v1/namespaces/{namespace}"
        self.cache: dict[str, dict[str, Any]] = {PARENTS: {}, CHILDREN: {}}
        self._streams = streams

    async def run(self, reconcile: Callable[[str], Awaitable[None]]) -> None:
        async with trio.open_nursery() as nursery:
            for kind in self.cache:
                nursery.start_soon(self._follow, kind, reconcile)

    async def _follow(self, kind: str, reconcile: Callable[[str], Awaitable[None]]) -> None:
        listed = (await self.http.get(f"{self.path}/{kind}", params={"limit": "1"})).json()
        version = listed["metadata"]["resourceVersion"]
        initial = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
        params: Mapping[str, str] = initial
        while True:
            params = {"watch": "true", **params}
            async with (
                self.http.stream("GET", f"{self.path}/{kind}", params=params, timeout=None) as answer,
                ended(answer.aiter_lines()) as lines,
            ):
                async for line in lines:
                    if not await self._streams.passes(kind):
                        break
                    event = json.loads(line)
                    if event["type"] == "BOOKMARK":
                        continue
                    meta = event["object"]["metadata"]
                    if event["type"] == "DELETED":
                        self.cache[kind].pop(meta["name"], None)
                    else:
                        self.cache[kind][meta["name"]] = event["object"]
                    await reconcile(meta["labels"]["parent"] if kind == CHILDREN else meta["name"])
            # It goes on from where it began, as if each event could be seen twice without harm.
            params = {"resourceVersion": version}


@asynccontextmanager
async def ended(lines: AsyncIterator[str]) -> AsyncIterator[AsyncIterator[str]]:
    """End the generators of httpx with the block. Otherwise Python would do so later, with warnings."""
    try:
        yield lines
    finally:
        with trio.CancelScope(shield=True) as scope:
            scope.cancel()
            async for _ in lines:
                pass


@asynccontextmanager
async def plain_client(kube: KubeServer) -> AsyncIterator[httpx.AsyncClient]:
    trust = ssl.create_default_context(cafile=str(kube.authority_file))
    # A compressed stream would hold back single events.
    headers = {"Authorization": f"Bearer {ADMIN}", "Accept-Encoding": "identity"}
    async with httpx.AsyncClient(base_url=kube.url, headers=headers, verify=trust) as client:
        yield client


class HeldServer(GatedServer):
    """The API server, with the same streams."""

    def __init__(self, server: ApiServer, streams: Streams) -> None:
        super().__init__(server)
        self._streams = streams

    @asynccontextmanager
    async def watch(self, path: str, params: Any = None, **options: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        async with super().watch(path, params, **options) as lines:
            yield _Held(lines, self._streams, path.rpartition("/")[2])


class _Held:
    def __init__(self, lines: AsyncIterator[bytes], streams: Streams, kind: str) -> None:
        self._lines = lines
        self._streams = streams
        self._kind = kind

    def __aiter__(self) -> _Held:
        return self

    async def __anext__(self) -> bytes:
        line = await anext(self._lines)
        if not await self._streams.passes(self._kind):
            raise StopAsyncIteration
        return line


@asynccontextmanager
async def running(
    kube: KubeServer, app: headway.App, namespace: str, folder: Path, streams: Streams
) -> AsyncIterator[Engine]:
    """Run the controllers of an app on the same streams."""
    async with (
        ApiServer(load_config(kubeconfig(kube, namespace, folder))) as server,
        open_channel(HeldServer(server, streams), app.registry, namespace) as channel,  # type: ignore[arg-type]  # the same methods
        headway.open_workers(channel, app) as engine,
    ):
        yield engine


def family(kube: KubeServer, namespace: str) -> None:
    """Create three parents with a child each, as an earlier run has left them."""
    maps = Maps(kube, namespace)
    for name in ("ada", "grace", "joan"):
        maps.write(name)
        with kube.client() as client:
            client.post(f"/api/v1/namespaces/{namespace}/{CHILDREN}", json=child_of(name)).raise_for_status()


def child_of(parent: str) -> dict[str, Any]:
    return {"metadata": {"generateName": f"{parent}-", "labels": {"parent": parent}}}


def parents_of_children(kube: KubeServer, namespace: str) -> list[str]:
    with kube.client() as client:
        items = client.get(f"/api/v1/namespaces/{namespace}/{CHILDREN}").json()["items"]
    return sorted(each["metadata"]["labels"]["parent"] for each in items)


async def test_a_plain_program_makes_second_children(kube: KubeServer, namespace: str) -> None:
    """The parents arrive first, and the cache seems to have no children."""
    family(kube, namespace)
    streams, reconciled = Streams(), set[str]()
    async with plain_client(kube) as http, trio.open_nursery() as nursery:
        plain = Plain(http, namespace, streams)

        async def reconcile(parent: str) -> None:
            children = plain.cache[CHILDREN].values()
            if not any(each["metadata"]["labels"]["parent"] == parent for each in children):
                made = await http.post(f"{plain.path}/{CHILDREN}", json=child_of(parent))
                made.raise_for_status()
            reconciled.add(parent)

        nursery.start_soon(plain.run, reconcile)
        streams.gates[PARENTS].set()
        await until(lambda: len(reconciled) == 3)
        streams.gates[CHILDREN].set()
        await until(lambda: len(plain.cache[CHILDREN]) == 6)
        nursery.cancel_scope.cancel()
    assert parents_of_children(kube, namespace) == ["ada", "ada", "grace", "grace", "joan", "joan"]


async def test_a_controller_makes_none(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    """No reconcile begins before both types are primed."""
    family(kube, namespace)
    streams, reconciled = Streams(), set[str]()
    program = Program()
    parents = program.config_map.within(namespace=namespace)
    secret = kubernetes.builtin(program.app, "v1", "Secret")

    @program.app.controller(
        manages=parents,
        watches=[
            headway.watch(
                secret.within(namespace=namespace), headway.mappers.reference(lambda child: child.metadata["parent"])
            )
        ],
    )
    async def children(rt: headway.Runtime, request: headway.Request[Any]) -> None:
        parent = request.id.name
        if not any(each.metadata["parent"] == parent for each in rt.cache.list(secret.within(namespace=namespace))):
            made = secret.new(f"{parent}-another", namespace=namespace, metadata={"parent": parent})
            await rt.client.create(made)
        reconciled.add(parent)

    async with running(kube, program.app, namespace, tmp_path, streams) as engine:
        streams.gates[PARENTS].set()
        # The three parents, and the bookmark of the end.
        await until(lambda: streams.passed[PARENTS] >= 4)
        assert not reconciled
        streams.gates[CHILDREN].set()
        await until(lambda: len(reconciled) == 3)
        await engine.wait_idle()
    assert parents_of_children(kube, namespace) == ["ada", "grace", "joan"]


async def edits(maps: Maps, streams: Streams, applied: list[str]) -> None:
    """Edit a parent three times, each time when the change before has been applied. The last one meets a cut."""
    for number, size in enumerate(("2", "3", "4"), 1):
        await until(lambda seen=number: len(applied) == seen)  # type: ignore[misc]  # mypy infers no type of a default
        if size == "4":
            streams.cuts.add(PARENTS)
        maps.write("web", size=size)
    await until(lambda: applied[-1] == "4")


async def test_a_plain_program_undoes_a_newer_change(kube: KubeServer, namespace: str) -> None:
    """After a cut, its stream goes on from where it began, and the cache goes back."""
    maps, streams = Maps(kube, namespace), Streams()
    applied: list[str] = []
    maps.write("web", size="1")
    async with plain_client(kube) as http, trio.open_nursery() as nursery:
        plain = Plain(http, namespace, streams)

        async def reconcile(parent: str) -> None:
            size = plain.cache[PARENTS][parent]["data"]["size"]
            if applied[-1:] != [size]:
                applied.append(size)

        for gate in streams.gates.values():
            gate.set()
        nursery.start_soon(plain.run, reconcile)
        await edits(maps, streams, applied)
        nursery.cancel_scope.cancel()
    assert applied == ["1", "2", "3", "2", "3", "4"]


async def test_a_controller_undoes_nothing(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    """After a cut, the stream goes on where it was, and the cache takes no older state in any case."""
    maps, streams = Maps(kube, namespace), Streams()
    applied: list[str] = []
    maps.write("web", size="1")
    program = Program()

    @program.app.controller(manages=program.config_map.within(namespace=namespace))
    async def sizes(rt: headway.Runtime, request: headway.Request[Any]) -> None:
        found = rt.resource(request)
        if found is not None and applied[-1:] != [size := found.data["data"]["size"]]:
            applied.append(size)

    for gate in streams.gates.values():
        gate.set()
    async with running(kube, program.app, namespace, tmp_path, streams):
        await edits(maps, streams, applied)
    assert applied == ["1", "2", "3", "4"]
    assert not streams.cuts
