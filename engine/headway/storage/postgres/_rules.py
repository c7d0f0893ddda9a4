"""The rules of commits on a database that other engines write to, as well.

A transaction holds the lock of the store. Before it asks the rules, it lets them follow what others have committed
since, from the history. So their answer is about what is committed, and no engine exceeds a limit with another.

The rules ask for contents in the middle of a step, and a database does not answer at once. So what they may ask for is
read before: all sizes, at the beginning and whenever the history no longer has what they have not followed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headway.resource import Key, Kind, pb, resource_key
from headway.storage._rules import Change, Rules, Stored
from headway.storage.postgres import _schema as sql
from headway.storage.postgres._connection import Connection, Rows, Statement, Texts
from headway.storage.postgres._history import PAGE_CHANGES, is_cut, resource_from
from headway.storage.postgres._requests import Logged


class Sizes(Stored):
    """The content of a store at one revision, as far as rules ask for it.

    Args:
        telling: the resources of the kinds that tell the rules what to demand.
        sizes: by kind, partition and namespace, the number of resources and of their bytes.
    """

    def __init__(
        self, telling: dict[Kind, list[pb.Resource]], sizes: dict[Kind, dict[tuple[str, str], tuple[int, int]]]
    ) -> None:
        self._telling = telling
        self._sizes = sizes

    def next_kind(self, kind: Kind) -> Kind | None:
        return min((each for each in self._sizes if each > kind), default=None)

    def every(self, kind: Kind) -> Iterable[pb.Resource]:
        return self._telling.get(kind, ())

    def measure(self, kind: Kind, partition: str, namespace: str, after: Key | None) -> tuple[int, int, Key | None]:  # noqa: ARG002  # it counts all at once
        found = [
            size
            for (in_partition, in_namespace), size in self._sizes.get(kind, {}).items()
            if in_partition == partition and namespace in ("", in_namespace)
        ]
        return sum(count for count, _ in found), sum(size for _, size in found), None


class KnownChange:
    """A change of a commit, as rules see it."""

    def __init__(
        self, kind: Kind, key: Key, new: pb.Resource | None, old: pb.Resource | None, resources: int, bytes: int
    ) -> None:
        self.kind = kind
        self.key = key
        self.new = new
        self.old = old
        self.resources = resources
        self.bytes = bytes


class RulesFollower:
    """Keeps the rules of a store up to date with what is committed.

    Args:
        rules: the rules.
        statements: the statements of the store's schema.
    """

    def __init__(self, rules: Rules, statements: sql.Statements) -> None:
        self.rules = rules
        self._sql = statements
        # The revision up to which the rules have followed, in the session of that history.
        self._at: tuple[str, int] = ("", 0)

    def lose(self) -> None:
        """Note that what the rules have followed may not be what is committed."""
        self._at = ("", 0)

    @property
    def wanted(self) -> bool:
        """True if there is any rule."""
        return bool(self.rules.kinds)

    def asks(self, head: int) -> list[Statement]:
        """Return the statement for what the rules have not followed. Run it in a transaction that has the lock.

        There is none if they have followed nothing: they begin with what is stored, and need no history. And there is
        none if they have followed all that this engine knows of.

        Args:
            head: the last revision that this engine knows of.
        """
        return [self._since(self._at[1])] if self._at[0] and head > self._at[1] else []

    def _since(self, after: int) -> Statement:
        bounds = {"most": PAGE_CHANGES, "bytes": sql.ANSWER_BYTES}
        return self._sql.since, {**self._of(), "after": after, "active": self.rules.active, **bounds}

    async def catch_up(
        self, connection: Connection, session: str, revision: int, floor: int, since: Rows | None
    ) -> None:
        """Let the rules follow up to a revision, which is the last one, in a transaction that has the lock.

        Args:
            floor: history is compacted up to there.
            since: the rows of `asks`; None without it. If they are not all, this asks for the others.
        """
        follows = self.rules.current and self._at[0] == session and floor <= self._at[1]
        if follows and since is None and revision > self._at[1]:
            [since] = await connection.ask(self._since(self._at[1]))
        since = since or []
        while follows and not any((row[1], row[2]) in self.rules.kinds for row in since):
            self.rules.follow([self._followed(*row) for row in since])
            if not is_cut(PAGE_CHANGES, [(row[5], None) for row in since]):
                break
            [since] = await connection.ask(self._since(since[-1][0]))
        else:
            await self._begin(connection)
        self._at = (session, revision)

    async def _begin(self, connection: Connection) -> None:
        telling = await self._telling(connection)
        self.rules.begin(Sizes(telling, {}))
        if self.rules.active:
            sizes: dict[Kind, dict[tuple[str, str], tuple[int, int]]] = {}
            [rows] = await connection.ask((self._sql.sizes_within, {}))
            for group, kind, partition, namespace, count, size in rows:
                sizes.setdefault((group, kind), {})[partition, namespace] = (count, size)
            self.rules.begin(Sizes(telling, sizes))
            # All at once: the content is of this revision, and what follows is added.
            while self.rules.count():
                pass

    def _of(self) -> dict[str, Texts]:
        kinds = list(self.rules.kinds)
        return {"groups": Texts(group for group, _ in kinds), "kinds": Texts(kind for _, kind in kinds)}

    async def _telling(self, connection: Connection) -> dict[Kind, list[pb.Resource]]:
        [rows] = await connection.ask((self._sql.of_kinds, self._of()))
        found: dict[Kind, list[pb.Resource]] = {}
        for group, kind, version, body in rows:
            found.setdefault((group, kind), []).append(resource_from(version, body))
        return found

    def _followed(
        self, _: int, group: str, kind: str, deleted: bool, version: int, body: bytes, added: int, grown: int
    ) -> Change:
        resource = resource_from(version, body)
        return KnownChange((group, kind), resource_key(resource), None if deleted else resource, None, added, grown)

    def charge(self, changes: Sequence[Logged], stored: dict[tuple[Kind, Key], pb.Resource]) -> None:
        """Ask the rules about a commit, and let them follow it. Raises CommitRefused, and then changes nothing.

        Args:
            changes: what it changes.
            stored: the stored resources, as far as they are known.
        """
        # One change for each resource, also if it is now stored as another version of its kind.
        replaced = {each.place: each.replaced for each in reversed(changes)}
        puts = {each.place: each.put for each in changes}
        asked = [
            KnownChange(
                *place,
                None if put is None else put.resource,
                stored.get(place),
                (put is not None) - (replaced[place] is not None),
                (0 if put is None else len(put.body)) - (0 if (old := replaced[place]) is None else old.size),
            )
            for place, put in puts.items()
        ]
        self.rules.claims(asked)
        self.rules.follow(asked)

    def made(self, session: str, before: int, revision: int, changed: Iterable[tuple[Kind, Key]]) -> None:
        """Note that a transaction is stored, up to a revision, with all that the rules have followed.

        Args:
            before: the last revision before it. A transaction that changes no resources has not caught up with that.
        """
        if self._at == (session, before):
            # A new quota needs what is stored now.
            self._at = ("", 0) if any(kind in self.rules.kinds for kind, _ in changed) else (session, revision)
