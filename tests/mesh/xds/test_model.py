"""A model of Envoy never routes to a cluster that it cannot use, whatever is published, delayed, rejected or lost."""

from __future__ import annotations

from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headway.protobuf import decode
from mesh.xds import DeltaStream, Kind, Resource, Response, Snapshot
from mesh.xds import messages as m
from tests.mesh.xds.builders import cluster, endpoints, listener, route

C, E, L, R = Kind.CLUSTER, Kind.ENDPOINTS, Kind.LISTENER, Kind.ROUTE
NAMES = ("a", "b", "c", "d")


class Envoy:
    """What a proxy has warmed, and what it would answer.

    A new or changed cluster is used only once its endpoints have come. The proxy asks for endpoints once,
    by name, before or after it accepts the cluster. Clusters of the name "bad" are rejected.
    """

    def __init__(self) -> None:
        self.applies_good = self.asks_first = True
        self.has: dict[Kind, dict[str, str]] = {each: {} for each in (C, E, L, R)}
        self.usable: set[str] = set()
        self.warming: set[str] = set()
        self.routed: set[str] = set()
        self.asked: dict[Kind, set[str]] = {E: set(), R: set()}
        self.out: deque[m.DeltaDiscoveryRequest] = deque()

    def connect(self) -> None:
        """Say what it has to a new stream."""
        self.out.clear()
        for kind in (C, E, L, R):
            names = sorted(self.asked.get(kind, ()))
            if names or kind in (C, L):
                self.out.append(
                    m.DeltaDiscoveryRequest(
                        type_url=kind.value,
                        resource_names_subscribe=names,
                        initial_resource_versions=dict(self.has[kind]),
                    )
                )

    def receive(self, sent: Response) -> None:
        """Apply a response and answer it."""
        before = len(self.out)
        bad = [each for each in sent.resources if each.name == "bad"]
        if not bad or self.applies_good:
            for each in sent.resources:
                if each not in bad:
                    self.apply(each)
            for name in sent.removed:
                self.remove(sent.kind, name)
        error = m.Status(code=13, message="bad is bad") if bad else None
        answer = m.DeltaDiscoveryRequest(type_url=sent.kind.value, response_nonce=sent.nonce, error_detail=error)
        self.out.insert(len(self.out) if self.asks_first else before, answer)

    def apply(self, got: Resource) -> None:
        changed = self.has[got.kind].get(got.name) != got.version
        self.has[got.kind][got.name] = got.version
        if got.kind is C and changed:
            self.warming.add(got.name)
            self.ask(E, got.name)
        elif got.kind is E and got.name in self.warming:
            self.warming.discard(got.name)
            self.usable.add(got.name)
        elif got.kind is L:
            self.ask(R, "r")
        elif got.kind is R:
            any = decode(m.DeltaDiscoveryResponse, got.delta).resources[0].resource
            assert any is not None
            action = decode(m.RouteConfiguration, any.value).virtual_hosts[0].routes[0].route
            assert action is not None
            assert action.weighted_clusters is not None
            self.routed = {each.name for each in action.weighted_clusters.clusters}

    def remove(self, kind: Kind, name: str) -> None:
        self.has[kind].pop(name, None)
        if kind is C:
            self.usable.discard(name)
            self.warming.discard(name)
            self.has[E].pop(name, None)
            self.asked[E].discard(name)
            self.out.append(m.DeltaDiscoveryRequest(type_url=E.value, resource_names_unsubscribe=[name]))

    def ask(self, kind: Kind, name: str) -> None:
        if name not in self.asked[kind]:
            self.asked[kind].add(name)
            self.out.append(m.DeltaDiscoveryRequest(type_url=kind.value, resource_names_subscribe=[name]))


class Exchange(RuleBasedStateMachine):
    """One proxy, its stream, and messages on their way in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.envoy = Envoy()
        self.snapshot: Snapshot | None = None
        self.reconnect()

    @rule(applies_good=st.booleans(), asks_first=st.booleans())
    def choose(self, applies_good: bool, asks_first: bool) -> None:
        """Apply the good part of a rejected response, or nothing of it. Ask before an answer, or after it."""
        self.envoy.applies_good, self.envoy.asks_first = applies_good, asks_first

    @rule(
        versions=st.dictionaries(st.sampled_from(NAMES), st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1),
        bad=st.integers(0, 2),
        listening=st.integers(1, 2),
        data=st.data(),
    )
    def publish(self, versions: dict[str, tuple[int, int]], bad: int, listening: int, data: st.DataObject) -> None:
        routed = data.draw(st.sets(st.sampled_from(sorted(versions)), min_size=1))
        parts = [listener("in", listening, "r"), route("r", dict.fromkeys(sorted(routed), 1))]
        for name, (version, port) in versions.items():
            parts += [cluster(name, version), endpoints(name, port)]
        if bad:
            parts += [cluster("bad", bad)]
        self.snapshot = Snapshot(parts)
        self.stream.publish(self.snapshot)

    @rule()
    def reconnect(self) -> None:
        self.stream = DeltaStream()
        self.sent: deque[Response] = deque()
        self.envoy.connect()
        if self.snapshot is not None:
            self.stream.publish(self.snapshot)

    @rule()
    def send(self) -> None:
        if (response := self.stream.take()) is not None:
            self.sent.append(response)

    @precondition(lambda self: self.sent)
    @rule()
    def receive(self) -> None:
        self.envoy.receive(self.sent.popleft())

    @precondition(lambda self: self.envoy.out)
    @rule()
    def request(self) -> None:
        self.stream.request(self.envoy.out.popleft())

    @invariant()
    def no_request_fails(self) -> None:
        """Every cluster of the route can be used."""
        assert self.envoy.routed <= self.envoy.usable

    @invariant()
    def one_response_of_a_type_is_in_flight(self) -> None:
        kinds = [each.kind for each in self.sent]
        assert len(kinds) == len(set(kinds))

    def teardown(self) -> None:
        """When all messages have arrived, the proxy has the latest snapshot, and nothing more is sent."""
        if self.snapshot is None:
            return
        for _ in range(500):
            self.send()
            if self.sent:
                self.receive()
            elif self.envoy.out:
                self.request()
            elif (last := self.stream.take()) is None:
                break
            else:
                self.sent.append(last)
            self.no_request_fails()
        assert not self.sent
        assert not self.envoy.out
        assert self.stream.synced
        for kind in (C, E, L, R):
            expected = {name: each.version for name, each in self.snapshot[kind].items() if name != "bad"}
            assert {name: version for name, version in self.envoy.has[kind].items() if name != "bad"} == expected
        assert not self.envoy.warming - {"bad"}
        self.stream.publish(Snapshot(self.snapshot))
        assert self.stream.take() is None


TestExchange = Exchange.TestCase
# Short examples: five for each one that other machines have.
TestExchange.settings = settings(max_examples=5 * settings().max_examples, stateful_step_count=60)
