"""C8 to C11 of the contract, each tested in a whole engine by the fewest steps that could break it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

import headway
from headway.api import Reason
from headway.errors import OutcomeUnknown, Unavailable
from headway.events import RunEnded, RunStarted
from headway.storage import SqliteBackend, open_store
from headway.testing import Fault
from tests.helpers.pools import Member, Pool, PoolsApp
from tests.helpers.rig import Rig
from tests.helpers.service_errors import reason_of
from tests.helpers.settings import Setting
from tests.test_engine import tasks_below


async def test_c8_late_write_of_a_superseded_run_is_refused(autojump_clock: MockClock, setting: Setting) -> None:
    """The first run sends the write, and it arrives during the third run."""
    rig = Rig(autojump_clock, setting=setting)
    async with rig.open():
        await rig.write_pool("a")
        await rig.wait_idle()
        rig.channel.writes(Fault.LATE)
        await rig.write_member("m", "a")
        await rig.wait_idle()
        for _ in range(2):
            await rig.restart()
            await rig.wait_idle()
        await rig.write_member("m", "")
        await rig.wait_idle()
        assert await rig.summaries() == {}

        [late] = await rig.channel.run_late()

        assert late.request.fence.term == 1
        # The end of a term and the beginning of the next are one commit each.
        assert rig.witness.reconciles[-1].term == 5
        assert late.error is not None
        assert reason_of(late.error) is Reason.FENCED
        assert await rig.summaries() == {}


async def test_c9_resources_that_a_reconciler_reads_or_writes_may_be_mutated(
    autojump_clock: MockClock, setting: Setting
) -> None:
    """This holds for every way to read, for the result of a write, and for the resource that was written."""
    rig = Rig(autojump_clock, setting=setting)
    pools = rig.pools
    rounds = 0

    def check(member: headway.Resource[Member] | None) -> None:
        assert member is not None
        assert (member.data, dict(member.metadata)) == (Member(pool="a"), {"by": "us"})
        member.data.pool = member.metadata["by"] = "spoilt"

    async def spoil(rt: headway.Runtime, request: headway.Request) -> None:
        nonlocal rounds
        if request.id.name != "a":
            return
        written = Member(pool="a")
        rounds += 1
        given = pools.member.new("m", written, metadata={"by": "us"})
        answer = await rt.client.apply(given)
        written.pool = given.metadata["by"] = "spoilt"
        check(answer)
        for _ in range(2):
            check(rt.cache.get(pools.member, "m"))
            [listed] = rt.cache.list(pools.member)
            check(listed)
            [indexed] = rt.cache.index(pools.by_pool, "a")
            check(indexed)
            check(await rt.client.get(pools.member, "m"))

    pools.replace(spoil)
    async with rig.open() as engine:
        for note in ("1", "2"):
            await engine.client.apply(pools.pool.new("a", Pool(note=note)))
            await rig.wait_idle()
        check(await engine.client.get(pools.member, "m"))
        assert rounds >= 2
        assert not engine.controllers["pools"].status().not_done


async def test_c10_crash_restarts_one_controller_and_leaves_no_task(
    autojump_clock: MockClock, setting: Setting
) -> None:
    """The second controller stays in its first run when the first one's source fails. At the end, both have ended."""
    rig = Rig(autojump_clock, setting=setting)
    other: list[int] = []

    @rig.pools.app.controller(manages=rig.pools.member, name="other")
    async def members(rt: headway.Runtime, _: headway.Request) -> None:
        other.append(rt.term)

    rig.pools.final_pause = 100.0
    async with rig.open():
        await rig.write_pool("a")
        await trio.sleep(1)
        assert rig.witness.running == 1
        rig.pools.fail_source()
        await trio.sleep(2)
        await rig.write_member("m", "")
        await trio.sleep(1)
        assert set(other) == {1}
        assert [event.controller for event in rig.witness.events_of(RunEnded)] == ["test/pools"]
        assert sorted(event.controller for event in rig.witness.events_of(RunStarted)) == [
            f"test/{each}" for each in ("other", "pools", "pools")
        ]
        assert rig.witness.running == 1
        assert {"worker 0 of test/pools", "worker 0 of test/other"} <= {task.name for task in tasks_below()}
    assert not tasks_below()


HOST = """
import sys, trio, headway
from headway.events import ignore
from tests.helpers.pools import PoolsApp

pools = PoolsApp()

async def write(client, writer):
    for number in range(1_000_000):
        await client.write(pools.pool.new(f"{writer}-{number}"))
        print(f"{writer}-{number}", flush=True)

async def main():
    listen = sys.argv[2:]
    network = headway.Network(listen, insecure=True)
    async with headway.open_engine(f"sqlite:{sys.argv[1]}", pools.app, network=network, report=ignore) as engine:
        print("open", flush=True)
        if listen:
            await trio.sleep_forever()
        async with trio.open_nursery() as nursery:
            for writer in range(4):
                nursery.start_soon(write, engine.client, writer)

trio.run(main)
"""


@pytest.mark.parametrize("network", [False, pytest.param(True, marks=pytest.mark.wide)], ids=["in process", "network"])
async def test_c11_acknowledged_write_survives_kill_9(tmp_path: Path, network: bool) -> None:
    """This holds for the client of a whole engine, and for a client that writes to it over the network."""
    pools, store = PoolsApp(), tmp_path / "c11.db"
    acknowledged: set[str] = set()
    with tempfile.TemporaryDirectory(prefix="headway-") as short:
        where = f"unix:{short}/socket"
        command = [sys.executable, "-c", HOST, str(store), *([where] if network else [])]
        with trio.fail_after(40):
            async with trio.open_nursery() as nursery:
                host = await nursery.start(partial(trio.run_process, command, stdout=subprocess.PIPE, check=False))
                async with aclosing(_lines(host)) as lines:
                    assert await anext(lines) == "open"
                    if network:
                        await _write_until_killed(where, pools, host, acknowledged)
                    async for line in lines:
                        acknowledged.add(line)
                        if len(acknowledged) == 100:
                            host.kill()
    async with headway.open_engine(f"sqlite:{store}", pools.app) as engine:
        there = {pool.name for pool in await engine.client.list(pools.pool)}
    assert len(acknowledged) >= 100
    assert acknowledged <= there


async def _lines(process: trio.Process) -> AsyncGenerator[str, None]:
    assert process.stdout is not None
    rest = b""
    async for received in process.stdout:
        *lines, rest = (rest + received).split(b"\n")
        for line in lines:
            yield line.decode()


async def _write_until_killed(where: str, pools: PoolsApp, host: trio.Process, acknowledged: set[str]) -> None:
    async with headway.connect(where, pools.app) as client, trio.open_nursery() as nursery:

        async def write(writer: int) -> None:
            for number in range(1_000_000):
                try:
                    await client.write(pools.pool.new(f"{writer}-{number}"))
                except (OutcomeUnknown, Unavailable):
                    return
                acknowledged.add(f"{writer}-{number}")
                if len(acknowledged) == 100:
                    host.kill()

        for writer in range(4):
            nursery.start_soon(write, writer)


async def test_c11_acknowledged_write_is_synced_to_disk(tmp_path: Path) -> None:
    """Each transaction is synced before it is answered, so the write also survives a failure of the machine."""
    async with open_store(f"sqlite:{tmp_path / 'c11.db'}") as store:
        assert isinstance(store, SqliteBackend)
        assert store._opened is not None
        (synchronous,) = store._opened.file.writer.execute("PRAGMA synchronous").fetchone()
        (journal,) = store._opened.file.writer.execute("PRAGMA journal_mode").fetchone()
    assert (synchronous, journal) == (2, "wal")
