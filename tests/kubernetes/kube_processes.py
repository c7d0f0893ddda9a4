"""The servers of a cluster and the processes of a program on it, for a machine whose rules are synchronous."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeVar

import trio

import headway
from headway.cache import CacheReader
from headway.engine import Timing
from headway.kubernetes._http import ApiServer
from headway.kubernetes._kubeconfig import load_config
from headway.kubernetes._open import open_channel
from headway.testing.history import CacheSeen, Fact
from tests.helpers.contract import Witness
from tests.helpers.kube_server import KubeServer
from tests.kubernetes.cluster_history import RecordingCluster
from tests.kubernetes.connected import kubeconfig
from tests.kubernetes.etcd_record import EtcdRecord
from tests.kubernetes.faulty_api import FaultyApi
from tests.kubernetes.kube_pools import KubePools, KubeWitness, ObservedChannel, install

T = TypeVar("T")

TIMING = Timing(lag_limit=5, lease_ttl=6)
_TIMEOUT = 5.0


class World:
    """Two API servers on one etcd, which the examples of a machine share, and a thread with a Trio run.

    Attributes:
        servers: the servers. Programs use the first, and users the second.
        folder: a folder for backups and configurations.
        log: the steps of the present example, or of the one that failed.
        failure: the first failure. Hypothesis would run its example again, but no cluster fails twice in the same way.
    """

    def __init__(self, first: KubeServer, second: KubeServer, folder: Path) -> None:
        self.servers, self.folder = (first, second), folder
        self.log: list[str] = []
        self.failure: BaseException | None = None
        install(second)
        started = threading.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._main, started), daemon=True)
        self._thread.start()
        started.wait()

    async def _main(self, started: threading.Event) -> None:
        async with trio.open_nursery() as self.nursery:
            self._token = trio.lowlevel.current_trio_token()
            started.set()
            await trio.sleep_forever()

    def call(self, function: Callable[..., Awaitable[T]], *arguments: object) -> T:
        """Run an async function in the Trio run, and return what it returns or raise what it raises."""
        return trio.from_thread.run(function, *arguments, trio_token=self._token)

    def close(self) -> None:
        """End the Trio run."""
        trio.from_thread.run_sync(self.nursery.cancel_scope.cancel, trio_token=self._token)
        self._thread.join()


class Process:
    """A process of the program, which is started, killed and started again."""

    def __init__(
        self,
        world: World,
        namespace: str,
        pools: KubePools,
        record: EtcdRecord,
        all: list[Witness],
        noted: Callable[[Fact], object],
    ) -> None:
        self.pools = pools
        self.channel = ObservedChannel()
        self.witness = KubeWitness(pools, self.channel, record, all, self._saw)
        self._noted, self._who, self._life = noted, "", 0
        self.api: FaultyApi | None = None
        self.engine: headway.Engine | None = None
        self._world, self._namespace = world, namespace

    async def open(self, name: str) -> None:
        """Start it."""
        self._scope, self._closed = trio.CancelScope(), trio.Event()
        self.engine = await self._world.nursery.start(self._live, name)

    async def _live(self, name: str, task_status: trio.TaskStatus[headway.Engine]) -> None:
        try:
            with self._scope:
                async with AsyncExitStack() as stack:
                    task_status.started(await self._opened(stack, name))
                    await trio.sleep_forever()
        finally:
            self._closed.set()

    async def _opened(self, stack: AsyncExitStack, name: str) -> headway.Engine:
        servers = []
        for each in self._world.servers:
            config = load_config(kubeconfig(each, f"{self._namespace}", _folder(self._world.folder, each.url)))
            servers.append(await stack.enter_async_context(ApiServer(config, timeout=_TIMEOUT)))
        self.api = FaultyApi(servers)
        self._life += 1
        self._who = f"{name}#{self._life}"
        opened = open_channel(self.api, self.pools.app.registry, self._namespace)  # type: ignore[arg-type]  # its methods
        recorded = RecordingCluster(self._who, self._noted).over(await stack.enter_async_context(opened))
        channel = self.channel.over(recorded)
        workers = headway.open_workers(channel, self.pools.app, report=self.witness.report, process=name, timing=TIMING)
        return await stack.enter_async_context(workers)

    def _saw(self, cache: CacheReader) -> None:
        """Record the content of a cache, unless it is scoped: the judge knows no scopes."""
        if not self.pools.scoped and self.witness.lost is None:
            life = f"{self._who} {self.witness.started}"
            for type in self.pools.types:
                held = tuple((each.id.key, int(each.version)) for each in cache.list(type))
                self._noted(CacheSeen(life, type.kind, cache.revision(type), held))

    async def close(self) -> None:
        """End it, and forget all that it knew."""
        self._scope.cancel()
        await self._closed.wait()
        self.engine = self.api = None
        self.pools.runtime, self.pools.pause = None, 0.0
        self.witness.end_process()
        self.channel.opened.clear()

    @property
    def settled(self) -> int:
        """The revision up to which it has no work left; 0 if it has some."""
        return 0 if self.engine is None else self.engine.status()[0].settled

    @property
    def cache(self) -> headway.cache.Cache | None:
        """The cache of the present run, if it can be read."""
        runtime = self.pools.runtime
        return runtime.cache if self.engine is not None and runtime is not None and runtime.cache.primed else None


def _folder(folder: Path, url: str) -> Path:
    made = folder / url.rpartition(":")[2]
    made.mkdir(exist_ok=True)
    return made
