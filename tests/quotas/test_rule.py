"""The rule of quotas: whatever changes during a count, the use is what a plain sum over the tables finds."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from headway.errors import QuotaExceeded
from headway.quotas import QUOTA, STATUS_ROOM, Limit, Place, QuotaRule, Use, is_exempt, list_uses, rule_of
from headway.resource import DELETION_TIMESTAMP, FINALIZERS, NAMESPACE, Key, Kind, pb, resource_key
from headway.storage import Backend, Effect, MemoryBackend, ResourceTables, SqliteBackend, TableContent, stored_size
from headway.testing.conformance import KIND, OTHER_KIND, kind_of, put, refused, remove, thing, uid_of
from headway.testing.conformance.quotas import quota

KINDS: Sequence[Kind] = (KIND, OTHER_KIND, ("tenancy", "Namespace"), ("event", "Event"))
PLACES = [
    (partition, namespace, kind)
    for partition in ("default", "p2")
    for namespace in ("", "n1")
    for kind in (("", ""), KIND)
]
MOST = st.none() | st.integers(0, 12)


class Counting(RuleBasedStateMachine):
    """Commits to tables with quotas, and counts that are only a few steps ahead of them.
    Each step is one resource, so that changes come between any two.
    """

    resources = Bundle[tuple[Kind, Key]]("resources")

    def __init__(self) -> None:
        super().__init__()
        self.tables = ResourceTables()
        self.content = TableContent(self.tables, 1)
        self.rule = QuotaRule()
        self.rule.begin(self.content)
        self.everything: dict[tuple[Kind, Key], pb.Resource] = {}
        self.limits: dict[str, Limit] = {}
        self.revision = 0

    @initialize(count=st.integers(0, 6))
    def fill(self, count: int) -> None:
        """Store some resources before any quota."""
        for index in range(count):
            self.commit([(KINDS[index % 2], ("default", "n1", f"r{index}"))], "x" * index)

    def commit(self, places: Sequence[tuple[Kind, Key]], text: str | None) -> None:
        """Store or remove resources as a store would, and compare the decision with a plain one."""
        effects: list[Effect] = []
        for kind, key in dict.fromkeys(places):
            old = self.everything.get((kind, key))
            partition, namespace, name = key
            new = None
            if text is not None:
                new = thing(name, text, partition=partition, namespace=namespace, kind=kind, uid="u")
            if old is not None or new is not None:
                effects.append((kind, key, old, new))
        fits = self.fits(effects)
        try:
            self.rule.claims(self.content.changes(effects))
        except QuotaExceeded:
            assert not fits, "a commit that fits was refused"
            return
        assert fits, "a commit that does not fit was accepted"
        self.apply(effects)

    def apply(self, effects: Sequence[Effect]) -> None:
        self.revision += 1
        for kind, key, _, new in effects:
            if new is None:
                self.tables.remove(kind, key)
                del self.everything[kind, key]
            else:
                new.version = str(self.revision)
                self.tables.put(kind, key, new)
                self.everything[kind, key] = new
        self.rule.follow(self.content.changes(effects))

    def fits(self, effects: Sequence[Effect]) -> bool:
        for limit in self.limits.values():
            mine = [each for each in effects if limit.place.covers(each[0], each[1])]
            grown = [each for each in mine if each[3] is not None]
            before, after = self.use(limit.place), self.use(limit.place, effects)
            creates = any(each[2] is None for each in grown)
            grows = any(
                stored_size(new) > (0 if old is None else stored_size(old)) for *_, old, new in grown if new is not None
            )
            if limit.resources is not None and creates and max(before.resources, limit.resources) < after.resources:
                return False
            if limit.bytes is not None and grows and max(before.bytes, limit.bytes) < after.bytes:
                return False
        return True

    def use(self, place: Place, effects: Sequence[Effect] = ()) -> Use:
        found = dict(self.everything)
        for kind, key, _, new in effects:
            found.pop((kind, key), None)
            if new is not None:
                found[kind, key] = new
        counted = [each for where, each in found.items() if place.covers(*where)]
        return Use(len(counted), sum(map(stored_size, counted)))

    @rule(
        target=resources,
        kind=st.sampled_from(KINDS),
        partition=st.sampled_from(("default", "p2")),
        namespace=st.sampled_from(("n1", "n2", "")),
        name=st.sampled_from("abc"),
        text=st.sampled_from(("", "x" * 20, "x" * 200)),
    )
    def store(self, kind: Kind, partition: str, namespace: str, name: str, text: str) -> tuple[Kind, Key]:
        """Create or replace a resource."""
        self.commit([(kind, (partition, namespace, name))], text)
        return kind, (partition, namespace, name)

    @rule(several=st.lists(resources, min_size=2, max_size=4), text=st.sampled_from(("", "x" * 100)))
    def store_several(self, several: list[tuple[Kind, Key]], text: str) -> None:
        """Write several resources in one commit."""
        self.commit(several, text)

    @rule(where=resources)
    def remove(self, where: tuple[Kind, Key]) -> None:
        """Remove a resource."""
        self.commit([where], None)

    @rule(name=st.sampled_from("qrs"), place=st.sampled_from(PLACES), most=MOST, size=MOST)
    def declare(self, name: str, place: tuple[str, str, Kind], most: int | None, size: int | None) -> None:
        """Create or replace a quota. Its limits may be below its use."""
        partition, namespace, kind = place
        size = None if size is None else size * 100
        resource = quota(name, resources=most, bytes=size, partition=partition, namespace=namespace, kind=kind)
        key = resource_key(resource)
        self.apply([(QUOTA.kind, key, self.everything.get((QUOTA.kind, key)), resource)])
        self.limits[name] = Limit(name, Place(partition, namespace, kind if kind[1] else None), most, size)

    @rule(name=st.sampled_from("qrs"))
    def forget(self, name: str) -> None:
        """Delete a quota."""
        if self.limits.pop(name, None) is not None:
            key = ("", "", name)
            self.apply([(QUOTA.kind, key, self.everything[QUOTA.kind, key], None)])

    @rule(steps=st.integers(1, 4))
    def count(self, steps: int) -> None:
        """Count a little."""
        for _ in range(steps):
            self.rule.count(None)

    @rule()
    def count_all(self) -> None:
        """Count the rest."""
        for limit in self.limits.values():
            assert self.rule.use_of(limit.place) == self.use(limit.place)

    @rule()
    def begin(self) -> None:
        """Begin again, as a store does when it is read again."""
        self.rule.begin(self.content)

    @invariant()
    def what_is_counted_is_right(self) -> None:
        for each in self.rule.uses():
            assert each.use == self.use(each.limit.place)
            assert each.limit == self.limits[each.limit.name]


TestCounting = Counting.TestCase


def test_size_of_a_resource_does_not_depend_on_its_version() -> None:
    """Versions differ between stores, and a copy of a store has the same use."""
    made = thing("a", "x" * 300)
    made.metadata[FINALIZERS] = "f"
    size = stored_size(made)
    for version in ("1", "123456789012345678"):
        made.version = version
        assert stored_size(made) == size
    assert kind_of(made) == KIND


def test_change_at_any_moment_of_a_count_is_counted_once() -> None:
    """Whichever resource changes, before, at or behind the place that the count has reached."""
    places = [(kind, ("default", namespace, name)) for kind in KINDS[:2] for namespace in ("n1", "n2") for name in "ac"]
    added = [(kind, ("default", "n1", "b")) for kind in (*KINDS[:2], ("aaa", "First"), ("zzz", "Last"))]
    for steps in range(12):
        for kind, key in [*places, *added]:
            for text in (None, "x" * 100):
                tables, counted = ResourceTables(), QuotaRule()
                for at in places:
                    tables.put(*at, _made(*at, "x"))
                tables.put(QUOTA.kind, ("", "", "limit"), quota(resources=1, namespace="n1"))
                content = TableContent(tables, 1)
                counted.begin(content)
                for _ in range(steps):
                    counted.count(None)
                old, new = tables.get(kind, key), None if text is None else _made(kind, key, text)
                if new is not None:
                    tables.put(kind, key, new)
                else:
                    tables.remove(kind, key)
                if old is not None or new is not None:
                    counted.follow(content.changes([(kind, key, old, new)]))
                place = Place("default", "n1", None)
                stored = [each for at in {*places, *added} if (each := tables.get(*at)) and place.covers(*at)]
                assert counted.use_of(place) == Use(len(stored), sum(map(stored_size, stored)))


def _made(kind: Kind, key: Key, text: str) -> pb.Resource:
    return thing(key[2], text, partition=key[0], namespace=key[1], kind=kind, uid="u")


@pytest.mark.parametrize(
    ("status_before", "status_after", "same_generation", "marked", "exempt"),
    [
        (0, 0, False, False, False),
        (0, 0, True, False, True),
        (0, 4000, True, False, True),
        (0, 4200, True, False, False),
        (9000, 8000, True, False, True),
        (8000, 9000, True, False, False),
        (0, 4000, False, False, False),
        (0, 4000, False, True, True),
        (0, 4000, True, True, True),
        (0, 9000, False, True, False),
        (0, 9000, True, True, False),
        (9000, 8000, True, True, True),
    ],
)
def test_what_is_never_refused(
    status_before: int, status_after: int, same_generation: bool, marked: bool, exempt: bool
) -> None:
    """Small statuses, statuses that become smaller, migrations (which keep the generation), and marks."""
    old, new = thing("a", "x"), thing("a", "x" * 500, version="v2")
    old.status, new.status = _status(status_before), _status(status_after)
    if same_generation:
        new.generation = old.generation
    if marked:
        new.metadata[DELETION_TIMESTAMP] = "2024-02-02T10:00:00Z"
    assert is_exempt(old, new) is exempt
    assert is_exempt(None, new) is False


def _status(length: int) -> dict[str, pb.Status]:
    return {"w": pb.Status(conditions=[pb.Condition(type="Ready", message="x" * length)])} if length else {}


def _write_cost(quotas: int) -> float:
    """Return the processor time of a changed quota and a write, in a store with a quota for each of many namespaces."""
    tables, counted = ResourceTables(), QuotaRule()
    content = TableContent(tables)
    counted.begin(content)

    def store(kind: Kind, key: Key, new: pb.Resource) -> None:
        changes = content.changes([(kind, key, tables.get(kind, key), new)])
        tables.put(kind, key, new)
        counted.follow(changes)

    def declare(number: int, most: int) -> None:
        limit = quota(f"q{number}", resources=most, namespace=f"n{number}")
        store(QUOTA.kind, resource_key(limit), limit)

    for number in range(quotas):
        declare(number, 10)
    started = time.process_time()
    for number in range(20):
        declare(number, 20)
        key = ("default", f"n{number}", "a")
        made = _made(KIND, key, "x")
        while counted.count([(KIND, key)]):
            pass
        [claim] = counted.claims(content.changes([(KIND, key, None, made)]))
        assert claim.free[0] == 20
        store(KIND, key, made)
    return time.process_time() - started


def test_a_write_costs_the_same_however_many_other_namespaces_have_quotas() -> None:
    few, many = (min(_write_cost(quotas) for _ in range(3)) for quotas in (100, 1600))
    assert many < 4 * few, f"{many / few:.1f} times as much with 16 times as many quotas"


ENGINES_OWN: Sequence[Kind] = (("event", "Event"), ("internal", "Tombstone"), QUOTA.kind)


@pytest.fixture(params=["memory", "sqlite"])
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backend]:
    """Open a store that keeps quotas."""
    opened: Backend = MemoryBackend() if request.param == "memory" else SqliteBackend(tmp_path / "a.db")
    async with opened:
        rule_of(opened)
        yield opened


async def test_deletion_can_always_be_marked_and_ended(backend: Backend) -> None:
    """Marks for deletion, and writes to marked resources, are never refused: no deletion may depend on a quota.
    But a large status of a marked resource needs room, or callers could store without limit in one that they hold.
    """
    held = thing("held")
    held.metadata[FINALIZERS] = "a b"
    await put(backend, held)
    await put(backend, quota(resources=0, bytes=0))

    def marked(finalizers: str, status: int) -> pb.Resource:
        made = thing("held", uid=uid_of(held))
        made.metadata |= {FINALIZERS: finalizers, DELETION_TIMESTAMP: "2024-02-02T10:00:00Z"}
        made.status = _status(status)
        return made

    for finalizers, status in (("a b", 0), ("a b", STATUS_ROOM // 2), ("", STATUS_ROOM // 2)):
        if not finalizers:
            too_large = put(backend, marked("a b", 2 * STATUS_ROOM), held.version)
            await refused(QuotaExceeded, too_large, "a large status of a marked resource")
        version, held = held.version, marked(finalizers, status)
        await put(backend, held, version)
    await remove(backend, held, held.version)


async def test_what_headway_writes_for_itself_is_not_counted(backend: Backend) -> None:
    """Tombstones, events and quotas are never refused. Namespaces count in the quota of their partition."""
    await put(backend, quota(resources=1, bytes=1 << 20))
    await put(backend, thing("n1", kind=NAMESPACE.kind, namespace=""))
    for kind in ENGINES_OWN:
        await put(backend, thing("own", kind=kind))
    [use] = [each.use for each in await list_uses(backend) if each.limit.name == "limit"]
    assert use.resources == 1
    await refused(QuotaExceeded, put(backend, thing("n2", kind=NAMESPACE.kind, namespace="")), "a namespace")
