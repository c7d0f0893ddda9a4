"""The check of resources from another store: their ids must be whole here as they were there."""

from __future__ import annotations

from typing import Any

import headway
from headway import field
from headway.peering._received import received_check
from headway.protobuf import copy_message
from headway.resource import Registry, ResourceType, pb
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


def test_refusal_by_a_hook_has_no_secret() -> None:
    """It is shown in the status of the peering, and sent to the peer."""

    @headway.message
    class Key:
        token: str = field(1, secret=True)

    def refuse(key: headway.Resource[Key]) -> None:
        raise errors.pop()([key.data.token])

    type: ResourceType[Any] = ResourceType("tests", "v1", "Key", Key, hooks=headway.Hooks(validate=refuse))
    registry = Registry()
    registry.register(type)
    check = received_check(registry)
    errors: list[Any] = [KeyError, ValueError]
    assert check(type.new("core", Key(token="token-1")).message()) == "['(redacted)']"
    said = check(type.new("core", Key(token="token-1")).message())
    assert said == "the validate hook of tests.v1.Key failed: ['(redacted)']"


def test_refusal_by_a_hook_without_a_message_is_not_empty() -> None:
    def refuse(_: headway.Resource[Team]) -> None:
        raise errors.pop()

    type = ResourceType("tests", "v1", "Team", Team, hooks=headway.Hooks(validate=refuse))
    registry = Registry()
    registry.register(type)
    check = received_check(registry)
    errors: list[Any] = [KeyError, ValueError]
    line = f"test_received.py:{refuse.__code__.co_firstlineno + 1}"
    assert check(type.new("core").message()) == f"ValueError was raised without a message at {line}"
    said = check(type.new("core").message())
    assert said == f"the validate hook of tests.v1.Team failed: KeyError was raised without a message at {line}"
