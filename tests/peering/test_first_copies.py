"""While a peer's first copy arrives, an engine has no full garbage collection."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

import headway
from headway import events
from headway._gen.headway.peering import v1 as wire
from headway.engine._collector import RARELY, GcFreeze
from headway.peering import Role, establish, export, generate_token
from tests.helpers.peers import TEAM as COPIED
from tests.helpers.peers import Team, app, open_accepting
from tests.helpers.resources import TEAM
from tests.peering.link_kit import Side, eventually, open_pair, open_side, raw_peer

LIMIT = 600
"""The seconds after which a first copy that is not complete is no longer waited for."""


class Loads:
    """The blocks of first copies of a side, as an engine would receive them."""

    def __init__(self, side: Side) -> None:
        self.begun = 0
        self.ended = trio.Event()
        side.host.loads = self.block

    @contextmanager
    def block(self) -> Iterator[None]:
        """Count the block."""
        self.begun += 1
        try:
            yield
        finally:
            self.ended.set()


async def test_first_copy_ends_when_it_is_complete(autojump_clock: MockClock) -> None:
    async with open_pair() as pair:
        loads = Loads(pair.b)
        await pair.a.write("ada", "1")
        scope = pair.connect()
        with trio.fail_after(5):
            await loads.ended.wait()
        assert await pair.b.copies() == {"ada": ["1"]}
        scope.cancel()
        await pair.a.write("ben", "2")
        pair.connect()
        await pair.wait(pair.b, {"ada": ["1"], "ben": ["2"]})
        assert loads.begun == 1


async def test_complete_copy_that_was_stored_before_is_no_first_copy(autojump_clock: MockClock) -> None:
    async with open_pair() as pair:
        await pair.a.write("ada", "1")
        pair.connect().cancel()
        pair.connect()
        await pair.wait(pair.b, {"ada": ["1"]})
        await trio.sleep(1)
        # As in a process that starts later.
        pair.b.entry.loaded = False
        loads = Loads(pair.b)
        pair.connect()
        await pair.a.write("ben", "2")
        await pair.wait(pair.b, {"ada": ["1"], "ben": ["2"]})
        assert loads.begun == 0


async def test_peer_that_never_completes_a_copy_is_not_waited_for(autojump_clock: MockClock) -> None:
    async with open_side("west", Role.ACCEPTS, TEAM) as side:
        loads = Loads(side)
        begin = trio.current_time()
        for _ in range(3):
            async with raw_peer(side) as peer:
                # Each stream ends before it has copied anything.
                await peer.receive()
        assert loads.begun == 1
        assert loads.ended.is_set()
        assert trio.current_time() - begin < LIMIT


async def test_first_copy_that_goes_on_for_ever_counts_for_ten_minutes(autojump_clock: MockClock) -> None:
    async with open_side("west", Role.ACCEPTS, TEAM) as side, raw_peer(side) as peer, trio.open_nursery() as nursery:
        loads = Loads(side)
        begin = trio.current_time()
        nursery.start_soon(peer.drain)
        while not loads.ended.is_set():
            assert trio.current_time() - begin <= LIMIT + 60
            await trio.sleep(60)
            await peer.send(wire.PeerMessage(heartbeat=wire.Heartbeat()))
        assert trio.current_time() - begin >= LIMIT
        assert not side.ends
        nursery.cancel_scope.cancel()


@pytest.fixture
def large_at_once() -> Iterator[None]:
    """Let a full collection be due after a few hundred new objects, as if they were many."""
    before = gc.get_threshold()
    gc.set_threshold(20, 2, 3)
    yield
    gc.set_threshold(*before)


@pytest.mark.parametrize("wanted", [True, False])
@pytest.mark.usefixtures("nothing_frozen", "large_at_once")
async def test_load_avoids_full_collections_and_freezes_what_it_received(wanted: bool) -> None:
    with GcFreeze(wanted) as freeze:
        if wanted:
            await freeze.first_pass(())
        before = gc.get_threshold()
        with freeze.load():
            with freeze.load():
                received: list[object] = [[] for _ in range(2000)]
            # The other load goes on.
            assert (gc.get_threshold()[2] > 1_000_000) is wanted
            assert gc.get_threshold()[:2] == before[:2]
        assert gc.get_threshold() == before
        assert any(each is received for each in gc.get_objects()) is not wanted
    assert any(each is received for each in gc.get_objects())


@pytest.mark.usefixtures("nothing_frozen", "large_at_once")
async def test_engine_freezes_the_first_copy_of_a_peering(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with (
            open_accepting(tmp_path) as accepts,
            headway.open_engine("memory:", app, report=events.ignore) as dials,
        ):

            async def loaded() -> bool:
                return gc.get_threshold()[2] == RARELY

            # The end of the first pass freezes objects as well.
            await eventually(loaded, wanted=True)
            gc.unfreeze()
            assert any(each is sys.modules for each in gc.get_objects())
            await accepts.client.write(COPIED.new("ada", Team(size=1)))
            exports = [export(COPIED, partition="default")]
            addresses = accepts.addresses
            token = await generate_token(accepts.client, "west", exports=exports, addresses=addresses, plain_text=True)
            await establish(dials.client, "east", token, plain_text=True)
            await headway.until(
                dials.client, COPIED, COPIED.id("ada", partition="peer-east"), lambda copy: copy is not None
            )

            async def frozen() -> bool:
                return not any(each is sys.modules for each in gc.get_objects())

            # No change of a resource says so.
            await eventually(frozen, wanted=True)
