"""Limits on calls: their fields, what they apply to, and how they follow the access file. Without a clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from headway.access import Access, Authorizer, Limit, Policy, add_token, entry, new_token, read_access
from headway.access._limiter import Counted, Limiter, Refused
from headway.errors import InvalidArgument, ManifestError

TEXT = """\
policies:
  - name: operators
    rules: []
limits:
  - name: reads
    categories: [read, watch]
    per: [caller]
    per_second: 50
    burst: 100
  - name: slow-writes
    categories: [write]
    per: []
    per_second: 0.5
    burst: 1
    policies: [operators]
    partition: sales
    namespace: ''
"""
READS = Limit(name="reads", categories=["read"], per=["caller"], per_second=1, burst=2)
CALL = Counted("read", "one", False, ("operators",), "sales", "east")


def made(**fields: Any) -> Limit:
    return replace(READS, **fields)


def accepted(limiter: Limiter, calls: Sequence[Counted], now: float = 0.0) -> list[bool]:
    return [limiter.spend([call], now) is None for call in calls]


def test_file_contains_limits() -> None:
    access = read_access(TEXT)
    assert list(access.limits.values()) == [
        Limit(name="reads", categories=["read", "watch"], per=["caller"], per_second=50, burst=100),
        Limit(
            name="slow-writes",
            categories=["write"],
            per=[],
            per_second=0.5,
            burst=1,
            policies=["operators"],
            partition="sales",
            namespace="",
        ),
    ]


def test_there_are_no_limits_by_default() -> None:
    assert not read_access("policies: []").limits
    assert not Authorizer(Access()).limiter


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("name: Reads", "name 'Reads' "),
        ("categories: [reed]", "categories: 'reed' is not one of read, write, watch; did you mean 'read'?"),
        ("categories: []", "categories is empty: use any of read, write, watch"),
        ("categories: read", "expected a list, got a scalar"),
        ("per: [token]", "per: 'token' is not one of caller, partition, namespace"),
        ("per_second: 0", "per_second 0 must be a number of calls from 0.0001 to 1000000, such as 50 or 0.5"),
        ("per_second: -5", "per_second -5 must be a number of calls from 0.0001 to 1000000, such as 50 or 0.5"),
        ("per_second: many", "per_second 'many' must be a number of calls from 0.0001 to 1000000, such as 50 or 0.5"),
        ("per_second: nan", "per_second 'nan' must be a number of calls from 0.0001 to 1000000, such as 50 or 0.5"),
        ("per_second: 9000000", "per_second 9000000 must be a number of calls from 0.0001 to 1000000"),
        ("burst: 0", "burst 0 must be a whole number of calls from 1 to 1000000, such as 100"),
        ("burst: 1.5", "burst 1.5 must be a whole number of calls from 1 to 1000000, such as 100"),
        ("policies: [operator]", "policy 'operator' not found; did you mean 'operators'?"),
        ("policies: []", "policies is empty: name a policy, or leave policies out to count the calls of every caller"),
        ("partition: Sales", "partition 'Sales' "),
        ("rate: 5", "unknown field 'rate'"),
    ],
)
def test_n7_bad_limit_is_refused_with_its_field_its_value_and_what_is_right(line: str, problem: str) -> None:
    """A server does not start with such a file, and one that is running keeps the limits that it has."""
    fields = {"name": "reads", "categories": "[read]", "per": "[]", "per_second": "1", "burst": "1"}
    field, _, value = line.partition(": ")
    written = "\n    ".join(f"{name}: {given}" for name, given in {**fields, field: value}.items())
    with pytest.raises(ManifestError) as refused:
        read_access(f"policies:\n  - name: operators\n    rules: []\nlimits:\n  - {written}\n")
    (found,) = refused.value.problems
    assert problem in found.message
    assert found.path.startswith("limits[0]")
    assert found.line >= 5


@pytest.mark.parametrize("field", ["name", "categories", "per", "per_second", "burst"])
def test_field_that_decides_whom_a_limit_spares_is_required(field: str) -> None:
    fields = {"name": "reads", "categories": "[read]", "per": "[]", "per_second": "1", "burst": "1"}
    del fields[field]
    written = "\n    ".join(f"{name}: {given}" for name, given in fields.items())
    with pytest.raises(ManifestError, match=f"{field} is required here"):
        read_access(f"limits:\n  - {written}\n")


def test_names_of_limits_are_unique_and_their_policies_exist() -> None:
    with pytest.raises(ManifestError, match="duplicate limit 'reads': keep one of the two, or rename one"):
        read_access(TEXT.replace("slow-writes", "reads"))
    with pytest.raises(InvalidArgument, match="limits: duplicate name 'reads'"):
        Access(limits=[READS, made(burst=3)])
    with pytest.raises(InvalidArgument, match="limit reads: policies: policy 'nobody' not found"):
        Access([Policy("some", [])], limits=[made(policies=["nobody"])])
    with pytest.raises(InvalidArgument, match=r"per_second inf must be a number.*burst True must be a whole number"):
        made(burst=True, per_second=float("inf"))


def test_adding_a_token_keeps_the_limits(tmp_path: Any) -> None:
    path = tmp_path / "access.yaml"
    path.write_text(TEXT + "tokens:\n")
    path.chmod(0o600)
    _, token = new_token(["operators"])
    add_token(path, token)
    assert path.read_text() == TEXT + "tokens:\n" + entry(token)


def test_n7_each_caller_has_a_bucket_of_its_own() -> None:
    limiter = Limiter([READS])
    other = CALL._replace(caller="other")
    assert accepted(limiter, [CALL, CALL, CALL, other, other, other]) == [True, True, False, True, True, False]
    exceeded = limiter.spend([CALL], 0.25)
    assert exceeded is not None
    assert exceeded.seconds == 0.75
    assert limiter.spend([CALL], 1.0) is None


def test_caller_without_a_token_shares_no_bucket_with_one_that_has_its_name() -> None:
    limiter = Limiter([made(burst=1)])
    assert accepted(limiter, [CALL, CALL._replace(anonymous=True)]) == [True, True]


@pytest.mark.parametrize(
    ("per", "other", "shared"),
    [
        ([], CALL._replace(caller="other", partition="x", anonymous=True), True),
        (["partition"], CALL._replace(caller="other", namespace="west", anonymous=True), True),
        (["partition"], CALL._replace(partition="support"), False),
        (["namespace"], CALL._replace(partition="support"), False),
        (["namespace"], CALL._replace(caller="other"), True),
        (["caller", "partition"], CALL._replace(caller="other"), False),
        (["caller", "partition"], CALL._replace(namespace="west"), True),
    ],
)
def test_n7_bucket_is_shared_by_what_per_does_not_tell_apart(per: list[str], other: Counted, shared: bool) -> None:
    limiter = Limiter([made(per=per, burst=1)])
    assert accepted(limiter, [CALL, other]) == [True, not shared]


@pytest.mark.parametrize(
    ("fields", "applies"),
    [
        ({"categories": ["write", "watch"]}, False),
        ({"policies": ["operators", "others"]}, True),
        ({"policies": ["others"]}, False),
        ({"partition": "sales"}, True),
        ({"partition": "support"}, False),
        ({"partition": ""}, False),
        ({"namespace": "east"}, True),
        ({"namespace": "west"}, False),
    ],
)
def test_limit_counts_only_calls_that_it_names(fields: dict[str, Any], applies: bool) -> None:
    limiter = Limiter([made(**fields, burst=1)])
    assert accepted(limiter, [CALL, CALL]) == [True, not applies]


def test_call_on_all_partitions_is_counted_as_a_partition_of_its_own() -> None:
    everything = CALL._replace(partition="*", namespace="*")
    limiter = Limiter([made(per=["partition"], burst=1), made(name="sales", partition="sales", per=[], burst=1)])
    assert accepted(limiter, [CALL, everything, everything]) == [True, True, False]


def test_call_takes_a_token_of_each_limit_or_of_none() -> None:
    """A caller that one limit refuses does not use up another one."""
    limiter = Limiter([made(per=[], burst=3), made(name="narrow", burst=1, per_second=0.1)])
    assert accepted(limiter, [CALL, CALL, CALL, CALL]) == [True, False, False, False]
    exceeded = limiter.spend([CALL], 0.0)
    assert exceeded is not None
    assert (exceeded.limit.name, exceeded.seconds) == ("narrow", 10.0)
    others = [CALL._replace(caller=name) for name in "abc"]
    assert accepted(limiter, others) == [True, True, False]


def test_call_on_several_places_takes_a_token_of_each_or_of_none() -> None:
    """A subscription cannot evade the limit of a place by naming another one, too. A shared bucket counts it once."""
    west = CALL._replace(namespace="west")
    limiter = Limiter([made(per=["namespace"], burst=1), made(name="all", per=[], burst=3)])
    assert limiter.spend([west], 0.0) is None
    assert limiter.spend([CALL, west], 0.0) is not None
    assert limiter.spend([CALL], 0.0) is None
    assert limiter.spend([CALL, west], 1.0) is None
    assert accepted(limiter, [CALL, west], 1.0) == [False, False]
    assert limiter.spend([CALL._replace(namespace="north")], 1.0) is None


def test_call_on_several_places_that_share_a_bucket_leaves_no_debt_in_it() -> None:
    """There are more places than buckets. The next caller waits for one token, and not for one of each place."""
    limiter = Limiter([made(per=["namespace"], burst=1)])
    assert all(accepted(limiter, [CALL._replace(namespace=f"n-{number}") for number in range(10_000)]))
    further = [CALL._replace(namespace=name) for name in ("east", "west", "north")]
    assert limiter.spend(further[:2], 0.0) is None
    exceeded = limiter.spend(further[2:], 0.0)
    assert exceeded is not None
    assert exceeded.seconds == 1.0


def test_caller_that_names_many_places_holds_no_other_caller_back() -> None:
    """It needs no right in them, and they need not exist. Those without a bucket share one of this caller."""
    limiter = Limiter([made(per=["caller", "namespace"], burst=1)])
    many = [CALL._replace(namespace=f"n-{number}") for number in range(10_002)]
    assert accepted(limiter, many)[-2:] == [True, False]
    other = CALL._replace(caller="other")
    assert accepted(limiter, [other, other]) == [True, False]


def test_call_is_refused_before_its_request_arrives_unless_the_limit_depends_on_it() -> None:
    """Until then, its tenancy is empty, like that of a call about a cluster-scoped type, which the limit may count."""
    unknown = CALL._replace(partition="", namespace="")
    by_tenancy: list[dict[str, Any]] = [{"partition": ""}, {"namespace": ""}, {"per": ["namespace"]}]
    for fields, early in (({}, True), *((each, False) for each in by_tenancy)):
        limiter = Limiter([made(**fields, burst=1)])
        limiter.spend([unknown], 0.0)
        assert (limiter.refuses(unknown, 0.0) is not None) is early
        assert limiter.refuses(unknown, 1.0) is None
        assert limiter.refuses(unknown, 1.0) is None, "nothing is spent"


def test_limits_count_the_calls_that_they_refuse() -> None:
    """Operators see those that have refused any, with the caller of the last one."""
    limiter = Limiter([made(burst=1), made(name="spare", burst=9)])
    other = CALL._replace(caller="other")
    assert accepted(limiter, [CALL, CALL, other, other]) == [True, False, True, False]
    assert limiter.refused() == [Refused("reads", 2, "other")]
    assert limiter.refuses(CALL, 0.0) is not None
    assert limiter.refused() == [Refused("reads", 3, "one")]


def test_limit_that_stays_the_same_keeps_its_buckets() -> None:
    """Reading the file again must not give every caller another burst."""
    authorizer = Authorizer(Access(limits=[READS]))
    assert accepted(authorizer.limiter, [CALL, CALL, CALL]) == [True, True, False]
    authorizer.replace(Access(limits=[made(name="other"), READS]))
    assert accepted(authorizer.limiter, [CALL]) == [False]
    authorizer.replace(Access(limits=[made(burst=3)]))
    assert accepted(authorizer.limiter, [CALL] * 4) == [True, True, True, False]
    authorizer.replace(Access())
    assert accepted(authorizer.limiter, [CALL] * 4) == [True] * 4


def test_refusal_says_which_limit_what_it_allows_and_when_to_repeat() -> None:
    limiter = Limiter([made(burst=1, per_second=0.5)])
    limiter.spend([CALL], 0.0)
    exceeded = limiter.spend([CALL], 0.5)
    assert exceeded is not None
    assert exceeded.message() == (
        "too many calls: limit reads allows 0.5 read calls a second with a burst of 1, which each caller has; "
        "nothing was done: repeat the call after 1.5 s"
    )
