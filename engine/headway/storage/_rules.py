"""Rules of commits: an add-on gives them to a store, and they may refuse a commit for what it adds. Pure.

A rule follows every change of the store, and is asked before each commit that concerns it. It never sees a commit that
another writer's commit may still precede: a store asks it in the same step, or the same transaction, as it applies the
changes. On a store that several processes share, the commit also compares what the rule's answer was based on
(`Claim`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from headway.errors import CommitRefused
from headway.protobuf import encode
from headway.resource import Key, Kind, Within, pb
from headway.storage._tables import Effect, ResourceTables

_REMEMBERED = 8 << 20
"""The bytes of the resources whose sizes are remembered."""

_ENTRY = 500
"""The bytes of such a resource beside those that are stored."""


class Change(Protocol):
    """A change of one resource in a commit, before it is applied.

    Attributes:
        kind: the resource's kind.
        key: the resource's key.
        new: the resource after the commit; None for a deletion.
    """

    kind: Kind
    key: Key
    new: pb.Resource | None

    @property
    def old(self) -> pb.Resource | None:
        """The resource before the commit. None if there is none, or if it is damaged."""
        ...

    @property
    def resources(self) -> int:
        """The number of resources that it adds: 1, 0, or -1 for a deletion."""
        ...

    @property
    def bytes(self) -> int:
        """The number of bytes that it adds, of resources as they are stored (`stored_size`). It may be negative."""
        ...


class Stored(Protocol):
    """The content of a store, for the counts of rules."""

    def next_kind(self, kind: Kind) -> Kind | None:
        """Return the first kind behind this one that has resources, or None."""
        ...

    def every(self, kind: Kind) -> Iterable[pb.Resource]:
        """Return the resources of a kind, without those that are damaged."""
        ...

    def measure(self, kind: Kind, partition: str, namespace: str, after: Key | None) -> tuple[int, int, Key | None]:
        """Count resources of a kind in a namespace, or in all of a partition, behind ``after`` in order of key.

        Return their number, the number of their bytes, and the key to continue after, or None at the end.
        """
        ...


class Claim(NamedTuple):
    """What a commit adds to numbers that a rule limits.

    Attributes:
        name: the name of these numbers. Two rules of a store use different names.
        adds: what the commit adds, for each number.
        free: what could be added to each before the commit.
    """

    name: str
    adds: tuple[int, ...]
    free: tuple[int, ...]


class CommitRule(Protocol):
    """A rule of a store's commits. A store calls it from one task, or from one thread at a time.

    Attributes:
        kinds: the kinds of the resources that tell the rule what to demand.
    """

    kinds: Collection[Kind]

    @property
    def active(self) -> bool:
        """True if it demands anything now. Otherwise it is asked only about commits that change one of its `kinds`."""
        ...

    def begin(self, stored: Stored) -> None:
        """Begin with this content, and forget what was counted before."""
        ...

    def claims(self, changes: Sequence[Change]) -> Sequence[Claim]:
        """Return the limited numbers that a commit adds to. Raise CommitRefused to refuse it. Changes nothing."""
        ...

    def follow(self, changes: Sequence[Change]) -> None:
        """Follow the changes of a commit that is made."""
        ...

    def count(self, growing: Sequence[tuple[Kind, Key]] | None) -> bool:
        """Count some of what the answer about commits of these resources needs, or of everything.

        Return False if all of it is counted. `claims` counts the rest at once, which may block for long.
        """
        ...

    def refused(self, error: CommitRefused) -> None:
        """Note that a commit was refused. It is called once for each, however often a store has asked."""
        ...


R = TypeVar("R", bound=CommitRule)


class Rules:
    """The rules of one store, which calls these methods.

    Args:
        stored: the content. A store that does not have it yet calls `begin` when it does.
        in_thread: True if only a thread of the store may call the rules. That calls `begin` while `current` is False.

    Attributes:
        active: True if any rule demands anything now.
        kinds: the kinds that tell the rules what to demand.
    """

    def __init__(self, stored: Stored | None = None, *, in_thread: bool = False) -> None:
        self._rules: tuple[CommitRule, ...] = ()
        self._stored = stored
        self._in_thread = in_thread
        # The rules that have begun. The others are not asked.
        self._begun: tuple[CommitRule, ...] | None = None
        self.active = False
        self.kinds: frozenset[Kind] = frozenset()

    @property
    def current(self) -> bool:
        """True once all rules have begun."""
        return self._begun is self._rules

    def find(self, type: type[R]) -> R | None:
        """Return the rule of this class, or None."""
        return next((each for each in self._rules if isinstance(each, type)), None)

    def add(self, rule: R) -> R:
        """Add a rule and return it. It holds from the next commit on."""
        self._rules = (*self._rules, rule)
        self.kinds = self.kinds.union(rule.kinds)
        if self._stored is not None and not self._in_thread:
            self.begin(self._stored)
        return rule

    def begin(self, stored: Stored) -> None:
        """Let the rules begin with this content."""
        self._stored, rules = stored, self._rules
        for each in rules:
            each.begin(stored)
        self._begun = rules
        self._demand()

    def lose(self) -> None:
        """Note that what the rules have followed may not be what is committed, so that they must begin again."""
        self._begun = None

    def concern(self, changed: Iterable[Effect]) -> bool:
        """Return True if the rules must be asked about these changes, and follow them."""
        return self.active or not self.kinds.isdisjoint([each[0] for each in changed])

    def charge(self, changes: Sequence[Change]) -> None:
        """Raise CommitRefused, and note the refusal, if a rule refuses a commit."""
        try:
            self.claims(changes)
        except CommitRefused as error:
            self.refused(error)
            raise

    def claims(self, changes: Sequence[Change]) -> Sequence[Claim]:
        """Return what all rules say about a commit. Raise CommitRefused if one refuses it."""
        return [claim for each in self._begun or () for claim in each.claims(changes)]

    def follow(self, changes: Sequence[Change]) -> None:
        """Let the rules follow the changes of a commit that is made."""
        for each in self._begun or ():
            each.follow(changes)
        self._demand()

    def count(self, growing: Sequence[tuple[Kind, Key]] | None = None) -> bool:
        """Take one step of a count. Return False if nothing is left to count."""
        return any(each.count(growing) for each in self._begun or ())

    def refused(self, error: CommitRefused) -> None:
        """Note that a commit was refused."""
        for each in self._rules:
            each.refused(error)

    def _demand(self) -> None:
        self.active = any(each.active for each in self._begun or ())


def stored_size(resource: pb.Resource) -> int:
    """Return the bytes of a resource as stored: of its encoding without its version."""
    # The version's field has a tag and a length of one byte each.
    return len(encode(resource)) - (len(resource.version.encode()) + 2 if resource.version else 0)


class _TableChange:
    __slots__ = ("_bytes", "_sizes", "key", "kind", "new", "old")

    def __init__(self, effect: Effect, sizes: _Sizes) -> None:
        self.kind, self.key, self.old, self.new = effect
        self._sizes = sizes
        self._bytes: int | None = None

    @property
    def resources(self) -> int:
        return (self.new is not None) - (self.old is not None)

    @property
    def bytes(self) -> int:
        if self._bytes is None:
            # A replaced resource is not asked for again, unless the commit is refused.
            before = 0 if self.old is None else self._sizes.take(self.old)
            self._bytes = (0 if self.new is None else self._sizes.keep(self.new)) - before
        return self._bytes


class _Sizes:
    """The sizes of the resources stored last, so that the next commit does not encode what it replaces."""

    def __init__(self) -> None:
        # By the ids of the objects, which it keeps alive.
        self._known: dict[int, tuple[pb.Resource, int]] = {}
        self._bytes = 0

    def keep(self, resource: pb.Resource) -> int:
        """Return the size of a resource, and remember it."""
        size = self.take(resource)
        self._bytes += size + _ENTRY
        if self._bytes > _REMEMBERED:
            self._known.clear()
            self._bytes = size + _ENTRY
        self._known[id(resource)] = (resource, size)
        return size

    def take(self, resource: pb.Resource) -> int:
        """Return the size of a resource, and forget it."""
        known = self._known.pop(id(resource), None)
        if known is None:
            return stored_size(resource)
        self._bytes -= known[1] + _ENTRY
        return known[1]


class TableContent(Stored):
    """The content of a store whose resources are in tables.

    Args:
        tables: the tables.
        step: the number of resources that one step of a count looks at. 200 take about two milliseconds.
    """

    def __init__(self, tables: ResourceTables, step: int = 200) -> None:
        self._tables = tables
        self._step = step
        self._sizes = _Sizes()

    def next_kind(self, kind: Kind) -> Kind | None:
        return next((each for each in self._tables.kinds() if each > kind), None)

    def every(self, kind: Kind) -> Iterable[pb.Resource]:
        return self._tables.get_all(kind, self._tables.keys(kind))

    def measure(self, kind: Kind, partition: str, namespace: str, after: Key | None) -> tuple[int, int, Key | None]:
        within = Within(partition, namespace or "*")
        found, after = self._tables.scan(kind, within, after=after, limit=0, most=self._step)
        return len(found), sum(map(stored_size, found)), after

    def changes(self, effects: Iterable[Effect]) -> Sequence[Change]:
        """Return changes of these tables, as rules see them."""
        return [_TableChange(each, self._sizes) for each in effects]
