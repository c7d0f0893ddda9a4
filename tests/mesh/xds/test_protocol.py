"""The core of xDS decides what each request and each snapshot leads to (XS-5 to XS-10)."""

from __future__ import annotations

import pytest

from headway.errors import InvalidArgument
from headway.protobuf import decode
from mesh.xds import DeltaStream, Kind, Resource, Response, Snapshot, WholeStream, packed
from mesh.xds import messages as m
from mesh.xds.protocol import MOST_NAMES
from tests.mesh.xds.builders import cluster, endpoints, listener, route, secret

C, E, L, R = Kind.CLUSTER, Kind.ENDPOINTS, Kind.LISTENER, Kind.ROUTE
ALL = [cluster("a"), endpoints("a", 1), listener("in", 1, "r"), route("r", {"a": 1})]


def ask(
    kind: Kind, *names: str, drop: tuple[str, ...] = (), has: dict[str, str] | None = None
) -> m.DeltaDiscoveryRequest:
    return m.DeltaDiscoveryRequest(
        type_url=kind.value,
        resource_names_subscribe=list(names),
        resource_names_unsubscribe=list(drop),
        initial_resource_versions=has or {},
    )


def accept(sent: Response, words: str | None = None) -> m.DeltaDiscoveryRequest:
    error = None if words is None else m.Status(code=13, message=words)
    return m.DeltaDiscoveryRequest(type_url=sent.kind.value, response_nonce=sent.nonce, error_detail=error)


def names(sent: Response | None) -> list[str]:
    assert sent is not None
    return [each.name for each in sent.resources]


def exchange(stream: DeltaStream) -> list[tuple[Kind, list[str], list[str]]]:
    """Accept all that is sent, and return it."""
    got = []
    while (sent := stream.take()) is not None:
        got.append((sent.kind, names(sent), list(sent.removed)))
        stream.request(accept(sent))
    return got


def connected(*resources: Resource) -> DeltaStream:
    """Return the stream of a proxy that has asked for everything and has it."""
    stream = DeltaStream()
    for kind in (C, L):
        stream.request(ask(kind))
    stream.request(ask(E, "a", "b"))
    stream.request(ask(R, "r"))
    stream.publish(Snapshot(resources))
    exchange(stream)
    assert stream.synced
    return stream


def test_nothing_is_sent_without_a_snapshot() -> None:
    """A server that has not read its store yet must not empty a proxy."""
    stream = DeltaStream()
    stream.request(ask(C))
    assert stream.take() is None
    assert not stream.synced


def test_response_holds_names_versions_and_bodies() -> None:
    """The joined pieces are one message of the protocol."""
    stream = DeltaStream()
    stream.request(ask(C))
    stream.publish(Snapshot(ALL))
    sent = stream.take()
    assert sent is not None
    read = decode(m.DeltaDiscoveryResponse, b"".join(sent.pieces))
    assert (read.type_url, read.nonce) == (C.value, sent.nonce)
    (entry,) = read.resources
    assert (entry.name, entry.version) == ("a", ALL[0].version)
    assert entry.resource is not None
    assert decode(m.Cluster, entry.resource.value).name == "a"


def test_listeners_wait_until_endpoints_of_new_clusters_are_accepted() -> None:
    """A route to a cluster without endpoints would fail requests."""
    stream = DeltaStream()
    stream.request(ask(C))
    stream.request(ask(L))
    stream.publish(Snapshot(ALL))
    sent = stream.take()
    assert sent is not None
    assert sent.kind is C
    assert stream.take() is None
    stream.request(accept(sent))
    assert stream.take() is None, "the proxy has not asked for the endpoints yet"
    stream.request(ask(E, "a"))
    sent = stream.take()
    assert sent is not None
    assert sent.kind is E
    assert stream.take() is None
    stream.request(accept(sent))
    assert exchange(stream) == [(L, ["in"], [])]


def test_equal_snapshot_sends_nothing() -> None:
    """Resources are compared by content."""
    stream = connected(*ALL)
    stream.publish(Snapshot([cluster("a"), endpoints("a", 1), listener("in", 1, "r"), route("r", {"a": 1})]))
    assert stream.take() is None
    assert stream.synced


def test_only_changed_resources_are_sent() -> None:
    """The other resources of the type are not."""
    stream = connected(*ALL, cluster("b"), endpoints("b", 2))
    stream.publish(Snapshot([*ALL, cluster("b"), endpoints("b", 3)]))
    assert exchange(stream) == [(E, ["b"], [])]


def test_changed_cluster_gets_its_equal_endpoints_again() -> None:
    """The proxy warms the new cluster and waits for its endpoints without asking."""
    stream = connected(*ALL)
    stream.publish(Snapshot([cluster("a", 2), *ALL[1:]]))
    assert exchange(stream) == [(C, ["a"], []), (E, ["a"], [])]


def test_changed_listener_gets_its_equal_route_again() -> None:
    """The same holds for listeners and routes."""
    stream = connected(*ALL)
    stream.publish(Snapshot([*ALL[:2], listener("in", 2, "r"), ALL[3]]))
    assert exchange(stream) == [(L, ["in"], []), (R, ["r"], [])]


def test_cluster_is_removed_after_the_route_that_used_it() -> None:
    """The old cluster serves until the route has moved, and its endpoints go last."""
    stream = connected(*ALL)
    stream.publish(Snapshot([cluster("b"), endpoints("b", 2), ALL[2], route("r", {"b": 1})]))
    assert exchange(stream) == [(C, ["b"], []), (E, ["b"], []), (R, ["r"], []), (C, [], ["a"]), (E, [], ["a"])]


def test_route_waits_for_a_new_cluster_that_waits_for_the_answer_to_a_removal() -> None:
    """The response in flight is one of clusters, so the new cluster is not sent yet."""
    stream = connected(*ALL, cluster("b"), endpoints("b", 2))
    stream.publish(Snapshot(ALL))
    sent = stream.take()
    assert sent is not None
    assert (sent.kind, sent.removed) == (C, ("b",))
    stream.publish(Snapshot([*ALL[:3], cluster("c"), route("r", {"c": 1})]))
    assert stream.take() is None
    stream.request(accept(sent))
    assert names(stream.take()) == ["c"]


def test_endpoints_sent_before_a_changed_cluster_do_not_warm_it() -> None:
    """The proxy has used them for the old one."""
    stream = connected(*ALL)
    stream.publish(Snapshot([ALL[0], endpoints("a", 2), *ALL[2:]]))
    before = stream.take()
    stream.publish(Snapshot([cluster("a", 2), endpoints("a", 2), ALL[2], route("r", {"a": 2})]))
    changed = stream.take()
    assert before is not None
    assert changed is not None
    assert (before.kind, changed.kind) == (E, C)
    stream.request(accept(changed))
    stream.request(accept(before))
    again = stream.take()
    assert again is not None
    assert again.kind is E
    assert stream.take() is None
    stream.request(accept(again))
    assert exchange(stream) == [(R, ["r"], [])]


@pytest.mark.parametrize("is_accepted", [True, False])
def test_cluster_does_not_wait_for_a_secret_that_was_sent_before_it(is_accepted: bool) -> None:
    """The proxy has asked for it because of another user. It does not ask again, whether it has accepted it yet or not.

    Listeners would never be sent.
    """
    stream = DeltaStream()
    for kind in (C, L):
        stream.request(ask(kind))
    stream.request(ask(Kind.SECRET, "leaf"))
    stream.publish(Snapshot([secret("leaf")]))
    first = stream.take()
    assert names(first) == ["leaf"]
    assert first is not None
    if is_accepted:
        stream.request(accept(first))
    stream.publish(Snapshot([cluster("a", secret="leaf"), endpoints("a", 1), listener("in", 1, "r"), secret("leaf")]))
    second = stream.take()
    assert names(second) == ["a"]
    assert second is not None
    if not is_accepted:
        stream.request(accept(first))
    stream.request(accept(second))
    stream.request(ask(E, "a"))
    assert exchange(stream) == [(E, ["a"], []), (L, ["in"], [])]


def test_cluster_stays_while_the_route_is_rejected() -> None:
    """The proxy still uses the old route."""
    stream = connected(*ALL)
    stream.publish(Snapshot([cluster("b"), endpoints("b", 2), ALL[2], route("r", {"b": 1})]))
    while (sent := stream.take()) is not None:
        stream.request(accept(sent, "bad route" if sent.kind is R else None))
        assert not sent.removed


def test_rejection_has_the_words_and_the_version() -> None:
    """The status of a template shows them."""
    stream = connected(*ALL)
    broken = route("r", {"nowhere": 1})
    stream.publish(Snapshot([*ALL[:3], broken]))
    sent = stream.take()
    assert sent is not None
    rejection = stream.request(accept(sent, "unknown cluster"))
    assert rejection is not None
    assert (rejection.kind, rejection.versions, rejection.words) == (R, {"r": broken.version}, "unknown cluster")
    assert stream.rejected == {R: {"r": broken.version}}
    assert stream.take() is None, "a rejected version is not sent again"
    stream.publish(Snapshot([*ALL[:3], broken, cluster("b")]))
    sent = stream.take()
    while sent is not None and sent.kind is not R:
        stream.request(accept(sent))
        sent = stream.take()
    assert sent is not None, "the route may have lacked the cluster"
    stream.request(accept(sent, "unknown cluster"))
    assert stream.take() is None
    stream.publish(Snapshot([*ALL[:3], route("r", {"a": 2})]))
    assert (R, ["r"], []) in exchange(stream)
    assert stream.rejected == {}


def test_rejected_response_is_sent_again_one_by_one() -> None:
    """So the bad one is found, and the others are known to be accepted."""
    stream = DeltaStream()
    stream.request(ask(C))
    stream.publish(Snapshot([cluster("a"), cluster("b"), cluster("c")]))
    sent = stream.take()
    assert names(sent) == ["a", "b", "c"]
    assert sent is not None
    stream.request(accept(sent, "b is bad"))
    single = []
    while (sent := stream.take()) is not None:
        single += [names(sent)]
        stream.request(accept(sent, "b is bad" if names(sent) == ["b"] else None))
    assert single == [["a"], ["b"], ["c"]]
    assert stream.rejected == {C: {"b": cluster("b").version}}


def test_name_that_does_not_exist_is_answered_at_once_and_sent_when_it_appears() -> None:
    """The proxy would wait for 15 seconds otherwise."""
    stream = DeltaStream()
    stream.request(ask(E, "late"))
    stream.publish(Snapshot())
    assert exchange(stream) == [(E, [], ["late"])]
    assert stream.take() is None
    stream.publish(Snapshot([endpoints("late", 1)]))
    assert exchange(stream) == [(E, ["late"], [])]


def test_name_asked_for_again_is_sent_again() -> None:
    """The proxy has lost it."""
    stream = connected(*ALL)
    stream.request(ask(E, "a"))
    assert exchange(stream) == [(E, ["a"], [])]


def test_name_dropped_is_not_sent() -> None:
    """A change of it concerns the proxy no longer."""
    stream = connected(*ALL)
    stream.request(ask(E, drop=("a",)))
    stream.publish(Snapshot([ALL[0], endpoints("a", 7), *ALL[2:]]))
    assert stream.take() is None


def test_reconnected_proxy_gets_only_differences() -> None:
    """It says what it has. Resources that are gone are removed after all others."""
    stream = DeltaStream()
    old = cluster("old")
    stream.request(ask(C, has={"a": ALL[0].version, "old": old.version}))
    stream.request(ask(E, "a", has={"a": "stale"}))
    stream.request(ask(L, has={"in": ALL[2].version}))
    stream.request(ask(R, "r", has={"r": ALL[3].version}))
    stream.publish(Snapshot(ALL))
    assert exchange(stream) == [(E, ["a"], []), (C, [], ["old"])]


def test_cluster_changed_during_an_outage_gets_its_endpoints_again() -> None:
    """The endpoints that the proxy has do not warm the changed cluster."""
    stream = DeltaStream()
    stream.publish(Snapshot(ALL))
    stream.request(ask(C, has={"a": "stale"}))
    sent = stream.take()
    assert names(sent) == ["a"]
    assert sent is not None
    stream.request(ask(E, "a", has={"a": ALL[1].version}))
    stream.request(accept(sent))
    assert exchange(stream) == [(E, ["a"], [])]


def test_only_the_latest_snapshot_is_sent_to_a_proxy_that_does_not_answer() -> None:
    """Nothing is queued meanwhile."""
    stream = connected(*ALL)
    stream.publish(Snapshot([ALL[0], endpoints("a", 2), *ALL[2:]]))
    sent = stream.take()
    for port in range(3, 100):
        stream.publish(Snapshot([ALL[0], endpoints("a", port), *ALL[2:]]))
        assert stream.take() is None
    assert sent is not None
    stream.request(accept(sent))
    last = stream.take()
    assert last is not None
    assert last.resources == (endpoints("a", 99),)


def test_stale_nonce_changes_subscriptions_and_accepts_nothing() -> None:
    """The answer to the response in flight is still to come."""
    stream = DeltaStream()
    stream.request(ask(E, "a"))
    stream.publish(Snapshot([endpoints("a", 1), endpoints("b", 2)]))
    sent = stream.take()
    assert sent is not None
    stream.request(m.DeltaDiscoveryRequest(type_url=E.value, response_nonce="gone", resource_names_subscribe=["b"]))
    assert stream.take() is None
    stream.request(accept(sent))
    assert exchange(stream) == [(E, ["b"], [])]


def test_proxy_that_asks_for_too_many_names_is_refused() -> None:
    """The error names the type and the limit."""
    stream = DeltaStream()
    with pytest.raises(InvalidArgument, match=f"at most {MOST_NAMES}"):
        stream.request(ask(E, *map(str, range(MOST_NAMES + 1))))


def test_state_of_the_world_has_all_clusters_and_only_changed_endpoints() -> None:
    """An omitted cluster would be deleted, and an omitted list of endpoints stays."""
    stream = WholeStream()
    stream.publish(Snapshot([cluster("a"), cluster("b"), endpoints("a", 1), endpoints("b", 1)]))
    for kind, asked in ((C, ["a", "b"]), (E, ["a", "b"])):
        stream.request(m.DiscoveryRequest(type_url=kind.value, resource_names=asked))
        sent = stream.take()
        assert names(sent) == ["a", "b"]
        answer(stream, sent, asked)
    assert stream.take() is None
    stream.publish(Snapshot([cluster("a"), cluster("b", 2), endpoints("a", 5), endpoints("b", 1)]))
    sent = stream.take()
    assert names(sent) == ["a", "b"]
    answer(stream, sent, ["a", "b"])
    # The changed cluster gets its equal endpoints, too.
    assert names(stream.take()) == ["a", "b"]
    stream.request(m.DiscoveryRequest(type_url=E.value, response_nonce="stale", resource_names=[]))
    assert stream.take() is None, "a request with a stale nonce is ignored"


def test_state_of_the_world_keeps_a_cluster_until_the_route_has_moved() -> None:
    """The response with the new cluster still has the old one."""
    stream = WholeStream()
    asked: dict[Kind, list[str]] = {C: [], E: ["a", "b"], L: [], R: ["r"]}
    stream.publish(Snapshot(ALL))
    for kind, wanted in asked.items():
        stream.request(m.DiscoveryRequest(type_url=kind.value, resource_names=wanted))
    got: list[tuple[Kind, list[str]]] = []
    for snapshot in (None, Snapshot([cluster("b"), endpoints("b", 2), ALL[2], route("r", {"b": 1})])):
        if snapshot is not None:
            got.clear()
            stream.publish(snapshot)
        while (sent := stream.take()) is not None:
            got.append((sent.kind, names(sent)))
            answer(stream, sent, asked[sent.kind])
    assert got == [(C, ["a", "b"]), (E, ["b"]), (R, ["r"]), (C, ["b"])]


def answer(stream: WholeStream, sent: Response | None, asked: list[str]) -> None:
    assert sent is not None
    stream.request(m.DiscoveryRequest(type_url=sent.kind.value, response_nonce=sent.nonce, resource_names=asked))


def test_equal_resources_are_encoded_once() -> None:
    """A thousand proxies with the same cluster share its bytes."""
    assert cluster("shared") is cluster("shared")
    assert cluster("shared") is not cluster("shared", 2)


def test_maps_are_encoded_in_order() -> None:
    """The version must not depend on the order in which a policy was made."""
    policy = m.Policy(permissions=[m.Permission(any=True)], principals=[m.Principal(any=True)])

    def made(*order: str) -> Resource:
        rbac = m.NetworkRbac(stat_prefix="in", rules=m.RbacRules(policies=dict.fromkeys(order, policy)))
        chain = m.FilterChain(filters=[m.Filter(name="rbac", typed_config=packed(rbac))])
        return Resource.of(m.Listener(name="in", filter_chains=[chain]))

    assert made("a", "b") is made("b", "a")


def test_two_resources_with_one_name_are_refused() -> None:
    """A proxy rejects a response that names a resource twice."""
    with pytest.raises(ValueError, match="CLUSTER have the name 'a'"):
        Snapshot([cluster("a"), cluster("a", 2)])
