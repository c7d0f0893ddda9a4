"""What callers ask of a transaction, and the decisions about it on what the transaction has read. Pure.

A batch of requests shares one transaction, which holds the lock of the store. Each is checked before it changes
anything, and sees the changes of those before it. So a rejected request has changed nothing, and the others continue.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from typing_extensions import override

from headway.errors import InvalidArgument
from headway.protobuf import encode
from headway.resource import Key, Kind, pb
from headway.storage._fences import first_checkpoint, next_term, raised_fence
from headway.storage._leases import CurrentLease, Lease, check_borne, is_late, lease_of, scope_of
from headway.storage._operations import (
    Fence,
    Operation,
    Put,
    Remove,
    Require,
    RequireOwnsNothing,
    StillOwns,
    VersionConflict,
    WrongUid,
)
from headway.storage._tables import version_of
from headway.storage._traces import Committing

HIGHEST = 2**63 - 1
"""The highest number that a row can hold."""

MOST_KEYED = 2600
"""The maximum number of bytes of the texts of a key. An index of PostgreSQL takes 2,704 with what it adds."""

MOST_BYTES = 64 << 20
"""The maximum number of bytes of the bodies of one commit, which a server has to take in the time of one call."""

LONGEST_TTL = 1e9
"""The maximum number of seconds of a lease: times far beyond it are none of PostgreSQL's."""

Place = tuple[Kind, Key]
Scope = tuple[str, str]


class StoredRow(NamedTuple):
    """What a transaction knows of a stored resource.

    Attributes:
        form: a text that is the same for two resources of the same metadata, stored as the same version of a kind.
        size: the bytes of its body.
    """

    uid: str
    form: str
    revision: int
    size: int


@dataclass(slots=True)
class Logged:
    """A change of a resource, as a batch writes it. Without ``put``, the stored resource is deleted.

    Attributes:
        place: where.
        revision, seq: the revision of the commit, and the place of the change in it.
        replaced: the stored row that it replaces.
        put: the resource, its uid, owner and form, and its body.
        keeps_former: True if the state before it is kept beside it.
    """

    place: Place
    revision: int
    seq: int
    replaced: StoredRow | None
    put: GivenRow | None = None
    keeps_former: bool = False


class GivenRow(NamedTuple):
    """The row of a put."""

    resource: pb.Resource
    uid: str
    owner_uid: str
    form: str
    body: bytes
    metadata: str


@dataclass(slots=True)
class State:
    """What a transaction has read, with the changes of its requests so far.

    Attributes:
        revision: the revision of the last commit.
        rows: the stored resources that the requests name.
        owning: the uids that own something, of those that the requests name.
        fences: (term, number, checkpoint) of the fences that the requests name, and of their controllers if a request
            is `whole`.
        leases: the leases of the fences that the requests name, and whether their holders have renewed them.
        changes: what to write of resources.
        raised: the fences to write.
        granted: the leases to write; None to delete.
        charge: raises CommitRefused if a rule refuses a commit of these changes.
    """

    revision: int
    rows: dict[Place, StoredRow] = field(default_factory=dict)
    owning: set[str] = field(default_factory=set)
    fences: dict[Scope, tuple[int, int, int]] = field(default_factory=dict)
    leases: dict[Scope, tuple[CurrentLease, bool]] = field(default_factory=dict)
    changes: list[Logged] = field(default_factory=list)
    raised: set[Scope] = field(default_factory=set)
    granted: dict[Scope, Lease | None] = field(default_factory=dict)
    charge: Callable[[Sequence[Logged]], object] = len

    def fence(self, scope: Scope) -> tuple[int, int, int]:
        """Return (term, number, checkpoint) of a fence; the initial ones if it has never been raised."""
        return self.fences.get(scope, (0, 0, 0))

    def write_fence(self, scope: Scope, term: int, number: int, checkpoint: int) -> None:
        """Change a fence."""
        self.fences[scope] = (term, number, checkpoint)
        self.raised.add(scope)

    def end_leases(self, scopes: Sequence[Scope]) -> None:
        """End the terms of leases, in one commit."""
        ended = [scope for scope in scopes if scope in self.leases]
        self.revision += bool(ended)
        for scope in ended:
            (lease, _), _ = self.leases.pop(scope)
            self.granted[scope] = None
            term, _, checkpoint = self.fence(scope)
            if term == lease.term:
                # No lease has the next term: the next one to acquire the lease gets a higher one.
                self.write_fence(scope, term + 1, 0, checkpoint)


class Request:
    """A change that one caller requests, and its outcome.

    Without a change, its transaction does what each does first: it ends the expired leases if there is a scope, and
    lets the rules count what is stored if they are to.

    Attributes:
        counts: True if the rules are to count what is stored.
        places: the resources that it names.
        changed: those of them that it may change.
        owners: the uids of which it must know whether they own anything.
        scopes: the fences that it names.
        whole: True if it looks at the other fences of their controllers, because it may begin a term.
        session: the session in which the transaction was made.
        revision: the store's revision after it; its own if it made one.
        made_revision: True if it has its own revision.
        error: the error for its caller if it failed.
        committing: the traced commit that it makes; None without a trace.
        wake: lets its caller continue.
    """

    counts = False
    places: Sequence[Place] = ()
    changed: Sequence[Place] = ()
    owners: Sequence[str] = ()
    scopes: Sequence[Scope] = ()
    whole = False
    size = 0

    def __init__(self, *texts: str) -> None:
        check_texts(*texts)
        self.session = ""
        self.revision = 0
        self.made_revision = False
        self.error: BaseException | None = None
        self.committing: Committing | None = None
        self.wake: Callable[[], object] = lambda: None

    def run(self, state: State) -> bool:  # noqa: ARG002  # it changes nothing
        """Raise an error if the request is rejected, and change nothing. Otherwise change the state.

        Return True if the request makes a revision, which is then the state's next one.
        """
        return False

    def publish(self) -> None:
        """Note that the request is stored."""


class WriteRequest(Request):
    """A request for operations on resources."""

    def __init__(self, operations: Sequence[Operation], fence: Fence | None) -> None:
        super().__init__(*([] if fence is None else fence[:2]))
        self._operations = operations
        self._fence = fence
        # A resource that cannot be encoded is rejected here, before it can fail the batch of others.
        self._rows = [given_row(each.resource) if isinstance(each, Put) else None for each in operations]
        named = [each for each in operations if not isinstance(each, RequireOwnsNothing)]
        self.places = [(each.kind, each.key) for each in named]
        self.changed = [(each.kind, each.key) for each in named if isinstance(each, Put | Remove)]
        self.owners = [each.owner_uid for each in operations if isinstance(each, RequireOwnsNothing)]
        self.scopes = [] if fence is None else [(fence.controller, fence.member)]
        for kind, key in self.places:
            check_texts(*kind, *key)
        check_texts(*self.owners)
        for row in self._rows:
            if row is not None:
                check_texts(row.uid, row.owner_uid, row.form)
        self.size = sum(len(each.body) for each in self._rows if each is not None)
        if self.size > MOST_BYTES:
            raise InvalidArgument(
                f"a commit to PostgreSQL may have at most {MOST_BYTES >> 20} MiB of resources, got {self.size} bytes"
            )

    @override
    def run(self, state: State) -> bool:
        if self._fence is not None:
            check_fence(state, self._fence)
        changes: list[Logged] = []
        revision = state.revision + 1
        for operation, row in zip(self._operations, self._rows, strict=True):
            if isinstance(operation, RequireOwnsNothing):
                if operation.owner_uid in state.owning:
                    raise StillOwns(f"uid {operation.owner_uid} still owns resources")
                continue
            place = (operation.kind, operation.key)
            stored = state.rows.get(place)
            if isinstance(operation, Require):
                if _is_another(stored, operation.uid) or operation.expected not in ("", _version(stored)):
                    raise VersionConflict(f"{place[1][2]} has changed since it was read")
                continue
            if isinstance(operation, Remove) and _is_another(stored, operation.uid):
                continue
            if row is not None and stored is not None and stored.uid != row.uid:
                raise WrongUid(f"{place[1][2]} is stored with another uid")
            if _version(stored) != operation.expected:
                raise VersionConflict(f"{place[1][2]} is not stored at version {operation.expected!r}")
            if row is None:
                changes.append(Logged(place, revision, len(changes), stored))
                continue
            another = stored is not None and stored.form != row.form
            if another and stored is not None and stored.form[_DIGEST:] != row.form[_DIGEST:]:
                # It is now stored as another version of its kind (`changes_of`).
                changes.append(Logged(place, revision, len(changes), stored))
                another, stored = False, None
            changes.append(Logged(place, revision, len(changes), stored, row, another))
        if not changes:
            return False
        state.charge(changes)
        state.changes += changes
        state.revision = revision
        for change in changes:
            if change.put is None:
                state.rows.pop(change.place, None)
            else:
                state.rows[change.place] = StoredRow(change.put.uid, change.put.form, revision, len(change.put.body))
        return True

    @override
    def publish(self) -> None:
        # Only now, because a resource whose commit failed keeps the version that its caller gave it.
        version = str(self.revision)
        for row in self._rows:
            if row is not None and self.made_revision:
                row.resource.version = version


class RaiseRequest(Request):
    """A request to raise a fence. Afterwards ``fence`` and ``checkpoint`` are as stored."""

    whole = True

    def __init__(self, fence: Fence) -> None:
        super().__init__(*fence[:2])
        self.fence = fence
        self.checkpoint = 0
        self.scopes = [(fence.controller, fence.member)]

    @override
    def run(self, state: State) -> bool:
        controller, member, *_ = self.fence
        scope = (controller, member)
        held = state.leases.get(scope)
        term, number, checkpoint = state.fence(scope)
        raised = raised_fence(self.fence, (term, number), held and held[0].lease.term, next_term(scope, state.fences))
        if max(raised[2:]) > HIGHEST:
            raise InvalidArgument(f"the fence {raised[2:]} of {controller} is above {HIGHEST}, the maximum")
        state.revision += 1
        recorded = {each: known[2] for (of, each), known in state.fences.items() if of == controller and known[2]}
        self.fence = raised
        self.checkpoint = checkpoint or first_checkpoint(member, recorded) or state.revision
        state.write_fence(scope, raised.term, raised.number, self.checkpoint)
        return True


class CheckpointRequest(Request):
    """A request to record a fence's checkpoint. It makes no revision."""

    def __init__(self, fence: Fence, checkpoint: int) -> None:
        super().__init__(*fence[:2])
        if not 0 <= checkpoint <= HIGHEST:
            raise InvalidArgument(f"the revision must be between 0 and {HIGHEST}, got {checkpoint}")
        self._fence = fence
        self._checkpoint = checkpoint
        self.scopes = [(fence.controller, fence.member)]

    @override
    def run(self, state: State) -> bool:
        check_fence(state, self._fence)
        term, number, checkpoint = state.fence(self.scopes[0])
        if self._checkpoint > checkpoint:
            state.write_fence(self.scopes[0], term, number, self._checkpoint)
        return False


class AcquireRequest(Request):
    """A request to acquire a lease. Afterwards ``held`` is the current term; ``acquired``: this request began it."""

    whole = True

    def __init__(self, name: str, holder: str, ttl: float, attempt: str) -> None:
        super().__init__(name, holder, attempt)
        if not 0 < ttl <= LONGEST_TTL:
            raise InvalidArgument(f"the ttl of {name} must be above 0 and at most {LONGEST_TTL:g} seconds, got {ttl}")
        self._wanted = Lease(name, holder, 0, ttl, attempt, time.time())
        self.held = CurrentLease(self._wanted, ttl)
        self.acquired = False
        self.scopes = [scope_of(name)]

    @override
    def run(self, state: State) -> bool:
        wanted, [scope] = self._wanted, self.scopes
        term, number, checkpoint = state.fence(scope)
        held = state.leases.get(scope)
        if held is not None:
            (lease, _), renewed = held
            in_use = renewed or (term == lease.term and number > 0)
            if lease.holder != wanted.holder or is_late(lease, wanted.holder, wanted.attempt, in_use=in_use):
                self.held = held[0]
                return False
        following = max(term + 1, next_term(scope, state.fences))
        if following >= HIGHEST:
            raise InvalidArgument(f"the fence of {wanted.name} is at term {following - 1}: no higher term is possible")
        lease = wanted._replace(term=following)
        self.held, self.acquired = CurrentLease(lease, lease.ttl), True
        state.revision += 1
        state.write_fence(scope, following, 0, checkpoint)
        state.leases[scope] = self.held, False
        state.granted[scope] = lease
        return True


class ReleaseRequest(Request):
    """A request to end a term. It does nothing if the term has ended already."""

    def __init__(self, name: str, holder: str, term: int) -> None:
        super().__init__(name)
        self._held = (holder, term)
        self.scopes = [scope_of(name)]

    @override
    def run(self, state: State) -> bool:
        held = state.leases.get(self.scopes[0])
        if held is None or (held[0].lease.holder, held[0].lease.term) != self._held:
            return False
        state.end_leases(self.scopes)
        return True


_DIGEST = 16


def metadata_column(metadata: Iterable[tuple[str, str]]) -> str:
    """Return metadata as JSON, or an empty text if there is none. PostgreSQL's JSON cannot have a NUL character."""
    entries = dict(sorted(metadata))
    if not entries:
        return ""
    found = _JSON(entries)
    if "\\u000" in found:
        # So that two different texts stay different.
        escaped = {each: f"\x01{number}" for number, each in enumerate("\0\x01")}
        table = str.maketrans(escaped)
        found = _JSON({key.translate(table): value.translate(table) for key, value in entries.items()})
    return found


_JSON = json.JSONEncoder(ensure_ascii=False).encode


def _column_and_digest(entries: tuple[tuple[str, str], ...]) -> tuple[str, str]:
    column = metadata_column(entries)
    return column, blake2b(column.encode(errors="surrogatepass"), digest_size=_DIGEST // 2).hexdigest()


# Many resources have the same few labels. What is larger is not kept.
_remembered = lru_cache(1024)(_column_and_digest)
_MOST_REMEMBERED = 500


def given_row(resource: pb.Resource) -> GivenRow:
    """Return the row of a put."""
    owner_uid = resource.owner.uid if resource.owner is not None else ""
    body = encode(resource)
    entries = tuple(resource.metadata.items())
    small = sum([len(key) + len(value) for key, value in entries]) <= _MOST_REMEMBERED
    column, digest = (_remembered if small else _column_and_digest)(entries)
    return GivenRow(resource, resource.id.uid, owner_uid, digest + version_of(resource), body, column)  # type: ignore[union-attr]  # stored ids are whole


def check_texts(*texts: str) -> None:
    """Raise InvalidArgument if a key, or a row, cannot have these texts: they would fail the batch of others."""
    joined = "".join(texts)
    size = size_of(joined)
    if "\0" in joined:
        raise InvalidArgument(f"a store in PostgreSQL has no texts with a NUL character, got {joined[:100]!r}")
    if size > MOST_KEYED:
        raise InvalidArgument(
            f"the texts of a key in PostgreSQL may have at most {MOST_KEYED} bytes, got {size}: {joined[:100]!r}…"
        )


def size_of(text: str) -> int:
    """Return the bytes of a text in UTF-8. Raise InvalidArgument if it has half of a surrogate pair."""
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{text[:100]!r} is not a text that UTF-8 has: {error.reason}") from None


def check_fence(state: State, fence: Fence) -> None:
    """Raise an error if a fence is not one that the store accepts now."""
    term, number, _ = state.fence((fence.controller, fence.member))
    check_borne(fence, (term, number))


def lease_from(controller: str, member: str, holder: str, term: int, *rest: object) -> tuple[CurrentLease, bool]:
    """Return a lease, and whether its holder has renewed it, from its row."""
    ttl, attempt, acquired_at, renewed, remaining = rest
    lease = Lease(lease_of(controller, member), holder, term, float(ttl), str(attempt), float(acquired_at))  # type: ignore[arg-type]
    return CurrentLease(lease, max(float(remaining), 0.0)), bool(renewed)  # type: ignore[arg-type]


def _version(stored: StoredRow | None) -> str:
    return "" if stored is None else str(stored.revision)


def _is_another(stored: StoredRow | None, uid: str) -> bool:
    return stored is None or stored.uid != uid
