"""A refused resource that is sent again: it may have grown beyond what a message can hold."""

from __future__ import annotations

from headway.peering import PeerLimits
from tests.peering.stream_kit import Importing, Origin, Stream


def test_refused_resource_that_has_grown_too_large_is_not_sent_again() -> None:
    origin, store = Origin(), Importing()
    origin.commit(ada="bad", ben="1")
    stream = Stream(
        origin,
        store,
        limits=PeerLimits(resource_size=1000),
        check=lambda each: "bad" if each.id is not None and each.id.name == "ada" else None,
    )
    stream.run()
    assert store.copies.keys() == {"ben"}
    origin.commit(ada="x" * 2000)
    sent = len(stream.sent)
    for _ in range(10):
        stream.later()
    batches = [each.batch for each in stream.sent[sent:] if each.batch is not None]
    assert [event.withheld is not None for batch in batches for event in batch.events] == [True]
    assert "not sent" in " ".join(stream.sender.refusals())
    origin.commit(ada="small")
    stream.later()
    assert [each.batch is not None for each in stream.sent[-1:]] == [True]
