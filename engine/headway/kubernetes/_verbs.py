"""What Kubernetes can do to an object beyond a write: how the client asks the adapter for it.

A request travels within the process alone. The verb is an entry of its resource's metadata, whose key no label or
annotation can have.
"""

from __future__ import annotations

import json
from collections.abc import MutableMapping
from typing import Any, NamedTuple

from headway.resource import pb

_KEY = ":verb"


class Verb(NamedTuple):
    """A verb.

    Attributes:
        name: ``apply``, ``status``, ``scale`` or ``delete``.
        manager: the manager of the fields.
        force: take over the fields of other managers.
        replicas: the replicas of a ``scale``.
        propagation: what becomes of the objects that a deleted one owns.
    """

    name: str
    manager: str = ""
    force: bool = False
    replicas: int = 0
    propagation: str = ""


def ask_for(request: pb.Resource, verb: Verb) -> pb.Resource:
    """Let a write be another verb."""
    request.metadata[_KEY] = json.dumps(verb)
    return request


def taken_verb(metadata: MutableMapping[str, str]) -> Verb | None:
    """Take the verb out of the metadata of a request, if there is one."""
    text = metadata.pop(_KEY, None)
    parts: list[Any] = [] if text is None else json.loads(text)
    return Verb(*parts) if parts else None
