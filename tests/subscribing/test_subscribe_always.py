"""Whatever is lost, a subscriber's state is always that of one revision: never empty, older, or half a commit."""

from __future__ import annotations

from typing import Any

import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

import headway
from headway.client import Client
from headway.resource import ResourceType
from headway.rpc import InProcessChannel
from headway.storage import MemoryBackend, Operation
from headway.subscription import Topic
from tests.helpers.declared import CHILD, NOTE, PLANET, registry
from tests.helpers.faulty_subscription import FaultySubscription
from tests.helpers.subscribing import a_service, put, remove

TYPES: list[ResourceType[Any]] = [NOTE, CHILD, PLANET]
NAMES = ("a", "b")

State = dict[tuple[str, str], str]


class World:
    """A store with little history, and what it contained at each revision."""

    def __init__(self) -> None:
        self.backend = MemoryBackend(max_changes=6)
        self.versions: dict[tuple[str, str], str] = {}
        self.state: State = {}
        self.truth: dict[int, State] = {0: {}}
        self.published: dict[str, bytes] = {}
        self.events: list[dict[str, bytes]] = [{}]
        self.topic: Topic[bytes] = Topic("rates", None, lambda _: dict(self.published), wildcard=True)

    async def commit(self, changes: dict[tuple[int, str], str | None]) -> None:
        operations: list[Operation] = []
        after = dict(self.state)
        for (index, name), text in changes.items():
            type = TYPES[index]
            key = (type.name.kind, name)
            version = self.versions.get(key, "")
            if text is not None:
                operations.append(put(name, text, type, expected=version))
                after[key] = text
            elif key in after:
                operations.append(remove(name, type, expected=version))
                del after[key]
        revision = (await self.backend.commit(operations)).revision
        self.state = after
        for (index, name), text in changes.items():
            key = (TYPES[index].name.kind, name)
            if text is None:
                self.versions.pop(key, None)
            else:
                self.versions[key] = str(revision)
        self.truth[revision] = after

    def publish(self, subjects: list[str]) -> None:
        events = {subject: str(len(self.events)).encode() for subject in subjects}
        self.published |= events
        self.topic.publish(events)
        self.events.append(dict(self.published))


class Mirror:
    """What a subscriber has, held against the truth after each batch."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.state: State = {}
        self.published: dict[str, bytes] = {}
        self.revision = self.number = 0
        self.changed = trio.Event()

    def apply(self, batch: headway.subscribing.SubscriptionBatch) -> None:
        if batch.snapshot:
            self.state, self.published = {}, {}
        for event in batch.events:
            match event:
                case headway.client.Upserted(resource):
                    self.state[resource.type.name.kind, resource.name] = resource.data.text
                case headway.client.Deleted(resource):
                    del self.state[resource.type.name.kind, resource.name]
                case headway.subscribing.Published(_, subject, data):
                    self.published[subject] = data
        store, (topic,) = batch.position.store, batch.position.topics
        assert store is not None
        assert self.revision <= store.revision
        assert self.number <= topic.number
        self.revision, self.number = store.revision, topic.number
        assert self.state == self._world.truth[self.revision]
        assert self.published == self._world.events[self.number]
        self.changed.set()
        self.changed = trio.Event()


Change = st.dictionaries(
    st.tuples(st.integers(0, len(TYPES) - 1), st.sampled_from(NAMES)),
    st.one_of(st.none(), st.sampled_from(["1", "2"])),
    min_size=1,
    max_size=4,
)
Step = st.one_of(
    Change,
    st.lists(st.sampled_from(["EUR", "CHF"]), min_size=1, max_size=2, unique=True),
    st.sampled_from(["drop", "drop twice", "wait", "slow", "fast"]),
)


@given(st.lists(Step, max_size=40))
def test_state_is_always_that_of_one_revision(steps: list[Any]) -> None:
    """Streams are lost, history is compacted, and the reader is slow at times. In the end it has everything."""
    trio.run(_always, steps, clock=trio.testing.MockClock(autojump_threshold=0))


async def _always(steps: list[Any]) -> None:
    world = World()
    channel = FaultySubscription(InProcessChannel(a_service(world.backend, {"rates": world.topic})))
    client, mirror, pace = Client(channel, registry()), Mirror(world), [0.0]

    async def read() -> None:
        async with client.subscribe([*TYPES, world.topic], progress_interval=0.01) as batches:
            async for batch in batches:
                mirror.apply(batch)
                await trio.sleep(pace[0])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        for step in steps:
            if isinstance(step, dict):
                await world.commit(step)
            elif isinstance(step, list):
                world.publish(step)
            elif step == "wait":
                await trio.sleep(0.1)
            elif step in ("slow", "fast"):
                pace[0] = 3.0 if step == "slow" else 0.0
            else:
                channel.drops = 1 if step == "drop" else 2
        pace[0] = 0.0
        await world.commit({(0, "last"): "1"})
        world.publish(["last"])
        with trio.fail_after(300):
            while (mirror.state, mirror.published) != (world.state, world.published):
                await mirror.changed.wait()
        nursery.cancel_scope.cancel()
