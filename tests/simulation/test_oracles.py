"""Every oracle finds the runs that it is for, and accepts correct runs."""

from __future__ import annotations

from collections.abc import Mapping

from headway.resource import Key, Kind, Within, pb
from headway.testing.simulation import Committed, Happened, Reconcile, Reconciled, Result, Trace, oracles
from headway.testing.simulation.oracles import compared, differing, random_parts

TEAM, ACCOUNT = ("staff", "Team"), ("staff", "Account")
CORE, ADA, GRACE = (("default", "default", name) for name in ("core", "ada", "grace"))


def _reconcile(*reads: tuple[Kind, Key, int], process: str = "p1", key: Key = CORE) -> Reconcile:
    made = Reconcile(0.0, process, "accounts", TEAM, key, "started", 1, {})
    for each in reads:
        made.saw(*each, "read")
    return made


def _trace(*entries: Reconcile | Reconciled) -> Trace:
    trace = Trace()
    for entry in entries:
        trace.add(entry)
    return trace


def _ended(began: Reconcile) -> Reconciled:
    return Reconciled(0.0, began, "done")


def test_read_that_goes_back_is_found() -> None:
    one, other = _reconcile((ACCOUNT, ADA, 7)), _reconcile((ACCOUNT, ADA, 5))
    (found,) = oracles.reads_rolled_back(_trace(_ended(one), _ended(other)))
    assert str(found) == "reads: accounts in p1 reads Account ada at 5 after it has read it at 7"
    assert oracles.reads_rolled_back(_trace(_ended(other), _ended(one))) == []
    elsewhere = _reconcile((ACCOUNT, ADA, 5), process="p2")
    assert oracles.reads_rolled_back(_trace(_ended(one), _ended(elsewhere))) == []


def _committed(revision: int, *, there: bool) -> Committed:
    return Committed(0.0, revision, ACCOUNT, ADA, None, pb.Resource() if there else None, "", 0)


def _reading(*events: int | Committed | Happened) -> list[str]:
    """Return the findings for a controller that reads these versions of Ada (0: absent) between these changes."""
    trace = Trace()
    for each in events:
        if isinstance(each, int):
            began = Reconcile(0.0, "p1", "accounts", TEAM, CORE, "", 1, {}, trace=trace.entries)
            began.saw(ACCOUNT, ADA, each, "read")
            trace.add(_ended(began))
        else:
            trace.add(each)
    return [str(each) for each in oracles.reads_rolled_back(trace)]


def test_missing_resource_that_was_not_deleted_is_found() -> None:
    made, changed = _committed(5, there=True), _committed(7, there=True)
    assert _reading(0, made, 0, 5, changed, 5, 7) == []
    assert _reading(made, 5, 0, 5) == ["reads: accounts in p1 reads Account ada as absent after it has read it at 5"]
    assert len(_reading(made, 5, 0, _committed(9, there=False))) == 1


def test_resource_that_returns_after_its_deletion_is_found() -> None:
    made, deleted, again = _committed(5, there=True), _committed(7, there=False), _committed(9, there=True)
    assert _reading(made, 5, deleted, 5, 0, again, 0, 9) == []
    assert _reading(made, 5, deleted, 0, 5) == [
        "reads: accounts in p1 reads Account ada at 5 after it has read that it was deleted at 7"
    ]
    # A reader of the second resource cannot see the deletion of the first one.
    assert len(_reading(made, 5, deleted, again, 9, 0)) == 1
    assert _reading(made, 5, deleted, again, 0, 9) == []


def test_resource_lost_by_a_restored_store_may_be_missing() -> None:
    made, restored = _committed(5, there=True), Happened(0.0, "restore(1, 4)", fault=True)
    assert _reading(made, 5, restored, 0) == []
    assert len(_reading(made, 5, 0, restored, 0)) == 1


GOLD = Within(metadata=(("tier", "gold"),))


def _tiered(revision: int, tier: str) -> Committed:
    return Committed(0.0, revision, ACCOUNT, ADA, None, pb.Resource(metadata={"tier": tier}), "", 0)


def _reading_gold(*events: int | Committed) -> list[str]:
    """Return the findings for a controller whose cache has the golden accounts, as `_reading` does."""
    trace = Trace()
    for each in events:
        if isinstance(each, int):
            began = Reconcile(0.0, "p1", "accounts", TEAM, CORE, "", 1, {}, trace=trace.entries)
            began.saw(ACCOUNT, ADA, each, "read", GOLD)
            trace.add(_ended(began))
        else:
            trace.add(each)
    return [str(each) for each in oracles.reads_rolled_back(trace)]


def test_resource_in_a_scope_that_is_missing_is_found() -> None:
    made, left, back = _tiered(5, "gold"), _tiered(7, "free"), _tiered(9, "gold")
    assert _reading_gold(made, 5, left, 5, 0, back, 0, 9) == []
    assert _reading_gold(made, 5, 0) == ["reads: accounts in p1 reads Account ada as absent after it has read it at 5"]
    assert _reading_gold(made, 5, left, back, 9, 0) == [
        "reads: accounts in p1 reads Account ada as absent after it has read it at 9"
    ]


def test_resource_that_has_left_a_scope_and_is_read_is_found() -> None:
    made, left = _tiered(5, "gold"), _tiered(7, "free")
    assert _reading_gold(made, 5, left, 0, 5) == [
        "reads: accounts in p1 reads Account ada at 5 after it has read that it was deleted or had left the scope at 7"
    ]
    assert _reading_gold(made, 5, left, 7) == [
        "reads: accounts in p1 reads Account ada at 7, which is outside the scope of its cache"
    ]


def test_own_write_that_stays_in_the_scope_is_not_absent() -> None:
    trace = Trace()
    trace.add(_tiered(5, "gold"))
    writer = Reconcile(0.0, "p1", "accounts", TEAM, CORE, "", 1, {}, trace=trace.entries)
    writer.saw(ACCOUNT, ADA, 5, "written")
    writer.saw(ACCOUNT, ADA, 0, "read", GOLD)
    trace.add(_ended(writer))
    assert len(oracles.reads_rolled_back(trace)) == 1


def test_concurrent_reads_are_judged_in_their_order() -> None:
    """A reconcile that reads before a change and ends after one that reads behind it has read nothing stale."""
    trace = Trace()
    slow, quick = (Reconcile(0.0, "p1", "accounts", TEAM, key, "", 1, {}, trace=trace.entries) for key in (CORE, ADA))
    trace.add(slow)
    slow.saw(ACCOUNT, GRACE, 5, "read")
    trace.add(quick)
    quick.saw(ACCOUNT, GRACE, 7, "read")
    trace.add(_ended(quick))
    trace.add(_ended(slow))
    assert oracles.reads_rolled_back(trace) == []
    slow.saw(ACCOUNT, GRACE, 5, "read")
    assert len(oracles.reads_rolled_back(trace)) == 1


def test_read_behind_the_controllers_own_write_is_found() -> None:
    writer = _reconcile((ACCOUNT, ADA, 5))
    writer.saw(ACCOUNT, ADA, 8, "written")
    late = _reconcile((ACCOUNT, ADA, 5))
    (found,) = oracles.reads_rolled_back(_trace(_ended(writer), _ended(late)))
    assert "at 5 after it has written it at 8" in str(found)


def test_write_of_an_earlier_term_is_found() -> None:
    def commit(term: int, by: str = "accounts", shard: str = "") -> Committed:
        return Committed(0.0, 9, ACCOUNT, ADA, None, None, by, term, shard)

    assert len(oracles.two_writers([commit(2), commit(1)])) == 1
    assert oracles.two_writers([commit(1), commit(2), commit(1, "others"), commit(1, shard="3")]) == []


def test_orphan_is_found() -> None:
    def stored(uid: str, owner: str = "") -> pb.Resource:
        type = pb.Type(group="staff", group_version="v1", kind="Team")
        owned = pb.Id(uid=owner, name="core", type=type) if owner else None
        return pb.Resource(id=pb.Id(uid=uid, name="x", type=type), owner=owned)

    team, account = stored("1"), stored("2", owner="1")
    assert oracles.orphans({(TEAM, CORE): team, (ACCOUNT, ADA): account}) == []
    assert len(oracles.orphans({(ACCOUNT, ADA): account})) == 1


def test_growing_number_of_new_keys_is_found() -> None:
    def result(*keys: Key, there: tuple[Key, ...] = ()) -> Result:
        trace = _trace(*(_reconcile(key=key) for key in keys))
        for key in there:
            trace.add(Committed(0.0, 9, TEAM, key, None, pb.Resource(), "", 0))
        return Result(trace, {}, {}, None, ())

    once = result(CORE, CORE)
    assert _found(result(ADA), once) == []
    assert _found(result(CORE, ADA, there=(ADA,)), once) == []
    assert _found(result(CORE, ADA), once) == [
        "queue: accounts was to reconcile 2 Teams that never existed; without faults: 1"
    ]


def test_key_of_a_resource_that_a_fault_prevented_is_not_new() -> None:
    """It exists in the run without faults, where its own creation enqueues it."""
    without_faults = Result(_trace(_reconcile(key=CORE), _reconcile(key=ADA)), {}, {}, None, ())
    without_faults.trace.add(Committed(0.0, 9, TEAM, ADA, None, pb.Resource(), "", 0))
    prevented = Result(_trace(_reconcile(key=CORE), _reconcile(key=ADA)), {}, {}, None, ())
    assert _found(prevented, without_faults) == []


def _result(
    end: Mapping[Key, str], counts: Mapping[tuple[Key, str], int] | None = None, outside: object = None
) -> Result:
    counted = {(ACCOUNT, key, what): count for (key, what), count in (counts or {}).items()}
    stored = {(ACCOUNT, key): text for key, text in end.items()}
    contents = {place: {"login": text} for place, text in stored.items()}
    return Result(Trace(), stored, counted, outside, (), contents=contents)


def _found(result: Result, *references: Result) -> list[str]:
    """Return the findings. Fields that differ between the first two references count as random."""
    allowed = random_parts(*references[:2]) if len(references) > 1 else None
    return [str(each) for each in compared(result, references, counts=True, allowed=allowed)]


def test_different_end_state_is_found() -> None:
    right = _result({ADA: "one"})
    assert _found(_result({ADA: "one"}), right) == []
    assert _found(_result({ADA: "two"}), right) == ["end state: Account ada is two; without faults: one"]
    assert _found(_result({}), right) == ["end state: Account ada is absent; without faults: one"]
    assert (
        "end state: Account grace is more; without faults: absent"
        in _found(_result({ADA: "one", GRACE: "more"}), right)[:1]
    )


def test_result_of_one_faultless_run_is_accepted() -> None:
    assert _found(_result({ADA: "two"}), _result({ADA: "one"}), _result({ADA: "two"})) == []


def test_only_missing_resources_are_found_if_faultless_runs_differ() -> None:
    one, other = _result({ADA: "one"}, outside={"a": ""}), _result({ADA: "two"}, outside={"b": ""})
    assert _found(_result({ADA: "three"}, outside={"c": ""}), one, other) == []
    assert _found(_result({}, outside={"c": "", "d": ""}), one, other) == [
        "end state: Account ada is absent; without faults: one",
        "outside: the outside world is {'c': '', 'd': ''}; without faults: {'a': ''}",
    ]
    assert differing([one, other]) == [
        "Account ada is one, or two, without faults",
        "the outside world is {'a': ''}, or {'b': ''}, without faults",
    ]
    assert differing([one, one]) == []


def test_common_content_is_compared_if_faultless_runs_differ() -> None:
    one = _result({ADA: "key='k1', ready"}, outside={"db": (3, "k1")})
    other = _result({ADA: "key='k2', ready"}, outside={"db": (3, "k2")})
    assert _found(_result({ADA: "key='k3', ready"}, outside={"db": (3, "k3")}), one, other) == []
    # A text of another form may also be a value that is new in each run.
    assert _found(_result({ADA: "key='k-3', ready"}, outside={"db": (3, "k3")}), one, other) == []
    assert _found(_result({ADA: "key='k3', broken"}, outside={"db": (5, "k3")}), one, other) == [
        "end state: Account ada is key='k3', broken; without faults: key='k1', ready",
        "outside: the outside world is {'db': (5, 'k3')}; without faults: {'db': (3, 'k1')}",
    ]


def test_outside_lists_are_counted_if_their_names_differ() -> None:
    one, other = _result({}, outside={"disks": ["a"], "made": 1}), _result({}, outside={"disks": ["b"], "made": 1})
    assert _found(_result({}, outside={"disks": ["c"], "made": 1}), one, other) == []
    assert len(_found(_result({}, outside={"disks": ["c", "c"], "made": 2}), one, other)) == 1


def test_extra_creation_is_found() -> None:
    once = _result({ADA: "one"}, {(ADA, "created"): 1})
    assert _found(once, once) == []
    assert _found(_result({ADA: "one"}, {(ADA, "created"): 2}), once) == [
        "counts: Account ada was created twice; without faults: once"
    ]


def test_states_seen_by_waiting_users_are_accepted() -> None:
    """A user that deletes Ada before she is created never sees her.

    If a fault delays the deletion, she is created and deleted.
    """
    hasty = _result({GRACE: "one"}, outside=[])
    slow = _result({GRACE: "two"}, {(ADA, "created"): 1, (ADA, "deleted"): 1}, outside=["ada"])
    assert compared(slow, [hasty], [slow], counts=True) == []
    assert [each.oracle for each in compared(slow, [hasty], counts=True)] == [
        "end state",
        "outside",
        "counts",
        "counts",
    ]
    twice = _result({ADA: "one"}, {(ADA, "created"): 2, (ADA, "deleted"): 1}, outside=[])
    assert [str(each) for each in compared(twice, [hasty], [slow], counts=True)] == [
        "end state: Account ada is one; without faults: absent",
        "end state: Account grace is absent; without faults: one",
        "counts: Account ada was created twice; without faults: once",
    ]


def test_resources_are_counted_if_their_names_differ() -> None:
    one, other = _result({ADA: "x"}, {(ADA, "created"): 1}), _result({GRACE: "x"}, {(GRACE, "created"): 1})
    both = _result({ADA: "x", GRACE: "x"}, {(ADA, "created"): 1, (GRACE, "created"): 1})
    assert _found(other, one, other) == []
    assert _found(both, one, other) == [
        "end state: there are 2 Accounts; without faults: 1",
        "counts: Accounts were created twice; without faults: once",
    ]


def test_contents_are_compared_if_names_differ() -> None:
    one = _result({ADA: "x", CORE: "y"})
    other = _result({ADA: "x", GRACE: "y"})
    assert _found(_result({CORE: "x", GRACE: "y"}), one, other) == []
    assert _found(_result({CORE: "x", GRACE: "x"}), one, other) == [
        "end state: there is an extra Account that is login x; without faults: login x, or login y"
    ]
    named = _result({ADA: "x", GRACE: "grace"})
    assert _found(_result({CORE: "core", GRACE: "x"}), one, named) == []


def test_different_outside_world_is_found() -> None:
    assert _found(_result({}, outside=[1]), _result({}, outside=[1])) == []
    assert _found(_result({}, outside=[1, 1]), _result({}, outside=[1])) == [
        "outside: the outside world is [1, 1]; without faults: [1]"
    ]
