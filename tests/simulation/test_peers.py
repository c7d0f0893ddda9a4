"""Peerings in a simulated world: two engines with a store each, under the faults of their link and of both sides."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from headway.errors import DeclarationError
from headway.testing import simulation
from headway.testing.simulation import Finding, Peer, Plan, Setting, World, explore, run
from headway.testing.simulation.oracles import ExportRule, Feed, PeerWatch, difference
from tests.helpers.peered_worlds import BOTH_WAYS, PEERS, SHARED, TEAM, Team, conflicting, home, teams, west


def findings(plan: str, peers: Mapping[str, Peer], scenario: simulation.Scenario = teams) -> list[Finding]:
    """Return what is wrong under a plan. Every fault of it must strike."""
    setting = Setting(app=home(), scenario=scenario, peers=peers, quiet=30.0)
    result = run(setting, Plan.parse(plan))
    assert set(result.struck) == set(Plan.parse(plan))
    return list(result.findings)


@pytest.mark.wide
@pytest.mark.parametrize(
    "plan",
    [
        # Message 9 deletes a team, and message 10 deletes an account.
        "peer_cut(10)",
        "peer_history_lost(10, 'west')",
        "peer_rolled_back(10, 'west', 29)",
    ],
)
def test_copies_survive(plan: str) -> None:
    assert findings(plan, PEERS) == []


@pytest.mark.wide
@pytest.mark.parametrize(
    "plan",
    [
        "peer_slow(2, 150.0)",
        "engine_killed(9, 'west')",
        "engine_killed(3, 'home')",
        "peer_history_lost(9, 'home')",
        "peer_restored(10, 'west', 26)",
        "peer_restored(3, 'home', 30)",
        "peer_rolled_back(3, 'home', 30)",
        "peer_rolled_back(10, 'west', 29); peer_cut(14)",
        "peering_deleted(3, 'home')",
        "peering_deleted(3, 'west')",
        "west: crash_after(1)",
    ],
)
def test_copies_survive_what_happens_to_both_sides(plan: str) -> None:
    assert findings(plan, PEERS) == []


@pytest.mark.wide
def test_nothing_comes_back_if_both_sides_export_the_same_types() -> None:
    assert findings("none", BOTH_WAYS) == []
    assert findings("peer_history_lost(25, 'west')", BOTH_WAYS) == []
    # The restore comes at once after the rollback, before anyone has accepted that.
    assert findings("peer_rolled_back(26, 'home', 31); peer_restored(27, 'home', 31)", BOTH_WAYS) == []


@pytest.mark.wide
def test_refused_copy_is_sent_again() -> None:
    assert findings("none", PEERS, conflicting) == []
    assert findings("peer_cut(19)", PEERS, conflicting) == []


async def leader(world: World) -> str:
    """Wait until an engine of a side has the lease of its streams, and return its name."""
    while True:
        for each in (await world.store.list_leases("headway/peer-streams"))[0]:
            return each.lease.holder
        await world.sleep(1.0)


@pytest.mark.wide
@pytest.mark.parametrize(
    "plan",
    [
        "peer_hand_over(9, 'west'); peer_hand_over(11, 'home')",
        # The dialing side is killed with the message that deletes a team.
        "engine_killed(9, 'west'); engine_killed(14, 'home')",
    ],
)
def test_copies_survive_if_another_engine_leads(plan: str) -> None:
    leaders: list[list[str]] = []

    async def moved(world: World) -> None:
        sides = (world, world.peers["west"])
        leaders.append([await leader(each) for each in sides])
        await teams(world)
        leaders.append([await leader(each) for each in sides])

    assert findings(plan, SHARED, moved) == []
    before, after = map(set, leaders)
    assert before | after == {"store-1", "store-2", "west-1", "west-2"}


@pytest.mark.wide
@pytest.mark.parametrize(
    "plan",
    [
        "peer_hand_over(3, 'home'); peer_cut(5)",
        "peer_hand_over(3, 'home'); peer_hand_over(9, 'home'); peer_hand_over(13, 'home')",
        "peer_hand_over(9, 'west'); engine_killed(10, 'home')",
        "peer_hand_over(9, 'west'); engine_killed(10, 'west')",
        "engine_killed(3, 'home'); peer_history_lost(9, 'west')",
        "peer_hand_over(3, 'west'); peer_restored(10, 'west', 26)",
        "peer_hand_over(3, 'home'); peer_rolled_back(10, 'west', 29)",
        "engine_killed(3, 'home'); peering_deleted(4, 'west')",
    ],
)
def test_copies_survive_while_the_lease_moves(plan: str) -> None:
    assert findings(plan, SHARED) == []


@pytest.mark.deep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("peers", [PEERS, BOTH_WAYS, SHARED], ids=["one", "both", "shared"])
@pytest.mark.parametrize("scenario", [teams, conflicting])
def test_every_fault_at_many_messages(scenario: simulation.Scenario, peers: Mapping[str, Peer]) -> None:
    tried = explore(home(), scenario, peers=peers, seconds=600.0, pairs=40)
    assert tried.complete
    assert tried.tried["peer_cut"]


# --- declarations ---


async def nothing(_: World) -> None:
    pass


@pytest.mark.parametrize(
    ("peers", "text"),
    [
        ([], r"peers must be a mapping, not \[\]"),
        ({"home": Peer(app=west())}, "'home' must be a lower-case name other than 'home'"),
        ({"west": west()}, r"peers\['west'\] must be a Peer, not <headway\.controller"),
    ],
)
def test_peers_that_are_no_peers_are_refused(peers: object, text: str) -> None:
    given: dict[str, object] = {"peers": peers}
    with pytest.raises(DeclarationError, match=text):
        Setting(app=home(), scenario=nothing, **given)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("engines", [0, 10, True, "2"])
def test_engines_are_a_small_number(engines: object) -> None:
    with pytest.raises(DeclarationError, match="must be a whole number from 1 to 9"):
        Peer(app=west(), engines=engines)  # type: ignore[arg-type]  # wrong on purpose


def test_exports_are_types_or_exports() -> None:
    with pytest.raises(
        DeclarationError,
        match=r"exports\[0\] must be a resource type from .* or an Export, as in exports=\[TEAM\], not 'Team'",
    ):
        Peer(app=west(), exports=["Team"])  # type: ignore[list-item]  # wrong on purpose


# --- the rules ---

FEED = Feed("west", "home", "west", (ExportRule(TEAM.kind, "default", "a"),))
BY = "headway/peer-copies/west"


def original(version: int, lead: str, uid: str = "01") -> object:
    made = TEAM.new("core", Team(members=[lead]), namespace="a").message()
    assert made.id is not None
    made.id.uid, made.version = uid, str(version)
    return made


def copy(version: int, lead: str, uid: str = "01", partition: str = "default") -> object:
    made = TEAM.new("core", Team(members=[lead]), partition="peer-west", namespace="a").message()
    made.metadata = {"originUid": uid, "originVersion": str(version), "originPartition": partition}
    return made


class Watched:
    """A watch, with a store on each side."""

    def __init__(self) -> None:
        self.watch = PeerWatch([FEED])
        self.at_west: object = None
        self.at_home: object = None

    def west(self, new: object) -> None:
        """Change the original."""
        self.watch.committed("west", TEAM.kind, ("default", "a", "core"), self.at_west, new, None)  # type: ignore[arg-type]
        self.at_west = new

    def home(self, new: object, by: str = BY) -> list[str]:
        """Change the copy, and return the new findings."""
        from headway.storage import Fence

        before = len(self.watch.findings)
        fence = Fence(by, "", 1, 1) if by else None
        self.watch.committed("home", TEAM.kind, ("peer-west", "a", "core"), self.at_home, new, fence)  # type: ignore[arg-type]
        self.at_home = new
        return [each.text.partition(" at home ")[2] for each in self.watch.findings[before:]]


def test_copy_of_a_state_that_was_there_is_right() -> None:
    world = Watched()
    world.west(original(1, "ada"))
    world.west(original(2, "ben"))
    assert world.home(copy(1, "ada")) == []
    assert world.home(copy(2, "ben")) == []
    world.west(None)
    assert world.home(None) == []


def test_copy_is_written_by_the_peering_alone() -> None:
    world = Watched()
    world.west(original(1, "ada"))
    assert world.home(copy(1, "ada"), "") == ["was written by a user: only the peering writes copies"]
    assert world.home(copy(1, "ada"), "staff/teams") == ["was written by staff/teams: only the peering writes copies"]


def test_copy_does_not_go_back() -> None:
    world = Watched()
    world.west(original(1, "ada"))
    world.west(original(2, "ben"))
    assert world.home(copy(2, "ben")) == []
    assert world.home(copy(1, "ada")) == ["goes back from version 2 of its original to 1"]
    world.watch.accepted("west")
    world.at_home = None
    assert world.home(copy(1, "ada")) == []


def test_copy_does_not_change_before_a_rollback_is_accepted() -> None:
    world = Watched()
    world.west(original(1, "ada"))
    world.watch.rolled_back("west")
    assert world.home(copy(1, "ada"))[0].startswith("changes before an operator has accepted")
    world.watch.accepted("west")
    assert world.home(copy(1, "ada")) == []


def test_copy_is_not_removed_while_its_original_exists() -> None:
    world = Watched()
    world.west(original(1, "ada"))
    world.home(copy(1, "ada"))
    assert world.home(None) == ["was removed, although its original exists"]
    world.watch.deleted("west", "home")
    world.home(copy(1, "ada"))
    assert world.home(None) == []


def test_copy_shows_a_state_of_its_original_within_the_exports() -> None:
    world = Watched()
    world.west(original(1, "ada"))
    assert world.home(copy(1, "ben")) == ["shows a state of version '1' that its original has never had"]
    assert world.home(copy(1, "ada", partition="other"))[0] == "is of partition 'other', which west does not export"


def test_copies_are_compared_with_the_exports() -> None:
    place, of_copy = (TEAM.kind, ("default", "a", "core")), (TEAM.kind, ("peer-west", "a", "core"))

    def differences(origin: object, holder: object) -> list[str]:
        found = difference(
            FEED,
            {} if origin is None else {place: origin},  # type: ignore[dict-item]  # a message
            {} if holder is None else {of_copy: holder},  # type: ignore[dict-item]  # a message
        )
        return [each.text.partition(" at home ")[2] for each in found]

    assert differences(original(1, "ada"), copy(1, "ada")) == []
    assert differences(original(1, "ada"), None) == ["is missing: west exports it"]
    assert differences(None, copy(1, "ada")) == ["is a ghost: west does not export it"]
    assert differences(original(2, "ben"), copy(1, "ada")) == ["differs from its original at west"]
    assert differences(original(2, "ada", "02"), copy(1, "ada")) == ["differs from its original at west"]
