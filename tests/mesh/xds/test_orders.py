"""The order of responses, and what a proxy need not wait for."""

from __future__ import annotations

from mesh.xds import DeltaStream, Kind, Resource, Snapshot, WholeStream, packed
from mesh.xds import messages as m
from mesh.xds.protocol import MOST_BYTES
from tests.mesh.xds.builders import api_listener, cluster, endpoints, listener, route
from tests.mesh.xds.test_protocol import ALL, accept, ask, connected, exchange, names
from tests.mesh.xds.test_subscriptions import sent_by, whole

C, E, L, R, S = Kind.CLUSTER, Kind.ENDPOINTS, Kind.LISTENER, Kind.ROUTE, Kind.SECRET


def plain(kind: Kind, name: str, version: str = "1", *needs: tuple[Kind, str], size: int = 0) -> Resource:
    """Return a resource without content, with these needs."""
    made = Resource()
    made.kind, made.name, made.version, made.needs = kind, name, version, frozenset(needs)
    made.delta = made.full = b"\0" * size
    return made


def test_changed_cluster_neither_sends_nor_awaits_a_secret_that_the_proxy_has() -> None:
    """A proxy keeps secrets apart from the clusters that use them."""
    stream = DeltaStream()
    for request in (ask(C), ask(S, "leaf"), ask(L)):
        stream.request(request)
    need = (S, "leaf")
    stream.publish(Snapshot([plain(S, "leaf"), plain(C, "a", "1", need), plain(L, "in")]))
    assert [kind for kind, *_ in exchange(stream)] == [S, C, L]
    stream.publish(Snapshot([plain(S, "leaf"), plain(C, "a", "2", need), plain(L, "in", "2")]))
    assert [kind for kind, *_ in exchange(stream)] == [C, L]


def test_rejected_endpoints_hold_up_no_route() -> None:
    """The proxy keeps those that it had, also for a changed cluster."""
    stream = connected(*ALL)
    stream.publish(Snapshot([ALL[0], endpoints("a", 2), *ALL[2:]]))
    stream.request(accept(sent_by(stream), "bad endpoints"))
    stream.publish(Snapshot([cluster("a", 2), endpoints("a", 2), ALL[2], route("r", {"a": 2})]))
    assert [kind for kind, *_ in exchange(stream)] == [C, R]


def test_routes_wait_for_each_of_the_endpoints_of_a_rejected_response() -> None:
    stream = connected(*ALL)
    changed = [cluster("a", 2), cluster("b", 2), endpoints("a", 2), endpoints("b", 2)]
    stream.publish(Snapshot([*changed, ALL[2], route("r", {"b": 1})]))
    stream.request(accept(sent_by(stream)))
    both = sent_by(stream)
    assert names(both) == ["a", "b"]
    stream.request(accept(both, "one is bad"))
    assert names(sent_by(stream)) == ["a"]
    assert stream.take() is None


def test_endpoints_are_removed_once_the_removal_of_their_cluster_is_accepted() -> None:
    stream = connected(*ALL, cluster("b"), endpoints("b", 1))
    stream.publish(Snapshot(ALL))
    sent = sent_by(stream)
    assert (sent.kind, sent.removed) == (C, ("b",))
    assert stream.take() is None
    stream.request(accept(sent))
    assert exchange(stream) == [(E, [], ["b"])]


def test_endpoints_stay_while_a_cluster_is_rejected() -> None:
    """The proxy still uses the old cluster, which may have had other endpoints."""
    stream = connected(*ALL, cluster("b"), endpoints("b", 1))
    stream.publish(Snapshot([cluster("a", 2), *ALL[1:]]))
    stream.request(accept(sent_by(stream), "bad cluster"))
    assert exchange(stream) == [(E, ["a"], []), (C, [], ["b"])]
    stream.publish(Snapshot([cluster("a", 3), *ALL[1:]]))
    assert exchange(stream) == [(C, ["a"], []), (E, ["a"], []), (E, [], ["b"])]


def test_rejected_removal_is_not_sent_again() -> None:
    """It would be rejected again."""
    stream = connected(*ALL, cluster("b"))
    stream.publish(Snapshot(ALL))
    stream.request(accept(sent_by(stream), "in use"))
    assert stream.take() is None


def test_name_dropped_beside_the_wildcard_is_sent_again() -> None:
    """The proxy cannot tell whether the wildcard still has it."""
    stream = DeltaStream()
    stream.publish(Snapshot([cluster("a"), cluster("b")]))
    stream.request(ask(C, "*", "a"))
    assert exchange(stream) == [(C, ["a", "b"], [])]
    stream.request(ask(C, drop=("a",)))
    assert exchange(stream) == [(C, ["a"], [])]


def test_only_clusters_and_listeners_have_a_wildcard_without_names() -> None:
    stream = DeltaStream()
    stream.publish(Snapshot(ALL))
    for kind in (E, R):
        stream.request(ask(kind))
    assert stream.take() is None


def test_large_response_is_divided() -> None:
    """A client has a limit for messages, often of 4 MiB."""
    stream = DeltaStream()
    stream.request(ask(C))
    stream.publish(Snapshot([plain(C, each, size=MOST_BYTES // 2 + 1) for each in "abcd"]))
    assert [sent for _, sent, _ in exchange(stream)] == [["a", "b"], ["c", "d"]]


def test_words_of_a_rejection_are_cut() -> None:
    """They are kept in a status."""
    stream = connected(*ALL)
    stream.publish(Snapshot([*ALL[:3], route("r", {"a": 2})]))
    rejection = stream.request(accept(sent_by(stream), "no" * 10_000))
    assert rejection is not None
    assert len(rejection.words) == 4096


def test_state_of_the_world_takes_no_answer_to_an_earlier_response() -> None:
    stream = WholeStream()
    stream.publish(Snapshot([cluster("a")]))
    stream.request(whole())
    first = sent_by(stream)
    stream.request(whole(answers=first))
    stream.publish(Snapshot([cluster("a", 2)]))
    sent_by(stream)
    assert stream.request(whole(answers=first, words="late")) is None
    assert stream.rejected == {}


def test_listener_of_a_client_of_grpc_needs_its_route() -> None:
    assert api_listener("web", "r").needs == listener("in", 1, "r").needs == {(R, "r")}


def test_cluster_needs_its_certificate_and_the_roots_of_its_peers() -> None:
    ads = m.ConfigSource(ads=m.AggregatedConfigSource(), resource_api_version=m.ApiVersion.V3)
    tls = m.UpstreamTlsContext(
        common_tls_context=m.CommonTlsContext(
            tls_certificate_sds_secret_configs=[m.SdsSecretConfig(name="leaf", sds_config=ads)],
            combined_validation_context=m.CommonTlsContextCombinedCertificateValidationContext(
                validation_context_sds_secret_config=m.SdsSecretConfig(name="roots", sds_config=ads)
            ),
        )
    )
    made = m.Cluster(name="a", transport_socket=m.TransportSocket(name="tls", typed_config=packed(tls)))
    assert Resource.of(made).needs == {(S, "leaf"), (S, "roots")}
