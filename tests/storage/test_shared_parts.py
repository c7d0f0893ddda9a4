"""Resources that come from a file, from etcd or over a network share the messages of their types and tenancies."""

from collections import Counter
from pathlib import Path
from typing import Any

from headway._gen.mvccpb import Event, KeyValue
from headway.protobuf import encode
from headway.resource import SnapshotChunk, pb
from headway.rpc import MessageParser
from headway.service import ResourceEncodings, WatchDecoder, WatchEncoder
from headway.storage import open_sqlite
from headway.storage._timeline import Timeline
from headway.storage.etcd.layout import Head, Layout, Mirror, head_value, revision_of
from headway.subscribing import SubscribeDecoder, SubscribeEncoder
from headway.testing.conformance import EVERYTHING, KIND, put, thing

SENT = SnapshotChunk([thing("one"), thing("two")])
for each in SENT.resources:
    each.version = "1"


def check_sharing(one: pb.Resource | None, two: pb.Resource | None) -> None:
    assert one is not None
    assert two is not None
    assert one.id is not None
    assert two.id is not None
    assert one.id.name != two.id.name
    assert one.id.type is two.id.type == pb.Type(group="conformance", group_version="v1", kind="Thing")
    assert one.id.tenancy is two.id.tenancy


def received(framed: Any, decoder: Any) -> list[pb.Resource]:
    parser = MessageParser(1 << 20)
    (chunk,) = decoder(parser.feed(b"".join(framed)))
    assert isinstance(chunk, SnapshotChunk)
    return [*chunk.resources]


def test_resources_of_a_watch_share() -> None:
    check_sharing(*received(WatchEncoder()(SENT), WatchDecoder()))


def test_resources_of_a_subscription_share() -> None:
    check_sharing(*received(SubscribeEncoder(ResourceEncodings())(SENT), SubscribeDecoder()))


async def test_resources_of_a_file_share(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "store.db") as store:
        for each in SENT.resources:
            await put(store, each)
        resources, _ = await store.list(KIND, EVERYTHING)
        check_sharing(*resources)


def test_resources_of_etcd_share() -> None:
    layout = Layout("/p")
    timeline, last = Timeline(((revision_of(3), "a"),)), Head(revision_of(10), 4, (1,), b"nonce-10")
    mirror = Mirror(layout, "store", timeline, last, Counter(), max_changes=100, max_age=60)
    keys = [("default", "default", name) for name in ("one", "two")]
    for at, (key, each) in enumerate(zip(keys, SENT.resources, strict=True), 11):
        stored = KeyValue(key=layout.resource(KIND, key), value=encode(each), mod_revision=at, version=1)
        head = KeyValue(key=layout.head, value=head_value((1,), b"nonce-xx"), mod_revision=at, version=at - 6)
        mirror.receive([Event(kv=stored), Event(kv=head)], 0)
    check_sharing(*(mirror.tables.get(KIND, key) for key in keys))
