"""Worker processes of servers that share one store in etcd: each key has one holder at a time, also through a kill."""

from __future__ import annotations

import itertools
import math
import time
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

import pytest
import trio
from typing_extensions import override

import headway
from tests.helpers.cluster import Job
from tests.helpers.etcd_server import EtcdServer
from tests.helpers.shard_program import LINGER, app_of
from tests.test_workers import Program, running, types_of

PATIENCE = 50.0
PLACED, JOB, COPY = app_of("")
NAMES = [f"job-{number}" for number in range(16)]


class Worker(Program):
    """A worker process, and the reconciles that it has printed: the key, the beginning and the end of each."""

    def __init__(self, process: trio.Process) -> None:
        super().__init__(process)
        self.open: dict[str, float] = {}
        self.done: list[tuple[str, float, float]] = []

    @override
    def take(self, line: str) -> None:
        words = line.split()
        if words[:1] == ["begin"]:
            assert words[1] not in self.open, f"{words[1]} is reconciled twice at once in one process"
            self.open[words[1]] = float(words[2])
        elif words[:1] == ["end"]:
            self.done.append((words[1], self.open.pop(words[1]), float(words[2])))
        else:
            super().take(" ".join(words))

    async def wait_begun(self) -> None:
        """Wait until a reconcile is in progress."""
        with trio.fail_after(PATIENCE):
            while not self.open:
                await self.changed.wait()

    def spans(self, killed_at: float = math.inf) -> list[tuple[str, float, float]]:
        """Return all reconciles. Those that had not ended did so when the process was killed."""
        return [*self.done, *((key, began, killed_at) for key, began in self.open.items())]

    def keys(self) -> set[str]:
        """Return the keys that it has begun to reconcile."""
        return {key for key, _, _ in self.spans()}


def worker(engine: headway.Engine, name: str) -> AbstractAsyncContextManager[Worker]:
    """Run the program against one server. It is killed at the end of the block."""
    return running(Worker, "shard_program", engine.addresses[0], name)


def server(etcd_url: str, name: str) -> Any:
    """Return an engine on the store that serves the types without their controllers."""
    network = headway.Network(["127.0.0.1:0"], insecure=True)
    return headway.open_engine(etcd_url, types_of(PLACED), network=network, process=name)


async def write_all(engine: headway.Engine, text: str) -> None:
    """Write every job with this text, and wait until all of them were copied."""
    missing = set(NAMES)
    with trio.fail_after(PATIENCE):
        for name in NAMES:
            await engine.client.apply(JOB.new(name, Job(text=text)))
        async with engine.client.watch(COPY) as changes:
            async for change in changes:
                if isinstance(change, headway.client.Upserted) and change.resource.data.text == text:
                    missing.discard(change.resource.name)
                if not missing:
                    return


@pytest.mark.wide
async def test_key_has_one_holder_at_a_time_through_a_kill(etcd: EtcdServer) -> None:
    """The workers have different names and servers. The one that is left reconciles the keys of the killed one."""
    url = f"etcd://{etcd.endpoint}{etcd.new_prefix()}"
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(server(url, name)) for name in ("server-1", "server-2")]
        first = await stack.enter_async_context(worker(engines[0], "web-1"))
        second = await stack.enter_async_context(worker(engines[1], "web-2"))
        # Until both have a part of the keys, there is no choice of a holder to be wrong.
        for number in itertools.count():
            await write_all(engines[number % 2], f"text {number}")
            begun = len(first.spans()), len(second.spans())
            if min(begun) and first.keys() & second.keys() != set(NAMES) and number >= 2:
                break
            assert number < 50, f"one of the workers has nothing: {begun}, {first.lines}, {second.lines}"
            await trio.sleep(0.2)

        # Some reconciles of the first are in progress when it is killed.
        for name in NAMES:
            await engines[1].client.apply(JOB.new(name, Job(text=LINGER)))
        await first.wait_begun()
        first.process.kill()
        await first.process.wait()
        killed_at = time.monotonic()
        left_behind = set(first.open)
        await write_all(engines[0], "after the kill")

        assert left_behind <= {key for key, began, _ in second.spans() if began > killed_at}
        both = [*first.spans(killed_at), *second.spans()]
        for (key, begin, end), (other, other_begin, other_end) in itertools.combinations(both, 2):
            assert key != other or end <= other_begin or other_end <= begin, f"{key} had two holders at once"
        assert second.lines == ["opened"]
