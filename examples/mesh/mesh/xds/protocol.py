"""The state of one proxy's stream of xDS: what the proxy has, what it asks for, and what it is sent next.

No I/O, no clock, no Trio. Feed requests with `request`, snapshots with `publish`, and call `take` whenever the
transport can send. Only the latest snapshot is kept, so a proxy that never reads costs one snapshot and one response.

Rules:
- A type has at most one response in flight. The next one is made after the proxy has accepted or rejected it.
- Make before break: secrets, clusters and their endpoints come first. Listeners and routes follow once each new or
  changed cluster has what it needs. Clusters are removed after the listeners and routes that may use them, and
  endpoints after the clusters.
- A changed cluster gets its endpoints again, and a changed listener its routes: the proxy does not ask for them.
- A rejected version is not sent again, except for listeners and routes once the proxy has a new cluster, which they may
  have lacked. A response with several new versions is followed by one for each of them, to find the bad one. A rejected
  listener or route may still use an old cluster, so no cluster is removed meanwhile.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headway.errors import InvalidArgument
from headway.protobuf import encode
from mesh.xds.messages import DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse
from mesh.xds.resources import Kind, Need, Resource, Snapshot

MOST_NAMES = 20_000
"""The maximum number of names that a proxy may ask for, of each type."""

MOST_TEXT = 2 << 20
"""The maximum number of characters of these names and of their versions, together."""

MOST_BYTES = 1 << 20
"""A delta response ends with the resource that exceeds this size. The rest follows in the next one."""

_LONGEST_WORDS = 4096
_ABSENT = ""
# The proxy may have applied a part of a rejected response. No version is equal to this.
_UNKNOWN = "?"
_KINDS = {each.value: each for each in Kind}
# The types that a proxy asks for as a whole. A state-of-the-world response has all of them.
_WHOLE = (Kind.CLUSTER, Kind.LISTENER)
_FIRST = (Kind.SECRET, Kind.CLUSTER, Kind.ENDPOINTS)
_USERS = (Kind.LISTENER, Kind.ROUTE)


@dataclass(frozen=True)
class Rejection:
    """A response that the proxy has rejected.

    Attributes:
        kind: the type of the resources.
        versions: the versions by name. One of them is bad. If they are several, they are sent again one by one.
        words: why, in the proxy's words.
    """

    kind: Kind
    versions: Mapping[str, str]
    words: str


@dataclass(frozen=True)
class Response:
    """A response to send.

    Attributes:
        kind: the type of the resources.
        nonce: what the proxy answers with.
        resources: the resources.
        removed: the names of removed resources and of those that do not exist.
        pieces: the encoded message, in pieces. Proxies share those of equal resources.
    """

    kind: Kind
    nonce: str
    resources: tuple[Resource, ...]
    removed: tuple[str, ...]
    pieces: tuple[bytes, ...]


@dataclass
class _InFlight:
    order: int
    upserts: dict[str, Resource]
    removed: tuple[str, ...]
    whole: dict[str, Resource]


@dataclass(slots=True)
class _Type:
    """The state of one type.

    Attributes:
        wildcard: True if the proxy asks for all resources.
        by_name: True if the proxy has named anything (state of the world only).
        names: the names that it asks for.
        known: the version of each resource that the proxy has, or an empty text if it knows that there is none.
        again: the names to send even if the proxy has them.
        rejected: the rejected versions by name.
        singly: the names of a rejected response, which are sent one by one.
        whole: the resources that the proxy has, for types whose responses have all (state of the world only).
        dirty: False if nothing is due.
    """

    wildcard: bool = False
    by_name: bool = False
    names: set[str] = field(default_factory=set)
    known: dict[str, str] = field(default_factory=dict)
    again: set[str] = field(default_factory=set)
    rejected: dict[str, str] = field(default_factory=dict)
    singly: list[str] = field(default_factory=list)
    whole: dict[str, Resource] = field(default_factory=dict)
    in_flight: _InFlight | None = None
    nonce: str = ""
    dirty: bool = True

    def due(self, group: Mapping[str, Resource]) -> tuple[list[Resource], list[str], list[str]]:
        """Return the resources to send, the names that do not exist, and the names that exist no more."""
        upserts: list[Resource] = []
        missing: list[str] = []
        removed: list[str] = []
        names = self.names | group.keys() | self.known.keys() if self.wildcard else self.names
        for name in sorted(names):
            resource, has = group.get(name), self.known.get(name)
            if resource is not None:
                if self.rejected.get(name, resource.version) != resource.version:
                    del self.rejected[name]
                if (has != resource.version or name in self.again) and name not in self.rejected:
                    upserts.append(resource)
                continue
            self.rejected.pop(name, None)
            if name in self.names and (has is None or name in self.again):
                missing.append(name)
            elif has:
                removed.append(name)
        if self.singly:
            waiting = {each.name: each for each in upserts}
            self.singly = [each for each in self.singly if each in waiting]
            if self.singly:
                upserts = [waiting[self.singly[0]]]
        return upserts, missing, removed

    def forget(self, names: Iterable[str]) -> None:
        """Drop what the proxy asks for no longer."""
        for each in names:
            self.names.discard(each)
            self.again.discard(each)
            if not self.wildcard:
                self.known.pop(each, None)
                self.rejected.pop(each, None)
            elif each in self.known:
                # The proxy cannot tell if the wildcard still has it.
                self.again.add(each)

    def check_bound(self, kind: Kind) -> None:
        """Raise InvalidArgument if the proxy asks for too much."""
        if (most := max(len(self.names), len(self.known))) > MOST_NAMES:
            raise InvalidArgument(
                f"resource names of {kind.value}: {most} names: a proxy may have at most {MOST_NAMES}"
            )
        text = sum(map(len, self.names)) + sum(len(name) + len(version) for name, version in self.known.items())
        if text > MOST_TEXT:
            raise InvalidArgument(
                f"resource names of {kind.value}: {text} characters with their versions: a proxy may have at most "
                f"{MOST_TEXT}"
            )


class _Stream:
    """The common part of both variants of the protocol."""

    def __init__(self) -> None:
        self._types: dict[Kind, _Type] = {}
        self._snapshot: Snapshot | None = None
        self._sent = 0
        # For each cluster that was sent: after which response, and what it still needs to be used.
        self._warming: dict[str, tuple[int, set[Need]]] = {}

    @property
    def synced(self) -> bool:
        """True if the proxy has accepted all that it asks for, or rejected it, and nothing is in flight."""
        return self._snapshot is not None and not any(each.dirty or each.in_flight for each in self._types.values())

    @property
    def rejected(self) -> Mapping[Kind, Mapping[str, str]]:
        """The versions that the proxy has rejected and that were not replaced since."""
        return {kind: dict(each.rejected) for kind, each in self._types.items() if each.rejected}

    def accepted(self, kind: Kind, name: str) -> str | None:
        """Return the version of a resource that the proxy has accepted last; None if it does not ask for it."""
        state = self._types.get(kind)
        return None if state is None else state.known.get(name)

    def publish(self, snapshot: Snapshot) -> None:
        """Take the next snapshot in place of the last one, sent or not."""
        last, self._snapshot = self._snapshot, snapshot
        for kind, state in self._types.items():
            state.dirty = state.dirty or last is None or last[kind] != snapshot[kind]

    def take(self) -> Response | None:
        """Return the next response, or None if nothing may be sent before the next request or snapshot."""
        if self._snapshot is None:
            return None
        for kind in _FIRST:
            if (made := self._take(kind)) is not None:
                return made
        if self._clusters_ready():
            # A route is removed with the listener that uses it.
            for kind in _USERS:
                if (made := self._take(kind, removals=True)) is not None:
                    return made
            if all(self._settled(kind) for kind in _USERS):
                return self._take_removals()
        return None

    def _take_removals(self) -> Response | None:
        if (made := self._take(Kind.CLUSTER, removals=True)) is not None:
            return made
        if not self._settled(Kind.CLUSTER):
            return None
        for kind in (Kind.ENDPOINTS, Kind.SECRET):
            if (made := self._take(kind, removals=True)) is not None:
                return made
        return None

    def _clusters_ready(self) -> bool:
        """Return True if each cluster that was sent can be used. A proxy that asks for single ones has no order."""
        clusters, endpoints = self._types.get(Kind.CLUSTER), self._types.get(Kind.ENDPOINTS)
        if clusters is None:
            # It may ask for clusters once it has these endpoints.
            return endpoints is None or endpoints.in_flight is None
        if not clusters.wildcard:
            return True
        # While any response is in flight, even one of removals, a new cluster may be waiting behind it. A cluster that
        # is about to be removed warms in vain, but it may return to the snapshot first.
        group = {} if self._snapshot is None else self._snapshot[Kind.CLUSTER]
        return clusters.in_flight is None and not (self._warming.keys() & group.keys())

    def _settled(self, kind: Kind) -> bool:
        state = self._types.get(kind)
        return state is None or not (state.dirty or state.in_flight or state.rejected)

    def _take(self, kind: Kind, *, removals: bool = False) -> Response | None:
        state, snapshot = self._types.get(kind), self._snapshot
        if state is None or snapshot is None or state.in_flight is not None or not state.dirty:
            return None
        upserts, missing, removed = state.due(snapshot[kind])
        if not upserts and not missing and not removed:
            state.dirty = False
        going = removed if removals else []
        made = self._made(kind, state, upserts, [*missing, *going])
        if made is None and removals:
            state.dirty = False
        return made

    def _made(self, kind: Kind, state: _Type, upserts: list[Resource], removed: list[str]) -> Response | None:
        raise NotImplementedError

    def _send(
        self, kind: Kind, state: _Type, upserts: list[Resource], removed: list[str], whole: dict[str, Resource]
    ) -> str:
        self._sent += 1
        sent = {each.name: each for each in upserts}
        state.nonce = f"{self._sent:08x}"
        state.in_flight = _InFlight(self._sent, sent, tuple(removed), whole)
        state.again -= sent.keys() | set(removed)
        for each in upserts:
            if kind is Kind.CLUSTER and state.wildcard:
                self._warming[each.name] = (self._sent, self._missing(each))
            for of, name in each.needs:
                needed = self._types.get(of)
                if of is not Kind.SECRET and needed is not None and name in needed.names:
                    needed.again.add(name)
                    needed.dirty = True
        return state.nonce

    def _missing(self, cluster: Resource) -> set[Need]:
        """Return what the proxy must get before it uses this cluster.

        A secret that it has already, or that was sent before the cluster, serves at once: the proxy does not ask again.
        """
        return {need for need in cluster.needs if not self._is_known(*need)}

    def _is_known(self, kind: Kind, name: str) -> bool:
        state = self._types.get(kind)
        if state is None:
            return False
        is_coming = state.in_flight is not None and name in state.in_flight.upserts
        return name in state.rejected or (kind is Kind.SECRET and (is_coming or name in state.known))

    def _needed(self, kind: Kind, names: set[str]) -> set[str]:
        """Return those of the names that a cluster waits for, whatever the proxy had before."""
        return {name for _, missing in self._warming.values() for of, name in missing if of is kind and name in names}

    def _answered(self, kind: Kind, state: _Type, words: str | None) -> Rejection | None:
        """Note that the proxy has accepted the response in flight, or rejected it."""
        done, state.in_flight, state.dirty = state.in_flight, None, True
        assert done is not None
        # Without anything else in it, a removal that is rejected would be so again.
        if words is None or not done.upserts:
            self._note_removed(state, done.removed)
            if kind is Kind.CLUSTER:
                for name in done.removed:
                    self._warming.pop(name, None)
            state.whole = done.whole
        asked = {name: each for name, each in done.upserts.items() if state.wildcard or name in state.names}
        if kind is Kind.CLUSTER and words is None:
            self._try_users_again(state, asked)
        state.known.update({name: each.version if words is None else _UNKNOWN for name, each in asked.items()})
        if words is not None:
            self._note_rejected(state, asked)
        self._warm(kind, state, done, rejected=words is not None)
        if words is None:
            return None
        versions = {name: each.version for name, each in done.upserts.items()}
        return Rejection(kind, versions, words[:_LONGEST_WORDS])

    def _try_users_again(self, state: _Type, accepted: Iterable[str]) -> None:
        """Send rejected listeners and routes once more if there are new clusters: they may have lacked these."""
        if all(state.known.get(name) not in (None, _ABSENT, _UNKNOWN) for name in accepted):
            return
        for kind in _USERS:
            user = self._types.get(kind)
            if user is not None and user.rejected:
                user.rejected.clear()
                user.dirty = True

    def _note_removed(self, state: _Type, names: Iterable[str]) -> None:
        for name in names:
            if name in state.names:
                state.known[name] = _ABSENT
            else:
                state.known.pop(name, None)

    def _note_rejected(self, state: _Type, upserts: Mapping[str, Resource]) -> None:
        """Send them one by one, or no more if it was only one."""
        if len(upserts) > 1:
            state.singly += [name for name in upserts if name not in state.singly]
        else:
            state.rejected.update({name: each.version for name, each in upserts.items()})

    def _warm(self, kind: Kind, state: _Type, done: _InFlight, *, rejected: bool) -> None:
        if kind is Kind.CLUSTER and rejected:
            for name in done.upserts:
                self._warming.pop(name, None)
        # A proxy that has rejected endpoints keeps what it had, and waits for nothing.
        taken = [name for name in done.upserts if not rejected or name in state.rejected]
        got = {(kind, name) for name in (*taken, *done.removed)}
        for name, (order, missing) in list(self._warming.items()):
            if order < done.order:
                missing -= got
            if not missing:
                del self._warming[name]


class DeltaStream(_Stream):
    """The stream of a proxy that gets differences (DeltaAggregatedResources)."""

    def request(self, request: DeltaDiscoveryRequest) -> Rejection | None:
        """Take a request. Return what the proxy has rejected with it.

        Raises:
            InvalidArgument: the proxy asks for too many names.
        """
        kind = _KINDS.get(request.type_url)
        if kind is None:
            # The proxy asks for a type that this server never has, and gets no answer.
            return None
        state = self._types.get(kind)
        if state is None:
            state = self._types[kind] = _Type()
            self._begin(kind, state, request)
            rejection = None
        else:
            rejection = self._answer(kind, state, request)
            self._change(state, request)
        state.check_bound(kind)
        return rejection

    def _begin(self, kind: Kind, state: _Type, request: DeltaDiscoveryRequest) -> None:
        asked = set(request.resource_names_subscribe)
        state.wildcard = "*" in asked or (not asked and kind in _WHOLE)
        state.names = asked - {"*"}
        has = request.initial_resource_versions
        state.known = {name: version for name, version in has.items() if state.wildcard or name in asked}
        state.again = self._needed(kind, state.names)
        if kind is Kind.ENDPOINTS and Kind.CLUSTER not in self._types:
            # A proxy that connects anew asks for clusters first. While a changed one warms, it asks for them later, and
            # waits for the endpoints that it has already.
            state.again = set(state.names)

    def _answer(self, kind: Kind, state: _Type, request: DeltaDiscoveryRequest) -> Rejection | None:
        if not request.response_nonce or request.response_nonce != state.nonce or state.in_flight is None:
            return None
        error = request.error_detail
        return self._answered(kind, state, None if error is None else error.message)

    def _change(self, state: _Type, request: DeltaDiscoveryRequest) -> None:
        asked, dropped = set(request.resource_names_subscribe), set(request.resource_names_unsubscribe)
        if not asked and not dropped:
            return
        state.dirty = True
        if "*" in dropped:
            state.wildcard = False
            state.forget(state.known.keys() - state.names)
        state.forget(dropped - {"*"})
        state.wildcard = state.wildcard or "*" in asked
        state.names |= asked - {"*"}
        # A proxy that asks again has lost it.
        state.again |= asked - {"*"}

    def _made(self, kind: Kind, state: _Type, upserts: list[Resource], removed: list[str]) -> Response | None:
        if not upserts and not removed:
            return None
        size, fitting = 0, list[Resource]()
        for each in upserts:
            if size > MOST_BYTES:
                break
            size += len(each.delta)
            fitting.append(each)
        nonce = self._send(kind, state, fitting, removed, {})
        head = DeltaDiscoveryResponse(type_url=kind.value, nonce=nonce, removed_resources=removed)
        pieces = (encode(head), *(each.delta for each in fitting))
        return Response(kind, nonce, tuple(fitting), tuple(removed), pieces)


class WholeStream(_Stream):
    """The stream of a proxy that gets the state of the world (StreamAggregatedResources)."""

    def request(self, request: DiscoveryRequest) -> Rejection | None:
        """Take a request. Return what the proxy has rejected with it.

        Raises:
            InvalidArgument: the proxy asks for too many names.
        """
        kind = _KINDS.get(request.type_url)
        if kind is None:
            return None
        state = self._types.get(kind)
        if state is None:
            state = self._types[kind] = _Type()
        elif request.response_nonce != state.nonce:
            # It answers an earlier response, and the answer to the last one is on its way.
            return None
        rejection = None
        if state.in_flight is not None:
            error = request.error_detail
            rejection = self._answered(kind, state, None if error is None else error.message)
        asked = set(request.resource_names)
        # No names mean all, unless the proxy has ever named anything.
        state.by_name = state.by_name or bool(asked) or kind not in _WHOLE
        state.wildcard = "*" in asked or not state.by_name
        state.names = asked - {"*"}
        if not state.wildcard:
            state.forget(state.known.keys() - state.names)
            state.whole = {name: each for name, each in state.whole.items() if name in state.names}
        state.dirty = True
        state.check_bound(kind)
        return rejection

    def _made(self, kind: Kind, state: _Type, upserts: list[Resource], removed: list[str]) -> Response | None:
        whole = kind in _WHOLE
        if not whole:
            # The protocol has no way to say that these do not exist.
            state.known.update(dict.fromkeys(removed, _ABSENT))
            state.again.difference_update(removed)
            removed = []
        if not upserts and not removed:
            return None
        sent = {each.name: each for each in upserts}
        if whole:
            sent = {name: each for name, each in (state.whole | sent).items() if name not in removed}
        nonce = self._send(kind, state, upserts, removed, sent if whole else {})
        resources = tuple(sent[name] for name in sorted(sent))
        version = hashlib.sha256("".join(each.version for each in resources).encode()).hexdigest()[:24]
        head = DiscoveryResponse(version_info=version, type_url=kind.value, nonce=nonce)
        pieces = (encode(head), *(each.full for each in resources))
        return Response(kind, nonce, resources, tuple(removed), pieces)
