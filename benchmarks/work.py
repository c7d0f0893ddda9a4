"""`work`: the cost of a real reconcile, which reads, applies what is already so, and writes a status.

Measured: the processor time per key from opening an engine over a store with 10,000 resources of the managed type until
every one has its status and nothing is pending, without the time of the same pass by a controller that does nothing.
Each reconcile makes five reads of the cache (its resource, a setting that it refers to, its two outputs, and its
outputs by their owner), two calls of `rt.client.apply` that find nothing to change, and one status write. The time has
everything that the status writes cause in the engine: commits, streams, caches, the mapping, further reconciles.

Against: the same work on the same messages without an engine: five look-ups by key, each with a private copy of the
metadata and the decoded payload of what was found, two payloads that are encoded and compared with the stored ones, and
one commit of the resource with its status to a store in memory.

The messages have one metadata entry and 120 bytes of payload.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import trio

import headway
from benchmarks._harness import Row, Scenario, collected, interleaved
from benchmarks._message import GROUPS, Note, built_many, fill, note, texts
from headway.events import ignore
from headway.protobuf import decode, encode
from headway.resource import Key, Kind, ResourceType, pb, resource_key
from headway.storage import MemoryBackend, Put, Within

BOUND = 14.0
CONCURRENCY = 8
READY = pb.Condition(type="Ready", state=pb.ConditionState.TRUE)

Handler = Callable[[headway.Runtime, headway.Request[Note]], Awaitable[None]]


class Declared:
    """A program with a controller of notes, which have a setting and two outputs each."""

    def __init__(self) -> None:
        self.app = headway.App("bench")
        self.note, self.setting, self.output = (
            self.app.type("bench", "v1", kind, Note) for kind in ("Note", "Setting", "Output")
        )
        self.by_group = headway.indexes.by(self.note, "group", lambda each: each.metadata["group"])

    def controlled(self, reconcile: Handler) -> headway.App:
        """Return the program with this reconciler."""
        watches = [
            headway.watch(self.setting, headway.mappers.index(self.by_group, value=lambda setting: setting.name)),
            headway.watch(self.output, headway.mappers.owner()),
        ]
        indexes = [self.by_group]
        self.app.controller(
            manages=self.note, watches=watches, indexes=indexes, concurrency=CONCURRENCY, deadline=300.0, name="notes"
        )(reconcile)
        return self.app

    async def filled(self, size: int) -> MemoryBackend:
        """Return a store with this number of notes, and all that belongs to them."""
        backend = MemoryBackend()
        notes = built_many(self.note, size)
        await fill(backend, self.note, notes)
        await fill(backend, self.setting, [_named(self.setting, f"group-{at}", at) for at in range(GROUPS)])
        outputs = [
            _named(self.output, f"{texts(at).name}-{which}", at, notes[at].id) for at in range(size) for which in "ab"
        ]
        await fill(backend, self.output, outputs)
        return backend

    async def work(self, rt: headway.Runtime, request: headway.Request[Note]) -> None:
        """Read, apply and write the status of a note."""
        found = rt.resource(request)
        assert found is not None
        at = int(found.data.text[-6:])
        setting = rt.cache.get(self.setting, texts(at).group)
        assert setting is not None
        assert setting.data.text
        outputs = rt.cache.owned(self.output, found)
        assert len(outputs) == 2
        for which in "ab":
            name = f"{found.name}-{which}"
            output = rt.cache.get(self.output, name)
            assert output is not None
            assert output.metadata["group"]
            wanted = self.output.new(name, note(at), owner=found, metadata={"group": texts(at).group})
            assert (await rt.client.apply(wanted)).version == output.version
        await rt.client.write_status(found, "notes", [READY])


def _named(type: ResourceType[Note], name: str, at: int, owner: pb.Id | None = None) -> pb.Resource:
    made = type.new(name, note(at), metadata={"group": texts(at).group}).message()
    assert made.id is not None
    made.id.uid, made.generation, made.owner = f"01HX{name[-16:]:0>22}".upper(), texts(at).generation, owner
    return made


def _measure(size: int, rounds: int) -> Row:
    ours, against = interleaved(
        collected(lambda: _seconds(size, working=True) - _seconds(size, working=False)),
        collected(lambda: trio.run(_bare, size)),
        rounds,
    )
    return Row("work", ours / size * 1e6, against / size * 1e6, "us", BOUND)


def _seconds(size: int, *, working: bool) -> float:
    """Return the seconds of processor time until every key is reconciled and nothing is pending."""
    return trio.run(_reconciled, size, working)


async def _reconciled(size: int, working: bool) -> float:
    declared = Declared()

    async def idle(rt: headway.Runtime, request: headway.Request[Note]) -> None:
        assert rt.resource(request) is not None

    app = declared.controlled(declared.work if working else idle)
    backend = await declared.filled(size)
    begin = time.process_time()
    async with headway.open_engine(backend, app, report=ignore) as engine:
        await engine.wait_idle()
        return time.process_time() - begin


async def _bare(size: int) -> float:
    """Return the seconds of processor time of the same work without an engine."""
    declared = Declared()
    backend = await declared.filled(size)
    notes, settings, outputs = [
        {resource_key(each): each for each in (await backend.list(type.kind, Within()))[0]}
        for type in (declared.note, declared.setting, declared.output)
    ]
    begin = time.process_time()
    for key, found in notes.items():
        await _worked(backend, declared.note.kind, key, found, settings, outputs)
    return time.process_time() - begin


async def _worked(
    backend: MemoryBackend,
    kind: Kind,
    key: Key,
    found: pb.Resource,
    settings: dict[Key, pb.Resource],
    outputs: dict[Key, pb.Resource],
) -> None:
    partition, namespace, name = key
    data, _ = _private(found)
    at = int(data.text[-6:])
    _private(settings[partition, namespace, texts(at).group])
    there = [outputs[partition, namespace, f"{name}-{which}"] for which in "ab"]
    for stored in [*there, *there]:
        _private(stored)
    for stored in there:
        assert stored.data is not None
        assert stored.data.value == encode(note(at))
    status = pb.Status(observed_generation=found.generation, conditions=[READY])
    written = pb.Resource(
        id=found.id, generation=found.generation, metadata=found.metadata, status={"notes": status}, data=found.data
    )
    await backend.commit([Put(kind, key, written, found.version)])


def _private(found: pb.Resource) -> tuple[Note, dict[str, str]]:
    assert found.data is not None
    return decode(Note, found.data.value), dict(found.metadata)


SCENARIO = Scenario("work", BOUND, _measure, size=10_000, rounds=5, quick=2_000)
