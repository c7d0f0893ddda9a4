"""A sender and a receiver of a peer stream with an origin and a store, driven message by message."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

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
    type_name,
)
from headway.storage import Operation, Put, ResourceTables, Within, decide
from headway.subscription import (
    Commit,
    CommitMerge,
    Commits,
    Reached,
    SnapshotComplete,
    SnapshotPart,
    SubscriptionItem,
    SubscriptionPosition,
)

TEAM = TypeName("staff", "v1", "Team")
TEAM2 = TypeName("staff", "v2", "Team")
"""Another version of the kind, without a converter: a resource is stored as one of them."""
TEAMS = Exported(TEAM, "default", "*")
TEAMS2 = Exported(TEAM2, "default", "*")
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

    def commit(self, as_type: TypeName | None = None, /, **teams: str | None) -> int:
        """Store teams with this content in one commit; None deletes a team.

        They are stored as a version of the type; with None, as the one that they have.
        """
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
            before = TEAM if old is None else typed(old)
            new = state[key] = team(name, self.revision, uid=uid, data=data)
            assert new.id is not None
            new.id.type = (as_type or before).message()
            if old is not None and typed(new) != before:
                changes.append(Change(self.revision, old, True, False))
            changes.append(Change(self.revision, new, False, False))
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

    def changes(self, type: TypeName, after: int, to: int) -> list[Change]:
        """Return the changes of a version of a type in the commits after a revision, up to another one."""
        found = [each for revision, changes in self.log if after < revision <= to for each in changes]
        return [each for each in found if typed(each.resource) == type]

    def knows(self, position: wire.PeerPosition) -> bool:
        """Return True if the history of the store contains a position."""
        if position.store_id != self.store_id:
            return False
        last = self.revision if position.session == self.session else self.sessions.get(position.session, -1)
        return position.revision <= last


def typed(resource: pb.Resource) -> TypeName:
    """Return the version of the type that a resource is stored as."""
    assert resource.id is not None
    return type_name(resource.id.type)


def at(position: Position, selection: str) -> SubscriptionPosition:
    """Return the position of a subscription."""
    return SubscriptionPosition(position, (), selection)


class Source:
    """A subscription to some versions of a type, which reads an origin like the engine's own subscriptions.

    A snapshot has a part for each version, and then the changes since the first part, because commits may come in
    between. Then come whole commits.
    """

    def __init__(self, origin: Origin, types: Sequence[TypeName], selection: str, after: int | None) -> None:
        self._origin, self._types, self._selection = origin, types, selection
        self._snapshot: Iterator[SubscriptionItem] = self._read() if after is None else iter(())
        self._merge = None if after is None else CommitMerge([after for _ in types])

    @property
    def is_current(self) -> bool:
        """True if everything was delivered."""
        return self._merge is not None and (not self._types or self._merge.frontier >= self._origin.revision)

    def next(self) -> SubscriptionItem | None:
        """Return the next item; None without one."""
        for item in self._snapshot:
            return item
        if self._merge is None or self.is_current:
            return None
        commits = self._advance(self._merge, self._merge.frontier + 1)
        return Commits([Commit([*changes], self._at(revision)) for revision, changes in commits])

    def _read(self) -> Iterator[SubscriptionItem]:
        first = last = self._origin.revision
        for type in self._types:
            last = self._origin.revision
            found = [each for each in self._origin.now.values() if typed(each) == type]
            for start in range(0, len(found), 3):
                yield SnapshotChunk(found[start : start + 3])
        merge = CommitMerge([first for _ in self._types])
        late = [each for _, changes in self._advance(merge, last) for each in changes]
        if late:
            yield SnapshotPart([*late])
        self._merge = merge
        yield SnapshotComplete(self._at(last))

    def _advance(self, merge: CommitMerge, revision: int) -> list[tuple[int, list[Change]]]:
        """Read every watch up to a revision, and return the whole commits."""
        for index, type in enumerate(self._types):
            merge.feed(index, self._origin.changes(type, merge.frontier, revision), revision)
        return merge.take(revision) if self._types else []

    def _at(self, revision: int) -> SubscriptionPosition:
        return at(self._origin.position._replace(revision=revision), self._selection)


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
        self.source: Source | None = None

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
            self._open([each.type for each in wanted.exports], wanted.resume_after)
            return True
        item = None if self.source is None else self.source.next()
        if item is None:
            return False
        self.sender.feed(self.feed, item)
        return True

    def _open(self, types: Sequence[TypeName], after: wire.PeerPosition | None) -> None:
        cause = Cause.FIRST
        if after is not None and types:
            if not self.origin.knows(after):
                cause = Cause.LOST
            elif after.revision < self.compacted or after.selection != self.selection:
                cause = Cause.COMPACTED
            else:
                cause = Cause.RESUMED
        self.sender.begin(self.feed, cause, self.origin.position, self.selection)
        resumed = None if after is None or cause is not Cause.RESUMED else after.revision
        self.source = Source(self.origin, types, self.selection, resumed)

    def again(self) -> bool:
        """Read the resources that are due again."""
        due = self.sender.due_again(self.time)
        for id in due:
            found = self.origin.now.get(id.key)
            self.sender.again(id, found if found is not None and typed(found) == id.type else None)
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
