"""Every oracle finds the run that it is for, and says nothing of one that is well."""

from __future__ import annotations

from collections.abc import Mapping

from headway.resource import Key, Kind, pb
from headway.testing.simulation import _oracles as oracles
from headway.testing.simulation._oracles import Result
from headway.testing.simulation._trace import Committed, Happened, Reconcile, Reconciled, Trace

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


def test_a_read_that_goes_back_is_found() -> None:
    one, other = _reconcile((ACCOUNT, ADA, 7)), _reconcile((ACCOUNT, ADA, 5))
    (found,) = oracles.reads_went_back(_trace(_ended(one), _ended(other)))
    assert str(found) == "reads: accounts in p1 reads Account ada at 5 after it has read it at 7"
    assert oracles.reads_went_back(_trace(_ended(other), _ended(one))) == []
    elsewhere = _reconcile((ACCOUNT, ADA, 5), process="p2")
    assert oracles.reads_went_back(_trace(_ended(one), _ended(elsewhere))) == []


def _committed(revision: int, *, there: bool) -> Committed:
    return Committed(0.0, revision, ACCOUNT, ADA, None, pb.Resource() if there else None, "", 0)


def _reading(*told: int | Committed | Happened) -> list[str]:
    """What is found when a controller reads these versions of Ada, 0 that she isn't there, between these changes."""
    trace = Trace()
    for each in told:
        if isinstance(each, int):
            began = Reconcile(0.0, "p1", "accounts", TEAM, CORE, "", 1, {}, trace=trace.entries)
            began.saw(ACCOUNT, ADA, each, "read")
            trace.add(_ended(began))
        else:
            trace.add(each)
    return [str(each) for each in oracles.reads_went_back(trace)]


def test_what_is_not_seen_though_nobody_deleted_it_is_found() -> None:
    made, changed = _committed(5, there=True), _committed(7, there=True)
    assert _reading(0, made, 0, 5, changed, 5, 7) == []
    assert _reading(made, 5, 0, 5) == ["reads: accounts in p1 reads Account ada as absent after it has read it at 5"]
    assert len(_reading(made, 5, 0, _committed(9, there=False))) == 1


def test_what_comes_back_after_it_was_deleted_is_found() -> None:
    made, deleted, again = _committed(5, there=True), _committed(7, there=False), _committed(9, there=True)
    assert _reading(made, 5, deleted, 5, 0, again, 0, 9) == []
    assert _reading(made, 5, deleted, 0, 5) == [
        "reads: accounts in p1 reads Account ada at 5 after it has read that it was deleted at 7"
    ]
    # Who has read the second one doesn't see the first one's end any more.
    assert len(_reading(made, 5, deleted, again, 9, 0)) == 1
    assert _reading(made, 5, deleted, again, 0, 9) == []


def test_what_a_restored_store_has_lost_may_be_gone() -> None:
    made, restored = _committed(5, there=True), Happened(0.0, "restore(1, 4)", fault=True)
    assert _reading(made, 5, restored, 0) == []
    assert len(_reading(made, 5, 0, restored, 0)) == 1


def test_reads_of_two_reconciles_at_once_are_judged_in_their_order() -> None:
    """One that has read before a change, and ends after another one that has read after it, has read nothing old."""
    trace = Trace()
    slow, quick = (Reconcile(0.0, "p1", "accounts", TEAM, key, "", 1, {}, trace=trace.entries) for key in (CORE, ADA))
    trace.add(slow)
    slow.saw(ACCOUNT, GRACE, 5, "read")
    trace.add(quick)
    quick.saw(ACCOUNT, GRACE, 7, "read")
    trace.add(_ended(quick))
    trace.add(_ended(slow))
    assert oracles.reads_went_back(trace) == []
    slow.saw(ACCOUNT, GRACE, 5, "read")
    assert len(oracles.reads_went_back(trace)) == 1


def test_a_read_behind_the_controllers_own_write_is_found() -> None:
    writer = _reconcile((ACCOUNT, ADA, 5))
    writer.saw(ACCOUNT, ADA, 8, "written")
    late = _reconcile((ACCOUNT, ADA, 5))
    (found,) = oracles.reads_went_back(_trace(_ended(writer), _ended(late)))
    assert "at 5 after it has written it at 8" in str(found)


def test_a_write_of_an_earlier_term_is_found() -> None:
    def commit(term: int, by: str = "accounts", shard: str = "") -> Committed:
        return Committed(0.0, 9, ACCOUNT, ADA, None, None, by, term, shard)

    assert len(oracles.two_writers([commit(2), commit(1)])) == 1
    assert oracles.two_writers([commit(1), commit(2), commit(1, "others"), commit(1, shard="3")]) == []


def test_a_key_that_is_reconciled_twice_at_once_is_found() -> None:
    one, other = _reconcile(), _reconcile()
    assert len(oracles.twice_at_once(_trace(one, other))) == 1
    assert oracles.twice_at_once(_trace(one, _ended(one), other)) == []
    assert oracles.twice_at_once(_trace(one, _reconcile(key=ADA), _reconcile(process="p2"))) == []


def test_what_is_owned_by_nobody_is_found() -> None:
    def stored(uid: str, owner: str = "") -> pb.Resource:
        type = pb.Type(group="staff", group_version="v1", kind="Team")
        owned = pb.Id(uid=owner, name="core", type=type) if owner else None
        return pb.Resource(id=pb.Id(uid=uid, name="x", type=type), owner=owned)

    team, account = stored("1"), stored("2", owner="1")
    assert oracles.orphans({(TEAM, CORE): team, (ACCOUNT, ADA): account}) == []
    assert len(oracles.orphans({(ACCOUNT, ADA): account})) == 1


def test_what_waits_for_what_is_gone_is_found() -> None:
    core, ada = ("accounts", TEAM, CORE), ("accounts", TEAM, ADA)
    (found,) = oracles.left_in_the_queue({core, ada}, {ada}, {})
    assert str(found).startswith("queue: accounts is to reconcile Team core again, which does not exist")
    assert oracles.left_in_the_queue({core}, set(), {(TEAM, CORE): pb.Resource()}) == []
    assert oracles.left_in_the_queue(set(), {core}, {}) == []


def test_ever_new_keys_are_found() -> None:
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


def _result(
    end: Mapping[Key, str], counts: Mapping[tuple[Key, str], int] | None = None, outside: object = None
) -> Result:
    counted = {(ACCOUNT, key, what): count for (key, what), count in (counts or {}).items()}
    return Result(Trace(), {(ACCOUNT, key): text for key, text in end.items()}, counted, outside, ())


def _found(result: Result, *references: Result) -> list[str]:
    return [str(each) for each in oracles.compared(result, references, counts=True)]


def test_another_end_is_found() -> None:
    right = _result({ADA: "one"})
    assert _found(_result({ADA: "one"}), right) == []
    assert _found(_result({ADA: "two"}), right) == ["end state: Account ada is two; without faults: one"]
    assert _found(_result({}), right) == ["end state: Account ada is absent; without faults: one"]
    assert (
        "end state: Account grace is more; without faults: absent"
        in _found(_result({ADA: "one", GRACE: "more"}), right)[:1]
    )


def test_what_one_run_without_faults_did_is_right() -> None:
    assert _found(_result({ADA: "two"}), _result({ADA: "one"}), _result({ADA: "two"})) == []


def test_where_runs_without_faults_differ_only_what_is_missing_is_found() -> None:
    one, other = _result({ADA: "one"}, outside={"a": ""}), _result({ADA: "two"}, outside={"b": ""})
    assert _found(_result({ADA: "three"}, outside={"c": ""}), one, other) == []
    assert _found(_result({}, outside={"c": "", "d": ""}), one, other) == [
        "end state: Account ada is absent; without faults: one",
        "outside: the outside world is {'c': '', 'd': ''}; without faults: {'a': ''}",
    ]
    assert oracles.differing([one, other]) == [
        "Account ada is one, or two, without faults",
        "the outside world is {'a': ''}, or {'b': ''}, without faults",
    ]
    assert oracles.differing([one, one]) == []


def test_where_runs_without_faults_differ_what_they_say_alike_is_compared() -> None:
    one = _result({ADA: "key='k1', ready"}, outside={"db": (3, "k1")})
    other = _result({ADA: "key='k2', ready"}, outside={"db": (3, "k2")})
    assert _found(_result({ADA: "key='k3', ready"}, outside={"db": (3, "k3")}), one, other) == []
    # What is shaped otherwise can't be told apart from what is another each time.
    assert _found(_result({ADA: "key='k-3', ready"}, outside={"db": (3, "k3")}), one, other) == []
    assert _found(_result({ADA: "key='k3', broken"}, outside={"db": (5, "k3")}), one, other) == [
        "end state: Account ada is key='k3', broken; without faults: key='k1', ready",
        "outside: the outside world is {'db': (5, 'k3')}; without faults: {'db': (3, 'k1')}",
    ]


def test_lists_of_the_world_outside_are_counted_where_their_names_differ() -> None:
    one, other = _result({}, outside={"disks": ["a"], "made": 1}), _result({}, outside={"disks": ["b"], "made": 1})
    assert _found(_result({}, outside={"disks": ["c"], "made": 1}), one, other) == []
    assert len(_found(_result({}, outside={"disks": ["c", "c"], "made": 2}), one, other)) == 1


def test_a_creation_too_many_is_found() -> None:
    once = _result({ADA: "one"}, {(ADA, "created"): 1})
    assert _found(once, once) == []
    assert _found(_result({ADA: "one"}, {(ADA, "created"): 2}), once) == [
        "counts: Account ada was created twice; without faults: once"
    ]


def test_what_users_who_wait_see_is_right_too() -> None:
    """Who deletes Ada before she is made sees her never; when that is late, by a fault, she is made and deleted."""
    hasty = _result({GRACE: "one"}, outside=[])
    slow = _result({GRACE: "two"}, {(ADA, "created"): 1, (ADA, "deleted"): 1}, outside=["ada"])
    assert oracles.compared(slow, [hasty], [slow], counts=True) == []
    assert [each.oracle for each in oracles.compared(slow, [hasty], counts=True)] == [
        "end state",
        "counts",
        "counts",
        "outside",
    ]
    twice = _result({ADA: "one"}, {(ADA, "created"): 2, (ADA, "deleted"): 1}, outside=[])
    assert [str(each) for each in oracles.compared(twice, [hasty], [slow], counts=True)] == [
        "end state: Account ada is one; without faults: absent",
        "end state: Account grace is absent; without faults: one",
        "counts: Account ada was created twice; without faults: once",
    ]


def test_where_names_differ_they_are_counted() -> None:
    one, other = _result({ADA: "x"}, {(ADA, "created"): 1}), _result({GRACE: "x"}, {(GRACE, "created"): 1})
    both = _result({ADA: "x", GRACE: "x"}, {(ADA, "created"): 1, (GRACE, "created"): 1})
    assert _found(other, one, other) == []
    assert _found(both, one, other) == [
        "end state: there are 2 Accounts; without faults: 1",
        "counts: Accounts were created twice; without faults: once",
    ]


def test_where_names_differ_what_they_say_is_compared() -> None:
    one = _result({ADA: "x", CORE: "y"})
    other = _result({ADA: "x", GRACE: "y"})
    assert _found(_result({CORE: "x", GRACE: "y"}), one, other) == []
    assert _found(_result({CORE: "x", GRACE: "x"}), one, other) == [
        "end state: there is an extra Account that is x; without faults: x, or y"
    ]
    named = _result({ADA: "x", GRACE: "grace"})
    assert _found(_result({CORE: "core", GRACE: "x"}), one, named) == []


def test_another_world_outside_is_found() -> None:
    assert _found(_result({}, outside=[1]), _result({}, outside=[1])) == []
    assert _found(_result({}, outside=[1, 1]), _result({}, outside=[1])) == [
        "outside: the outside world is [1, 1]; without faults: [1]"
    ]
