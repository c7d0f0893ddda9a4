"""Resources that neither Write nor MutateAndValidate accepts."""

from __future__ import annotations

from headway.resource import AnyMessage, pb
from tests.helpers.declared import PLANET, REGION, UNKNOWN, a_note, an_id


def wrong_resources() -> list[tuple[pb.Resource | None, str]]:
    """Return invalid resources for Write and MutateAndValidate, with the expected errors."""
    foreign = a_note()
    foreign.data = AnyMessage(type_url="type.googleapis.com/acme.Else", value=b"")
    return [
        (None, "resource is required"),
        (pb.Resource(), "resource.id is required"),
        (pb.Resource(id=pb.Id(name="one")), "resource.id.type is required"),
        (a_note(""), "resource.id of tests.v1.Note: name is required"),
        (a_note("Ä"), "name 'Ä' is not a valid name"),
        (a_note(type=UNKNOWN), "resource.id.type: type tests.v1.Nothing is not registered"),
        (a_note(type=REGION, namespace="up"), "namespace 'up' must be empty: the type is partition-scoped"),
        (a_note(type=PLANET, partition="up"), "must be empty: the type is cluster-scoped"),
        (a_note(owner=pb.Id(name="boss")), "resource.owner.type is required"),
        (a_note(owner=an_id("Boss")), "resource.owner of tests.v1.Note: name 'Boss' is not a valid name"),
        (a_note(owner=an_id("boss", UNKNOWN)), "resource.owner.type: type tests.v1.Nothing is not registered"),
        (foreign, "resource.data of tests.v1.Note must be tests.Note, not acme.Else"),
    ]
