"""A server admits a new connection and closes another one for it, by rules."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.rpc import Limits
from headway.rpc._admission import LOCAL, Admission, Visitor, peer_of

SMALL = Limits(connections=8, peer_connections=6, handshakes=5, peer_handshakes=3)


class House:
    """An admission, and the visitors of it by name."""

    def __init__(self, limits: Limits = SMALL, descriptors: int | None = None) -> None:
        self.admission = Admission(limits, descriptors)
        self.inside: dict[str, Visitor] = {}
        self.gone: list[str] = []
        self.clock = 0

    def enter(self, name: str, peer: str = "a", *, settled: bool = True, scarce: bool = False) -> str:
        """Let a visitor in, if it is admitted, whose handshake ends at once unless it is not ``settled``."""

        def end(_: str) -> None:
            self.gone.append(name)
            del self.inside[name]

        self.clock += 1
        visitor = Visitor(peer, self.clock, end)
        why = self.admission.enter(visitor, scarce=scarce)
        if not why:
            self.inside[name] = visitor
            if settled:
                self.admission.settle(visitor)
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
def test_a_peer_is_a_host_or_a_network(address: object, peer: str) -> None:
    """A host of IPv6 has all addresses of its network."""
    assert peer_of(address) == peer


def test_the_oldest_handshake_of_a_peer_goes_for_its_next() -> None:
    """The newest belongs to an honest client as likely as any other, and needs its place for a moment only."""
    house = House()
    for name in "123":
        house.enter(name, settled=False)
    house.enter("other", "b", settled=False)
    house.enter("4", settled=False)
    assert house.gone == ["1"]


def test_of_all_handshakes_the_oldest_of_the_busiest_peer_goes() -> None:
    """A peer that has one keeps it."""
    house = House()
    house.enter("b1", "b", settled=False)
    for name, peer in (("a1", "a"), ("a2", "a"), ("a3", "a"), ("c1", "c")):
        house.enter(name, peer, settled=False)
    house.enter("d1", "d", settled=False)
    assert house.gone == ["a1"]


def test_whoever_has_never_called_goes_before_whoever_is_idle() -> None:
    """The longest idle connection goes first; a connection with an open call never goes."""
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


def test_one_peer_never_takes_the_last_quarter() -> None:
    """Though all its connections are in use, another one is admitted."""
    house = House(dataclasses.replace(SMALL, peer_connections=1000))
    for name in "123456":
        house.enter(name)
        house.call(name)
    assert house.enter("7") != ""
    assert house.enter("other", "b") == ""


def test_a_full_server_closes_what_is_idle_and_refuses_where_nothing_is() -> None:
    """The peer with the most connections loses one."""
    house = House()
    for name, peer in (("1", "a"), ("2", "b"), ("3", "b"), ("4", "b"), ("5", "c"), ("6", "d"), ("7", "e"), ("8", "f")):
        house.enter(name, peer)
    assert house.enter("9", "g") == ""
    assert house.gone == ["2"]
    for name in house.inside:
        house.call(name)
    assert "8 connections are open" in house.enter("10", "h")


def test_scarce_descriptors_make_room_like_a_full_server() -> None:
    """The limit of the process counts, whoever has its descriptors."""
    house = House(descriptors=4)
    assert (house.admission.connections, house.admission.of_peer) == (4, 3)
    house.enter("1")
    house.enter("2", "b", scarce=True)
    assert house.gone == ["1"]
    house.call("2")
    assert house.enter("3", "c", scarce=True) != ""


def test_unix_sockets_have_no_limit_of_their_own() -> None:
    """The permissions of the file protect it; the limits in all hold."""
    house = House()
    for name in range(8):
        assert house.enter(str(name), LOCAL) == ""
        house.call(str(name))
    assert house.enter("9", LOCAL) != ""


def test_handshakes_that_are_late_end() -> None:
    """In order of their acceptance, and no others."""
    house = House()
    house.enter("1", settled=False)
    house.enter("2")
    house.enter("3", settled=False)
    assert house.admission.next_late is house.inside["1"]
    house.admission.end_late(1, "late")
    assert house.gone == ["1"]
    house.admission.end_late(3, "late")
    assert house.gone == ["1", "3"]
    assert house.admission.next_late is None


@given(
    st.lists(
        st.tuples(st.sampled_from(["enter", "settle", "call", "hang up", "leave"]), st.integers(0, 11)), max_size=80
    )
)
def test_no_limit_is_passed_and_no_call_is_cut_off(steps: list[tuple[str, int]]) -> None:
    """Whatever comes in whichever order."""
    house = House()
    for number, (what, who) in enumerate(steps):
        names = list(house.inside)
        busy = {name for name, visitor in house.inside.items() if visitor.calls > 0}
        if what == "enter":
            house.enter(str(number), "abcd"[who % 4], settled=who % 3 == 0, scarce=who == 11)
        elif names:
            name = names[who % len(names)]
            visitor = house.inside[name]
            if what == "settle":
                house.admission.settle(visitor)
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
        shaking = [visitor.peer for visitor in house.inside.values() if not visitor.settled]
        assert all(peers.count(peer) <= 6 and shaking.count(peer) <= 3 for peer in "abcd")
        assert len(shaking) <= 5
