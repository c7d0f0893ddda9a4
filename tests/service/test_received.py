"""The check of resources from another store: their ids must be whole here as they were there."""

from __future__ import annotations

from headway.protobuf import copy_message
from headway.resource import Registry, pb
from headway.service import received_check
from tests.helpers.resources import TEAM, Team


def test_resource_of_another_scope_is_refused() -> None:
    """The other program may declare the type with another scope. A completed id would not name what was sent."""
    registry = Registry()
    registry.register(TEAM)
    check = received_check(registry)
    sent: pb.Resource = TEAM.new("core", Team(members=[])).message()
    assert sent.id is not None
    assert sent.id.tenancy is not None
    assert check(copy_message(sent)) is None
    sent.id.tenancy.namespace = ""
    assert check(sent) == "its namespace is '', but the type is namespace-scoped here"
