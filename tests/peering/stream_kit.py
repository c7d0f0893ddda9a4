"""A sender and a receiver of a peer stream with an origin and a store, driven message by message."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from headway._gen.headway.peering import v1 as wire
from headway._gen.headway.peering.v1 import FeedBeginsCause as Cause
from headway.peering import PeerLimits
from headway.peering.stream import Copies, Copying, Exported, Receiver, Sender
from headway.protobuf import decode, encode
from headway.resource import (
    AnyMessage,
    Change,
    Key,
    Position,
    SnapshotChunk,
    TypeName,
    pb,
)
from headway.storage import Operation, Put, ResourceTables, Within, decide
from headway.subscription import Commit, Commits, Reached, SnapshotComplete, SubscriptionPosition

TEAM = TypeName("staff", "v1", "Team")
TEAMS = Exported(TEAM, "default", "*")
OTHERS = Exported(TypeName("staff", "v1", "Account"), "default", "*")
PARTITION = "peer-west"
uids = (f"u{number}" for number in itertools.count(1))


def team(name: str, version: int, *, uid: str = "", data: str = "", partition: str = "default") -> pb.Resource:
    """Return a stored team."""
    id = pb.Id(
        uid=uid or f"uid-{name}",
        name=name,
        type=TEAM.message(),
        tenancy=pb.Tenancy(partition=partition, namespace="default"),
    )
    return pb.Resource(
        id=id, version=str(version), generation=f"g{version}", data=AnyMessage(type_url="t", value=data.encode())
    )


class Origin:
    """The exporting store: every state that it had, by revision."""

    def __init__(self, store_id: str = "origin") -> None:
        self.store_id = store_id
        self.session = "s1"
        self.revision = 1
        self.states: dict[int, dict[Key, pb.Resource]] = {1: {}}
        self.log: list[tuple[int, list[Change]]] = []
        self.sessions: dict[str, int] = {}

    @property
    def now(self) -> dict[Key, pb.Resource]:
        """The current resources."""
        return self.states[self.revision]

    @property
    def position(self) -> Position:
        """The current position."""
        return Position(self.store_id, self.session, self.revision)

    def commit(self, **teams: str | None) -> int:
        """Store teams with this content in one commit; None deletes a team."""
        self.revision += 1
        state = dict(self.states[self.revision - 1])
        changes: list[Change] = []
        for name, data in teams.items():
            key = ("default", "default", name)
            old = state.get(key)
            if data is None:
                if old is not None:
                    del state[key]
                    changes.append(Change(self.revision, old, True, False))
                continue
            uid = next(uids) if old is None or old.id is None else old.id.uid
            state[key] = team(name, self.revision, uid=uid, data=data)
            changes.append(Change(self.revision, state[key], False, False))
        self.states[self.revision] = state
        self.log.append((self.revision, changes))
        return self.revision

    def roll_back(self, revision: int) -> None:
        """Put back an older copy of the store, which begins another session."""
        self.sessions = {session: min(last, revision) for session, last in self.sessions.items()}
        self.sessions[self.session] = revision
        self.session = f"s{int(self.session[1:]) + 1}"
        self.revision = revision
        self.log = [each for each in self.log if each[0] <= revision]

    def knows(self, position: wire.PeerPosition) -> bool:
        """Return True if the history of the store contains a position."""
        if position.store_id != self.store_id:
            return False
        last = self.revision if position.session == self.session else self.sessions.get(position.session, -1)
        return position.revision <= last


def at(position: Position, selection: str) -> SubscriptionPosition:
    """Return the position of a subscription."""
    return SubscriptionPosition(position, (), selection)


class Importing:
    """The importing store."""

    def __init__(self) -> None:
        self.tables = ResourceTables()
        self.revision = 0
        self.state: wire.Imported | None = None

    def commit(self, operations: list[Operation]) -> int:
        """Apply a commit, with the checks of every store."""
        self.revision += 1
        effects = [decide(self.tables, operation) for operation in operations]
        for operation, effect in zip(operations, effects, strict=True):
            if effect is None:
                continue
            kind, key, _, new = effect
            if new is None:
                self.tables.remove(kind, key)
            else:
                assert isinstance(operation, Put)
                new.version = str(self.revision)
                self.tables.put(kind, key, new)
        return self.revision

    @property
    def copies(self) -> dict[str, tuple[str, str, str]]:
        """The copies by name: the uid and version of the original, and the content."""
        found, _ = self.tables.scan(TEAM.unversioned, Within(), after=None, limit=0, most=1 << 30)
        return {each.id.name: origin_of(each) for each in found if each.id is not None}


def origin_of(copy: pb.Resource) -> tuple[str, str, str]:
    """Return the uid and version of a copy's original, and the content."""
    return copy.metadata["originUid"], copy.metadata["originVersion"], (copy.data or AnyMessage()).value.decode()


def originals(state: dict[Key, pb.Resource]) -> dict[str, tuple[str, str, str]]:
    """Return originals in the form of `Importing.copies`."""
    return {
        key[2]: (each.id.uid, each.version, (each.data or AnyMessage()).value.decode())
        for key, each in state.items()
        if each.id is not None
    }


class Stream:
    """One stream from an origin to a store. Messages are encoded and decoded on the way."""

    def __init__(
        self,
        origin: Origin,
        store: Importing,
        *,
        limits: PeerLimits | None = None,
        check: Callable[[pb.Resource], str | None] = lambda _: None,
        unknown: Callable[[Exported], str | None] = lambda _: None,
        exports: tuple[Exported, ...] = (TEAMS,),
        schemas: Sequence[wire.TypeSchema] = (),
        compare: Callable[[TypeName, bytes], str | None] = lambda *_: None,
        accepted: str = "",
        compacted: int = 0,
    ) -> None:
        self.origin, self.store = origin, store
        self.time = 0.0
        self.compacted = compacted
        limits = limits or PeerLimits(batch=2)
        self.sender = Sender(limits)
        self.sender.offer(exports, schemas)
        copies = Copies(PARTITION, limits.copies, lambda: next(uids))
        found, _ = store.tables.scan(TEAM.unversioned, Within(PARTITION), after=None, limit=0, most=1 << 30)
        copies.load(found)
        self.copies = copies
        self.receiver = Receiver(copies, store.state, unknown, check, compare=compare, limits=limits, accepted=accepted)
        self.to_sender = self.receiver.start()
        self.to_receiver: list[wire.Response] = []
        self.sent: list[wire.Response] = []
        self.requests: list[wire.Request] = []
        self.replaced = 0
        self.feed = 0
        self.selection = ""
        self.reached = 0
        self.ahead: list[object] = []

    # --- single steps; each returns True if it did something ---

    def request(self) -> bool:
        """Deliver a request to the sender."""
        if not self.to_sender:
            return False
        request = decode(wire.Request, encode(self.to_sender.pop(0)))
        self.requests.append(request)
        self.sender.request(request, self.time)
        return True

    def send(self) -> bool:
        """Let the sender send a response."""
        response = self.sender.take(self.time)
        if response is None:
            return False
        self.sent.append(response)
        self.to_receiver.append(decode(wire.Response, encode(response)))
        return True

    def receive(self, commits: int | None = None) -> bool:
        """Deliver a response to the receiver and store it; with ``commits``, die after this number of its commits."""
        if not self.to_receiver:
            return False
        work = self.receiver.response(self.to_receiver.pop(0))
        self.replaced += work.replaced
        for index, operations in enumerate(work.commits):
            if index == commits:
                return True
            self.copies.stored(operations, self.store.commit(operations))
            if work.state is not None and index == work.state_at:
                self.store.state = decode(wire.Imported, encode(work.state))
        if work.state is not None and not work.commits:
            self.store.state = decode(wire.Imported, encode(work.state))
        self.to_sender += work.replies
        return True

    def read(self) -> bool:
        """Let the source deliver its next item to the sender."""
        wanted = self.sender.wanted
        if wanted is None or not self.sender.hungry:
            return False
        if wanted.number != self.feed:
            self.feed = wanted.number
            self.selection = ", ".join(map(str, wanted.exports))
            self._open(wanted.resume_after, empty=not wanted.exports)
            return True
        if self.ahead:
            item = self.ahead.pop(0)
            self.sender.feed(self.feed, item)  # type: ignore[arg-type]  # only such items
            return True
        later = [each for each in self.origin.log if each[0] > self.reached]
        if later:
            revision, changes = later[0]
            self.reached = revision
            here = self.origin.position._replace(revision=revision)
            self.sender.feed(self.feed, Commits([Commit([*changes], at(here, self.selection))]))
            return True
        return False

    def _open(self, after: wire.PeerPosition | None, *, empty: bool) -> None:
        cause = Cause.FIRST
        if after is not None and not empty:
            if not self.origin.knows(after):
                cause = Cause.LOST
            elif after.revision < self.compacted or after.selection != self.selection:
                cause = Cause.COMPACTED
            else:
                cause = Cause.RESUMED
        here = self.origin.position
        self.sender.begin(self.feed, cause, here, self.selection)
        if cause is Cause.RESUMED and after is not None:
            self.reached = after.revision
            self.ahead = []
            return
        self.reached = self.origin.revision
        teams = [] if empty else list(self.origin.now.values())
        self.ahead = [SnapshotChunk(teams[start : start + 3]) for start in range(0, len(teams), 3)]
        self.ahead.append(SnapshotComplete(at(here, self.selection)))

    def again(self) -> bool:
        """Read the resources that are due again."""
        due = self.sender.due_again(self.time)
        for id in due:
            self.sender.again(id, self.origin.now.get(id.key))
        return bool(due)

    def progress(self) -> None:
        """Let the source report its position."""
        self.sender.feed(self.feed, Reached(at(self.origin.position, self.selection)))

    def run(self) -> None:
        """Go on until nothing more happens at this time."""
        while any([self.request(), self.send(), self.receive(), self.read(), self.again()]):
            pass

    def later(self, seconds: float = 100.0) -> None:
        """Let time pass, and go on."""
        self.time += seconds
        self.run()


def copied(origin: Origin, store: Importing) -> Stream:
    """Run a stream until everything is copied."""
    stream = Stream(origin, store)
    stream.run()
    assert stream.receiver.copying is Copying.CURRENT
    assert store.copies == originals(origin.now)
    return stream
