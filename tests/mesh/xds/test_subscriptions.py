"""Proxies that change their minds: about names, about everything, and in the middle of an exchange."""

from __future__ import annotations

import pytest

from headway.errors import InvalidArgument
from mesh.xds import DeltaStream, Kind, Rejection, Response, Snapshot, WholeStream
from mesh.xds import messages as m
from mesh.xds.protocol import MOST_TEXT
from tests.mesh.xds.builders import cluster, endpoints, listener, route
from tests.mesh.xds.test_protocol import ALL, accept, ask, connected, exchange, names

C, E, L, R = Kind.CLUSTER, Kind.ENDPOINTS, Kind.LISTENER, Kind.ROUTE


def whole(*names: str, kind: Kind = C, answers: Response | None = None, words: str = "") -> m.DiscoveryRequest:
    return m.DiscoveryRequest(
        type_url=kind.value,
        resource_names=list(names),
        response_nonce=answers.nonce if answers is not None else "",
        error_detail=m.Status(code=13, message=words) if words else None,
    )


def sent_by(stream: DeltaStream | WholeStream) -> Response:
    sent = stream.take()
    assert sent is not None
    return sent


def test_state_of_the_world_sends_again_what_was_dropped_with_the_wildcard() -> None:
    """The client forgets a resource that it no longer asks for."""
    stream = WholeStream()
    stream.publish(Snapshot([cluster("a"), cluster("b")]))
    stream.request(whole("*"))
    sent = sent_by(stream)
    stream.request(whole("a", answers=sent))
    assert stream.take() is None
    stream.request(whole("*", answers=sent))
    assert names(stream.take()) == ["a", "b"]


def test_state_of_the_world_without_names_and_then_the_wildcard_gets_all() -> None:
    stream = WholeStream()
    stream.publish(Snapshot([cluster("a")]))
    stream.request(whole("missing"))
    sent = sent_by(stream)
    stream.request(whole(answers=sent))
    assert stream.take() is None, "no names are no wildcard after a name"
    stream.request(whole("*", answers=sent))
    assert names(stream.take()) == ["a"]


def test_state_of_the_world_without_names_ends_an_explicit_wildcard() -> None:
    """Only a client that has never named anything means all by no names."""
    stream = WholeStream()
    stream.publish(Snapshot([cluster("a")]))
    stream.request(whole("*"))
    sent = sent_by(stream)
    stream.request(whole(answers=sent))
    stream.publish(Snapshot([cluster("a", 2)]))
    assert stream.take() is None


def test_state_of_the_world_finds_the_bad_resource_and_sends_it_no_more() -> None:
    """Responses of this type hold all resources: the bad one has the version that was accepted last."""
    old, bad = cluster("b"), cluster("b", 2)
    stream = WholeStream()
    stream.publish(Snapshot([cluster("a"), old]))
    stream.request(whole())
    stream.request(whole(answers=sent_by(stream)))
    stream.publish(Snapshot([cluster("a", 2), bad]))
    rejections: list[Rejection] = []
    while (sent := stream.take()) is not None:
        found = stream.request(whole(answers=sent, words="b is bad" if bad in sent.resources else ""))
        rejections += [found] if found is not None else []
    assert stream.rejected == {C: {"b": bad.version}}
    assert rejections[-1].versions == {"b": bad.version}
    stream.publish(Snapshot([cluster("a", 3), bad]))
    assert sent_by(stream).resources == (cluster("a", 3), old)


def test_cluster_that_returns_before_its_answer_still_warms() -> None:
    """Its endpoints are not there yet, so the route waits."""
    stream = DeltaStream()
    for kind in (C, L):
        stream.request(ask(kind))
    stream.request(ask(R, "r"))
    stream.publish(Snapshot([cluster("a"), endpoints("a", 1)]))
    sent = sent_by(stream)
    stream.publish(Snapshot())
    stream.publish(Snapshot(ALL))
    stream.request(accept(sent))
    assert stream.take() is None
    stream.request(ask(E, "a"))
    assert [kind for kind, *_ in exchange(stream)] == [E, L, R]


def test_cluster_that_is_gone_before_its_endpoints_holds_nothing_up() -> None:
    stream = DeltaStream()
    for kind in (C, L):
        stream.request(ask(kind))
    stream.publish(Snapshot([cluster("a"), endpoints("a", 1)]))
    stream.request(accept(sent_by(stream)))
    stream.publish(Snapshot([listener("in", 1, "r")]))
    assert exchange(stream) == [(L, ["in"], []), (C, [], ["a"])]
    assert stream.synced


def test_proxy_whose_cluster_warmed_during_an_outage_gets_its_endpoints_again() -> None:
    """Envoy does not ask for clusters while one warms. It says that it has the endpoints, and waits for them."""
    stream = DeltaStream()
    stream.publish(Snapshot(ALL))
    stream.request(ask(E, "a", has={"a": ALL[1].version}))
    stream.request(ask(L, has={"in": ALL[2].version}))
    stream.request(ask(R, "r", has={"r": ALL[3].version}))
    assert exchange(stream) == [(E, ["a"], [])]
    stream.request(ask(C, has={"a": ALL[0].version}))
    assert exchange(stream) == []


def test_routes_wait_for_a_proxy_that_asks_for_clusters_after_its_endpoints() -> None:
    """A new route may name a cluster that the proxy is about to ask for."""
    stream = DeltaStream()
    stream.publish(Snapshot([*ALL[:3], cluster("b"), endpoints("b", 2), route("r", {"b": 1})]))
    stream.request(ask(E, "a", has={"a": ALL[1].version}))
    stream.request(ask(R, "r", has={"r": ALL[3].version}))
    sent = sent_by(stream)
    assert sent.kind is E
    assert stream.take() is None
    stream.request(ask(C, has={"a": ALL[0].version}))
    stream.request(accept(sent))
    assert exchange(stream) == [(C, ["b"], [])]
    stream.request(ask(E, "b"))
    assert exchange(stream) == [(E, ["b"], []), (R, ["r"], [])]


def test_rejection_ends_with_the_wildcard_that_asked() -> None:
    """Clusters are removed only while no listener is rejected, and the proxy has this one no longer."""
    stream = connected(*ALL, cluster("b"), endpoints("b", 1))
    stream.publish(Snapshot([*ALL[:2], cluster("b"), endpoints("b", 1), listener("in", 2, "r"), ALL[3]]))
    sent = sent_by(stream)
    assert sent.kind is L
    stream.request(accept(sent, "no such address"))
    assert stream.rejected
    stream.request(ask(L, drop=("*",)))
    assert stream.rejected == {}


def test_rejection_of_a_resource_that_was_dropped_meanwhile_counts_for_nothing() -> None:
    """No later version of it would ever end the rejection."""
    stream = connected(*ALL)
    stream.publish(Snapshot([*ALL[:3], route("r", {"a": 2})]))
    sent = sent_by(stream)
    stream.request(ask(R, drop=("r",)))
    stream.request(accept(sent, "bad route"))
    assert stream.rejected == {}


def test_names_of_too_much_text_are_refused() -> None:
    """A stream may be open for months, and holds them, also those of several requests."""
    first, second = "a" * (MOST_TEXT // 2), "b" * (MOST_TEXT // 2 + 1)
    stream = DeltaStream()
    stream.request(ask(E, first))
    with pytest.raises(InvalidArgument, match=f"at most {MOST_TEXT}"):
        stream.request(ask(E, second))
    with pytest.raises(InvalidArgument, match=f"at most {MOST_TEXT}"):
        WholeStream().request(whole(first, second, kind=E))


def test_versions_of_too_much_text_are_refused() -> None:
    stream = DeltaStream()
    with pytest.raises(InvalidArgument, match=f"at most {MOST_TEXT}"):
        stream.request(ask(C, has={"a": "1" * (MOST_TEXT + 1)}))
