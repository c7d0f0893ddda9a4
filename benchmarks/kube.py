"""`kube_prime`, `kube_change` and `kube_memory`: a controller of the Deployments of a real API server.

Each has two containers with eight variables, as stored about 4.5 kB of JSON.

kube_prime. Measured: the processor time of this process per object, from opening the informer of a namespace until it
is primed. Against: a loop over httpx that reads the same streaming list, and keeps each object by its key as
`json.loads` returns it.

kube_change. Measured: the processor time of this process per change, from the first of as many changes of different
objects as there are objects, which another process makes one after the other, until each is reconciled. Against: the
same loop, which puts each object of an event into its table.

kube_memory. Measured: the bytes per object that Python allocates (by tracemalloc) for the primed informer. Against: the
table of the loop.
"""

from __future__ import annotations

import gc
import json
import ssl
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import trio

import headway
from benchmarks._harness import NotHere, Row, Scenario, interleaved
from headway import kubernetes
from headway.cache import Informer
from headway.events import ignore
from headway.informers import Informers
from headway.kubernetes._http import ApiServer
from headway.kubernetes._kubeconfig import load_config
from headway.kubernetes._open import open_channel
from tests.helpers.kube_server import ADMIN, BUILT, NO_KUBE, KubeServer, running_kube
from tests.kubernetes.connected import kubeconfig

_NAMESPACE = "default"
_PATH = f"/apis/apps/v1/namespaces/{_NAMESPACE}/deployments"
_STREAM = {
    "watch": "true",
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "allowWatchBookmarks": "true",
}
_AT_ONCE = 16
_CHANGES = """
import json, sys, httpx
url, ca, token, path, size, turn = sys.argv[1:]
headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/merge-patch+json"}
with httpx.Client(base_url=url, verify=ca, headers=headers, timeout=30) as client:
    for number in range(int(size)):
        body = json.dumps({"metadata": {"labels": {"turn": turn}}})
        client.patch(f"{path}/d{number}", content=body).raise_for_status()
"""

Table = dict[tuple[str, str], Any]


def _deployment(number: int) -> dict[str, Any]:
    labels = {"app": f"a{number}"}
    variables = [{"name": f"NAME{each}", "value": "v" * 20} for each in range(8)]
    containers = [{"name": f"c{each}", "image": "image:1", "env": variables} for each in range(2)]
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": f"d{number}", "labels": labels}, "spec": spec}


class _Cluster:
    """A real API server with Deployments, and both ways to read them."""

    def __init__(self, kube: KubeServer, folder: Path, size: int) -> None:
        self.kube, self.size = kube, size
        self.config = load_config(kubeconfig(kube, _NAMESPACE, folder))
        self.app = headway.App("bench")
        self.type = kubernetes.builtin(self.app, "apps/v1", "Deployment").within(namespace=_NAMESPACE)
        self._turn = 0

    async def fill(self) -> None:
        async with ApiServer(self.config) as server, trio.open_nursery() as nursery:

            async def create(first: int) -> None:
                for number in range(first, self.size, _AT_ONCE):
                    await server.call("POST", _PATH, body=_deployment(number))

            for first in range(_AT_ONCE):
                nursery.start_soon(create, first)

    @asynccontextmanager
    async def informer(self) -> AsyncIterator[Informer]:
        """Yield the primed informer."""
        async with (
            ApiServer(self.config) as server,
            open_channel(server, self.app.registry, _NAMESPACE) as channel,
            trio.open_nursery() as nursery,
        ):
            informer = Informers(channel, nursery, ignore).informer_for(self.type)
            await informer.wait_complete(0)
            yield informer
            nursery.cancel_scope.cancel()

    @asynccontextmanager
    async def loop(self, changes: int = 0) -> AsyncIterator[tuple[Table, Callable[[], Any]]]:
        """Yield the table of the bare loop, primed, and an async function that reads so many changes."""
        trust = ssl.create_default_context(cafile=str(self.kube.authority_file))
        headers = {"Authorization": f"Bearer {ADMIN}", "Accept-Encoding": "identity"}
        async with (
            httpx.AsyncClient(base_url=self.kube.url, headers=headers, verify=trust, timeout=60) as client,
            client.stream("GET", _PATH, params=_STREAM) as response,
        ):
            table: Table = {}
            pieces, rest, left = aiter(response.aiter_bytes()), b"", list[bytes]()

            async def read(wanted: int) -> None:
                nonlocal rest, left
                while wanted:
                    if not left:
                        *left, rest = (rest + await anext(pieces)).split(b"\n")
                    while left and wanted:
                        event = json.loads(left.pop(0))
                        if event["type"] == "BOOKMARK":
                            if wanted < 0:
                                return
                            continue
                        meta = event["object"]["metadata"]
                        table[meta["namespace"], meta["name"]] = event["object"]
                        wanted -= wanted > 0

            await read(-1)
            try:
                yield table, lambda: read(changes)
            finally:
                # Its generators end where they wait.
                with trio.CancelScope(shield=True) as scope:
                    scope.cancel()
                    async for _ in pieces:
                        pass

    def change(self) -> subprocess.Popen[bytes]:
        """Let another process change each Deployment once."""
        self._turn += 1
        arguments = [self.kube.url, str(self.kube.authority_file), ADMIN, _PATH, str(self.size), f"t{self._turn}"]
        return subprocess.Popen([sys.executable, "-c", _CHANGES, *arguments])


@contextmanager
def _cluster(size: int) -> Iterator[_Cluster]:
    if not BUILT.exists():
        raise NotHere(NO_KUBE)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder).resolve()
        with running_kube(path) as kube:
            made = _Cluster(kube, path, size)
            trio.run(made.fill)
            yield made


def _prime(size: int, rounds: int) -> Row:
    with _cluster(size) as cluster:

        async def ours() -> float:
            begin = time.process_time()
            async with cluster.informer():
                return time.process_time() - begin

        async def bare() -> float:
            begin = time.process_time()
            async with cluster.loop():
                return time.process_time() - begin

        measured, against = interleaved(lambda: trio.run(ours), lambda: trio.run(bare), rounds)
    return Row("kube_prime", measured / size * 1e6, against / size * 1e6, "us", _PRIME)


def _change(size: int, rounds: int) -> Row:
    with _cluster(size) as cluster:

        async def ours() -> float:
            app, seen, all_seen = headway.App("bench"), set[str](), trio.Event()
            managed = kubernetes.builtin(app, "apps/v1", "Deployment").within(namespace=_NAMESPACE)
            begun = False

            @app.controller(manages=managed)
            async def deployments(rt: headway.Runtime, request: headway.Request[Any]) -> None:
                if begun and rt.cache.get(managed, request.id) is not None:
                    seen.add(request.id.name)
                    if len(seen) == size:
                        all_seen.set()

            file = kubeconfig(cluster.kube, _NAMESPACE, Path(cluster.kube.authority_file).parent)
            async with kubernetes.open_cluster(app, kubeconfig=file, report=ignore) as engine:
                await engine.wait_idle()
                begun, begin = True, time.process_time()
                writer = cluster.change()
                await all_seen.wait()
                spent = time.process_time() - begin
            assert writer.wait() == 0
            return spent

        async def bare() -> float:
            async with cluster.loop(size) as (_, read):
                begin = time.process_time()
                writer = cluster.change()
                await read()
                spent = time.process_time() - begin
            assert writer.wait() == 0
            return spent

        measured, against = interleaved(lambda: trio.run(ours), lambda: trio.run(bare), rounds)
    return Row("kube_change", measured / size * 1e6, against / size * 1e6, "us", _CHANGE)


def _memory(size: int, rounds: int) -> Row:
    with _cluster(size) as cluster:

        async def ours() -> float:
            async with cluster.informer():
                gc.collect()
                return tracemalloc.get_traced_memory()[0]

        async def bare() -> float:
            async with cluster.loop():
                gc.collect()
                return tracemalloc.get_traced_memory()[0]

        def traced(side: Callable[[], Any]) -> float:
            trio.run(side)  # allocates what a process allocates once
            gc.collect()
            tracemalloc.start()
            try:
                found: float = trio.run(side)
                return found
            finally:
                tracemalloc.stop()

        measured, against = interleaved(lambda: traced(ours), lambda: traced(bare), rounds)
    return Row("kube_memory", measured / size, against / size, "bytes", _MEMORY)


_PRIME, _CHANGE, _MEMORY = 1.5, 2.0, 0.6

ROWS = (
    Scenario("kube_prime", _PRIME, _prime, size=10_000, rounds=3, quick=2_000),
    Scenario("kube_change", _CHANGE, _change, size=500, rounds=3),
    Scenario("kube_memory", _MEMORY, _memory, size=10_000, rounds=1, quick=1_000),
)
