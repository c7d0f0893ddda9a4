"""Parts of an answer, made of what the server has read. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from headway._gen.headway.observe import v1 as observe_pb
from headway.resource import EVENT, ResourceId, finalizers, is_marked, pb, resource_id
from headway.why.answers import ref_of


def stored_answer(stored: pb.Resource, named: Mapping[str, str], managing: Collection[str] = ()) -> observe_pb.Stored:
    """Return what is stored of a resource, with the names of its finalizers' controllers.

    Args:
        named: the controllers that have the name of a finalizer.
        managing: the controllers that manage the resource. A finalizer in the domain of its group, as on a cluster, is
            that of the only one.
    """
    domain = f"{resource_id(stored.id).type.group}/"
    only = next(iter(managing)) if len(managing) == 1 else ""
    owner = None if stored.owner is None else resource_id(stored.owner)
    return observe_pb.Stored(
        version=stored.version,
        generation=stored.generation,
        owner=None if owner is None else ref_of(owner.type, owner.key),
        deleting=is_marked(stored.metadata),
        conditions=list(_conditions(stored)),
        finalizers=[
            observe_pb.Finalizer(name, named.get(name, only if name.startswith(domain) else ""))
            for name in sorted(finalizers(stored.metadata))
        ],
    )


def events_answer(found: pb.Resource | None) -> list[observe_pb.PastEvent]:
    """Return the events of a resource, the latest first."""
    entries = [] if found is None else EVENT.view(found).data.entries
    return [
        observe_pb.PastEvent(
            first=0.0 if each.first is None else each.first.timestamp(),
            last=0.0 if each.last is None else each.last.timestamp(),
            count=each.count,
            controller=each.controller,
            reason=each.reason,
            text=each.text,
            warning=each.warning,
        )
        for each in reversed(entries)
    ]


def with_writers(
    controllers: Iterable[observe_pb.ControllerWhy], writers: Mapping[int, str]
) -> list[observe_pb.ControllerWhy]:
    """Return the parts with the writer of each cause, by revision."""

    def known(causes: Iterable[observe_pb.Cause]) -> list[observe_pb.Cause]:
        return [replace(each, writer=writers.get(each.revision, "")) for each in causes]

    return [
        replace(
            part,
            causes=known(part.causes),
            reconciles=[replace(each, causes=known(each.causes)) for each in part.reconciles],
        )
        for part in controllers
    ]


def id_without_uid(id: ResourceId) -> pb.Id:
    """Return an id without its uid, for a question."""
    return pb.Id(
        name=id.name,
        type=id.type.message(),
        tenancy=pb.Tenancy(partition=id.partition, namespace=id.namespace),
    )


def past_causes(part: observe_pb.ControllerWhy) -> Iterable[observe_pb.Cause]:
    """Return the causes of the past reconciles of a part."""
    return (cause for each in part.reconciles for cause in each.causes)


def _conditions(stored: pb.Resource) -> Iterable[observe_pb.Condition]:
    for by, status in sorted(stored.status.items()):
        for each in status.conditions:
            state: Any = each.state
            current = status.observed_generation == stored.generation
            yield observe_pb.Condition(by, each.type, state.name or str(int(state)), current, each.reason, each.message)
