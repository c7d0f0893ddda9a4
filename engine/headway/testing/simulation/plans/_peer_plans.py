"""The choice of the faults of peerings worth trying, by the messages of a run without faults. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from headway.testing.simulation import faults
from headway.testing.simulation.faults import HOME, AtPeer, Fault
from headway.testing.simulation.oracles import Message, Result
from headway.testing.simulation.plans._plans import LeftOut, single_faults

_PLACES = 6
"""The number of messages at which each kind of fault is tried."""
_LONGER_THAN_SILENCE = 150.0
"""A number of seconds after which both sides have given a silent stream up."""
_IN_PEERS = 12
"""The number of faults that are tried in the world of each peer."""
_KINDS_IN_PEERS = (
    faults.CrashAfter,
    faults.NotDone,
    faults.AnswerLost,
    faults.HistoryLost,
    faults.Drop,
    faults.CutOff,
    faults.CrashAt,
)


def peer_faults(result: Result, left_out: LeftOut, places: int = _PLACES, *, shared: bool = False) -> list[Fault]:
    """Return the faults to try alone, the kinds in turns. At most ``places`` messages get a fault of each kind.

    ``shared`` is True if several engines share the store of a side.
    """
    kinds: list[list[Fault]] = [list(each) for each in _of_messages(result, places, left_out, shared=shared)]
    for side, theirs in result.peers.items():
        kinds.append([AtPeer(side, each) for each in _in_peer(theirs, left_out)])
    return [each for turn in itertools.zip_longest(*kinds) for each in turn if each is not None]


def _of_messages(result: Result, places: int, left_out: LeftOut, *, shared: bool) -> Iterator[Iterator[Fault]]:
    sides = [HOME, *result.peers]

    def at(offset: int) -> Sequence[Message]:
        """Return some messages, evenly spread. Kinds with another offset get others, so that more are met."""
        count = min(places, len(result.messages))
        found = {(at * len(result.messages) + offset) // count for at in range(count)}
        return [each for number, each in enumerate(result.messages) if number in found]

    left_out["a fault at a nearby message is tried"] += [
        faults.PeerCut(each.number) for each in result.messages if each not in at(0)
    ]
    yield (faults.PeerCut(each.number) for each in at(0))
    yield (faults.PeerHistoryLost(each.number, each.sender) for each in at(0))
    yield (faults.PeerSlow(each.number, (30.0, _LONGER_THAN_SILENCE)[turn % 2]) for turn, each in enumerate(at(0)))
    for offset, side in enumerate(sides):
        yield (faults.EngineKilled(each.number, side) for each in at(offset))
        if shared:
            yield (faults.PeerHandOver(each.number, side) for each in at(offset))
        yield (faults.PeerRestored(each.number, side, found) for each in at(0) for found in _before(result, side, each))
        yield (faults.PeerRolledBack(each.number, side, it) for each in at(0) for it in _before(result, side, each))
        yield (faults.PeeringDeleted(each.number, side) for each in at(offset))


def _before(result: Result, side: str, message: Message) -> list[int]:
    """Return a revision of a side from before a message: without its last change, or without all of them."""
    trace = result.trace if side == HOME else result.peers[side].trace
    types = {type.kind for type in (result if side == HOME else result.peers[side]).types}
    found = [each.revision for each in trace.commits if each.kind in types and each.at <= message.at]
    return [(found[-1] if message.number % 2 else found[0]) - 1] if found else []


def _in_peer(result: Result, left_out: LeftOut) -> list[Fault]:
    kinds = {place[0] for place in result.end}
    found, _ = single_faults(result.trace, kinds) if result.trace.steps else ([], {})
    by_kind = [[each for each in found if type(each) is kind] for kind in _KINDS_IN_PEERS]
    turns: list[Fault] = [each for turn in itertools.zip_longest(*by_kind) for each in turn if each is not None]
    left_out["enough faults of the peer are tried"] += turns[_IN_PEERS:]
    return turns[:_IN_PEERS]
