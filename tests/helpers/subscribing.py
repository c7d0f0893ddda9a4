"""Raw subscriptions over a store: in the process and over the network, and what they deliver in short."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from headway._gen.headway.subscribe import v1 as subscribe_pb
from headway.resource import Change, Registry, ResourceType, SnapshotChunk, pb
from headway.rpc import Channel, InProcessChannel, Services, open_channel, open_server
from headway.service import ResourceEncodings, ResourceService
from headway.storage import Backend, Operation, Put, Remove
from headway.subscribing import (
    SUBSCRIBE,
    OpenSubscriptions,
    SubscribeDecoder,
    SubscribeEncoder,
    SubscribePermissions,
    SubscribeService,
)
from headway.subscription import (
    Commits,
    NewSnapshot,
    Reached,
    SnapshotComplete,
    SnapshotPart,
    SubscriptionEvent,
    SubscriptionItem,
    SubscriptionPosition,
    Topic,
    TopicPosition,
)
from tests.helpers.declared import NOTE, a_note, a_type, id_of, registry, text_of

EVERYTHING = subscribe_pb.Everything()


class Subscriber:
    """A caller of the subscribe service over a store. ``unexpected`` holds the exceptions of handlers."""

    def __init__(self, backend: Backend, channel: Channel, unexpected: list[BaseException]) -> None:
        self.backend = backend
        self.channel = channel
        self.unexpected = unexpected

    def open(
        self, *subjects: subscribe_pb.Subject, after: SubscriptionPosition | None = None, interval: int = 1
    ) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        request = subscribe_pb.SubscribeRequest(
            subjects=list(subjects),
            resume_after=None if after is None else after.message(),
            progress_interval_ms=interval,
        )
        return self.channel.stream(SUBSCRIBE, request)


def a_service(
    backend: Backend,
    topics: Mapping[str, Topic[Any]] | None = None,
    permissions: SubscribePermissions | None = None,
    *,
    types: Registry | None = None,
    streams: OpenSubscriptions | None = None,
) -> SubscribeService:
    return SubscribeService(backend, types or registry(), topics or {}, permissions, streams=streams)


@asynccontextmanager
async def subscriber(
    backend: Backend, service: SubscribeService, *, network: bool = False
) -> AsyncIterator[Subscriber]:
    """Open a caller of the service. No handler may have raised anything but a status by the end."""
    unexpected: list[BaseException] = []

    def report(_: str, error: BaseException) -> None:
        unexpected.append(error)

    if network:
        services = Services(
            service, ResourceService(backend, registry()), encoders={SUBSCRIBE: SubscribeEncoder(ResourceEncodings())}
        )
        async with (
            open_server(services, ["127.0.0.1:0"], report=report) as server,
            open_channel(server.addresses[0], decoders={SUBSCRIBE: SubscribeDecoder}, report=report) as channel,
        ):
            yield Subscriber(backend, channel, unexpected)
    else:
        yield Subscriber(backend, InProcessChannel(service, report=report), unexpected)


def everything(type: ResourceType[Any] = NOTE) -> subscribe_pb.Subject:
    return subscribe_pb.Subject(type=a_type(type), everything=EVERYTHING)


def named(name: str, type: ResourceType[Any] = NOTE) -> subscribe_pb.Subject:
    return subscribe_pb.Subject(type=a_type(type), named=subscribe_pb.Named(name=name))


def within(
    partition: str = "*", namespace: str = "*", prefix: str = "", type: ResourceType[Any] = NOTE
) -> subscribe_pb.Subject:
    tenancy = pb.Tenancy(partition=partition, namespace=namespace)
    return subscribe_pb.Subject(type=a_type(type), within=subscribe_pb.Within(tenancy=tenancy, name_prefix=prefix))


def of_topic(topic: str, subject: str = "") -> subscribe_pb.Subject:
    if subject:
        return subscribe_pb.Subject(topic=topic, named=subscribe_pb.Named(name=subject))
    return subscribe_pb.Subject(topic=topic, everything=EVERYTHING)


def put(name: str, text: str = "", type: ResourceType[Any] = NOTE, *, expected: str = "") -> Put:
    """Return an operation that stores a resource in the default tenancy, as the service would."""
    resource = a_note(name, text, type)
    assert resource.id is not None
    partition, namespace = type.default_units
    resource.id.tenancy = pb.Tenancy(partition=partition, namespace=namespace)
    resource.id.uid = f"uid-{name}"
    resource.generation = "g"
    return Put(type.kind, (partition, namespace, name), resource, expected)


def remove(name: str, type: ResourceType[Any] = NOTE, *, expected: str) -> Remove:
    return Remove(type.kind, (*type.default_units, name), f"uid-{name}", expected)


async def commit(backend: Backend, *operations: Operation) -> int:
    """Commit, and return the revision."""
    return (await backend.commit(operations)).revision


def short(event: SubscriptionEvent) -> str:
    """Return an event in short, such as ``Note one=text``, with a minus if it was deleted."""
    if isinstance(event, Change):
        id = id_of(event.resource)
        assert id.type is not None
        return f"{'-' if event.deleted else ''}{id.type.kind} {id.name}={text_of(event.resource)}"
    return f"{event.topic}/{event.subject}"


def shown(item: SubscriptionItem) -> object:
    """Return an item in short: a list of commits, or of the events of a snapshot after "part"."""
    if isinstance(item, Commits):
        return [sorted(map(short, each.events)) for each in item.commits]
    if isinstance(item, SnapshotPart | SnapshotChunk):
        return ["part", *sorted(map(short, events_of(item)))]
    return {SnapshotComplete: "end", NewSnapshot: "new snapshot", Reached: "reached"}[type(item)]


def events_of(part: SnapshotPart | SnapshotChunk) -> list[SubscriptionEvent]:
    if isinstance(part, SnapshotPart):
        return part.events
    return [Change(int(each.version), each, False, False) for each in part.resources]


async def a_snapshot(items: AsyncIterator[Any]) -> tuple[list[str], SubscriptionPosition]:
    """Return what a snapshot contains in the end, and its position."""
    state: dict[str, None] = {}
    while True:
        item = await anext(items)
        if isinstance(item, SnapshotComplete):
            return sorted(state), item.position
        assert isinstance(item, SnapshotPart | SnapshotChunk), item
        for event in events_of(item):
            name = short(event)
            bare = name.lstrip("-").partition("=")[0]
            for each in [each for each in state if each.partition("=")[0] == bare]:
                del state[each]
            if not name.startswith("-"):
                state[name] = None


async def commits(items: AsyncIterator[Any], count: int) -> list[list[str]]:
    """Return the events of the next commits. Skip reports of progress."""
    found: list[list[str]] = []
    while len(found) < count:
        item = await anext(items)
        if isinstance(item, Reached):
            continue
        assert isinstance(item, Commits), item
        found += [sorted(map(short, each.events)) for each in item.commits]
    return found


current: dict[str, bytes] = {}


def rates(subject: str) -> dict[str, bytes]:
    return {each: value for each, value in current.items() if subject in (each, "*")}


RATES: Topic[bytes] = Topic("rates", None, rates, wildcard=True)
PLAIN: Topic[bytes] = Topic("plain", None, rates)


def publish(*subjects: str) -> TopicPosition:
    for subject in subjects:
        current[subject] = b"x"
    return RATES.publish(dict.fromkeys(subjects, b"x"))
