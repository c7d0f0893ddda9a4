"""The cost of comparing the types of a program with those of a server."""

from __future__ import annotations

import sys

from headway.resource import types_pb
from headway.versions import MOST_PROBLEMS, Schema, compare_schemas


def calls_to_compare(stored: Schema, declared: Schema) -> int:
    """Return the number of calls, also of functions in C, that it takes to compare two schemas."""
    calls = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        compare_schemas(stored, declared, both_ways=True)
    finally:
        sys.setprofile(before)
    return calls


def of_fields(number: int, oneof: str) -> Schema:
    row = [types_pb.Field(name=f"f{n}", number=n, kind="string", oneof=oneof) for n in range(1, number + 1)]
    return types_pb.ListResponse(types=[types_pb.ResourceType()], messages=[types_pb.Message(fields=row)])


def test_comparison_of_a_large_message_takes_a_time_in_proportion_to_its_fields() -> None:
    small, large = (calls_to_compare(of_fields(n, "one"), of_fields(n, "one")) for n in (200, 400))
    assert large < 3 * small


def test_differences_without_number_are_not_all_looked_for() -> None:
    """Each two fields of a oneof exclude each other. The other schema has none."""
    small, large = (calls_to_compare(of_fields(n, ""), of_fields(n, "one")) for n in (200, 400))
    assert large < 3 * small
    assert len(compare_schemas(of_fields(400, ""), of_fields(400, "one"))) == MOST_PROBLEMS
