"""A server admits a new connection by rules, and may close another connection to make room for it."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.rpc import Limits, peer_of
from headway.rpc._admission import LOCAL, Admission, Visitor

SMALL = Limits(connections=8, peer_connections=6, handshakes=5, peer_handshakes=3)


class House:
    """An admission and its visitors by name."""

    def __init__(self, limits: Limits = SMALL, descriptors: int | None = None) -> None:
        self.admission = Admission(limits, descriptors)
        self.inside: dict[str, Visitor] = {}
        self.gone: list[str] = []
        self.clock = 0

    def enter(self, name: str, peer: str = "a", *, established: bool = True, scarce: bool = False) -> str:
        """Admit a visitor if the rules allow it. Its handshake ends at once unless ``established`` is false."""

        def end(_: str) -> None:
            self.gone.append(name)
            del self.inside[name]

        self.clock += 1
        visitor = Visitor(peer, self.clock, end)
        why = self.admission.enter(visitor, scarce=scarce)
        if not why:
            self.inside[name] = visitor
            if established:
                self.admission.establish(visitor)
        return why

    def call(self, name: str) -> None:
        self.admission.begin_call(self.inside[name])

    def hang_up(self, name: str) -> None:
        self.admission.end_call(self.inside[name])


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        (("10.0.0.7", 4711), "10.0.0.7"),
        (("::ffff:10.0.0.7", 4711, 0, 0), "10.0.0.7"),
        (("2001:db8:1:2:3:4:5:6", 4711, 0, 0), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 4711, 0, 2), "fe80::/64"),
        ("", LOCAL),
        (b"", LOCAL),
    ],
)
def test_peer_is_an_ipv4_host_or_an_ipv6_network(address: object, peer: str) -> None:
    """All addresses of an IPv6 network count as one peer."""
    assert peer_of(address) == peer


def test_next_handshake_of_a_peer_replaces_its_oldest() -> None:
    """The newest is as likely to be an honest client's as any other, and needs its place only for a moment."""
    house = House()
    for name in "123":
        house.enter(name, established=False)
    house.enter("other", "b", established=False)
    house.enter("4", established=False)
    assert house.gone == ["1"]


def test_too_many_handshakes_close_the_oldest_of_the_busiest_peer() -> None:
    """A peer that has one handshake keeps it."""
    house = House()
    house.enter("b1", "b", established=False)
    for name, peer in (("a1", "a"), ("a2", "a"), ("a3", "a"), ("c1", "c")):
        house.enter(name, peer, established=False)
    house.enter("d1", "d", established=False)
    assert house.gone == ["a1"]


def test_connections_without_calls_are_closed_before_idle_ones() -> None:
    """The longest idle connection is closed first. A connection with an open call is never closed."""
    house = House(dataclasses.replace(SMALL, peer_connections=4))
    for name in "1234":
        house.enter(name)
    house.call("1")
    house.call("2")
    house.call("3")
    house.hang_up("3")
    house.hang_up("2")
    for name in "56":
        house.enter(name)
        house.call(name)
    assert house.gone == ["4", "3"]
    house.enter("7")
    house.call("7")
    assert house.gone == ["4", "3", "2"]
    assert "this peer has 4 connections open" in house.enter("8")
    assert house.enter("other", "b") == ""


def test_last_quarter_of_connections_is_kept_for_other_peers() -> None:
    """Another peer is admitted even if all connections of the first are in use."""
    house = House(dataclasses.replace(SMALL, peer_connections=1000))
    for name in "123456":
        house.enter(name)
        house.call(name)
    assert house.enter("7") != ""
    assert house.enter("other", "b") == ""


def test_full_server_closes_an_idle_connection_or_refuses_the_new_one() -> None:
    """The peer with the most connections loses one."""
    house = House()
    for name, peer in (("1", "a"), ("2", "b"), ("3", "b"), ("4", "b"), ("5", "c"), ("6", "d"), ("7", "e"), ("8", "f")):
        house.enter(name, peer)
    assert house.enter("9", "g") == ""
    assert house.gone == ["2"]
    for name in house.inside:
        house.call(name)
    assert "8 connections are open" in house.enter("10", "h")


def test_scarce_descriptors_close_idle_connections() -> None:
    """The limit of the process counts, whichever part of it holds the descriptors."""
    house = House(descriptors=4)
    assert (house.admission.connections, house.admission.of_peer) == (4, 3)
    house.enter("1")
    house.enter("2", "b", scarce=True)
    assert house.gone == ["1"]
    house.call("2")
    assert house.enter("3", "c", scarce=True) != ""


def test_unix_sockets_have_no_limit_per_peer() -> None:
    """The permissions of the file protect the socket. The server's total limits hold."""
    house = House()
    for name in range(8):
        assert house.enter(str(name), LOCAL) == ""
        house.call(str(name))
    assert house.enter("9", LOCAL) != ""


def test_late_handshakes_are_closed_in_order() -> None:
    """Handshakes are closed in the order of their acceptance, and only those that are late."""
    house = House()
    house.enter("1", established=False)
    house.enter("2")
    house.enter("3", established=False)
    assert house.admission.next_late is house.inside["1"]
    house.admission.end_late(1, "late")
    assert house.gone == ["1"]
    house.admission.end_late(3, "late")
    assert house.gone == ["1", "3"]
    assert house.admission.next_late is None


@given(
    st.lists(
        st.tuples(st.sampled_from(["enter", "establish", "call", "hang up", "leave"]), st.integers(0, 11)), max_size=80
    )
)
def test_limits_hold_and_open_calls_survive_any_order_of_events(steps: list[tuple[str, int]]) -> None:
    house = House()
    for number, (what, who) in enumerate(steps):
        names = list(house.inside)
        busy = {name for name, visitor in house.inside.items() if visitor.calls > 0}
        if what == "enter":
            house.enter(str(number), "abcd"[who % 4], established=who % 3 == 0, scarce=who == 11)
        elif names:
            name = names[who % len(names)]
            visitor = house.inside[name]
            if what == "establish":
                house.admission.establish(visitor)
            elif what == "call":
                house.call(name)
            elif what == "hang up" and visitor.calls:
                house.hang_up(name)
            elif what == "leave":
                house.admission.leave(visitor)
                del house.inside[name]
                busy.discard(name)
        assert busy <= set(house.inside)
        assert len(house.admission) == len(house.inside) <= 8
        peers = [visitor.peer for visitor in house.inside.values()]
        shaking = [visitor.peer for visitor in house.inside.values() if not visitor.established]
        assert all(peers.count(peer) <= 6 and shaking.count(peer) <= 3 for peer in "abcd")
        assert len(shaking) <= 5
