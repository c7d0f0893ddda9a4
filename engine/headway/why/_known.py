"""Parts of an answer, made of what the server has read. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from headway.resource import EVENT, ResourceId, finalizers, is_marked, pb, resource_id
from headway.why import answers
from headway.why.answers import ControllerWhy


def stored_answer(stored: pb.Resource, named: Mapping[str, str]) -> answers.Stored:
    """Return what is stored of a resource, with the names of its finalizers' controllers."""
    owner = None if stored.owner is None else resource_id(stored.owner)
    return answers.Stored(
        version=stored.version,
        generation=stored.generation,
        owner=None if owner is None else answers.Ref.of(owner.type, owner.key),
        deleting=is_marked(stored.metadata),
        conditions=tuple(_conditions(stored)),
        finalizers=tuple(answers.Finalizer(name, named.get(name, "")) for name in sorted(finalizers(stored.metadata))),
    )


def events_answer(found: pb.Resource | None) -> tuple[answers.PastEvent, ...]:
    """Return the events of a resource, the latest first."""
    entries = [] if found is None else EVENT.view(found).data.entries
    return tuple(
        answers.PastEvent(
            first=0.0 if each.first is None else each.first.timestamp(),
            last=0.0 if each.last is None else each.last.timestamp(),
            count=each.count,
            controller=each.controller,
            reason=each.reason,
            text=each.text,
            warning=each.warning,
        )
        for each in reversed(entries)
    )


def with_writers(controllers: Iterable[ControllerWhy], writers: Mapping[int, str]) -> list[ControllerWhy]:
    """Return the parts with the writer of each cause, by revision."""

    def known(causes: tuple[answers.Cause, ...]) -> tuple[answers.Cause, ...]:
        return tuple(replace(each, writer=writers.get(each.revision, "")) for each in causes)

    return [
        replace(
            part,
            causes=known(part.causes),
            reconciles=tuple(replace(each, causes=known(each.causes)) for each in part.reconciles),
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


def past_causes(part: ControllerWhy) -> Iterable[answers.Cause]:
    """Return the causes of the past reconciles of a part."""
    return (cause for each in part.reconciles for cause in each.causes)


def _conditions(stored: pb.Resource) -> Iterable[answers.Condition]:
    for by, status in sorted(stored.status.items()):
        for each in status.conditions:
            state: Any = each.state
            current = status.observed_generation == stored.generation
            yield answers.Condition(by, each.type, state.name or str(int(state)), current, each.reason, each.message)
