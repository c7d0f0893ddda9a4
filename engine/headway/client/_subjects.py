"""The subjects of a subscription: types and topics, and parts of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headway.api import MAX_SUBJECTS
from headway.base import checked
from headway.client._arguments import tenancy_searched
from headway.errors import InvalidArgument
from headway.resource import ResourceType
from headway.subscription import Topic

if TYPE_CHECKING:
    from headway._gen.headway.subscribe import v1 as subscribe_pb

FORM = "TEAM, headway.Subject(TEAM, 'core'), headway.Subject(TEAM, namespace='a') or headway.Subject(RATES, 'EUR')"


@checked(InvalidArgument, name="'core'", partition="'default'", namespace="'a'", name_prefix="'team-'")
class Subject:
    """A part of a type or a topic, for `Client.subscribe`: ``headway.Subject(TEAM, "core")``.

    Args:
        source: a type or a topic.
        name: the name of one resource, or of one subject of a topic. Default: all that the others select.
        partition, namespace: the tenancy; ``*`` for any, and with a name the default one. Not for a topic.
        name_prefix: the beginning of the names. Not for a topic, nor with a name.
    """

    def __init__(
        self,
        source: ResourceType[Any] | Topic[Any],
        name: str = "",
        *,
        partition: str = "",
        namespace: str = "",
        name_prefix: str = "",
    ) -> None:
        if isinstance(source, Topic):
            if partition or namespace or name_prefix:
                raise InvalidArgument(
                    f"Subject({source!r}): a topic has no partition, namespace or name_prefix: give a name, or none"
                )
        elif name:
            if name_prefix:
                raise InvalidArgument(f"name {name!r} and name_prefix {name_prefix!r} exclude each other: give one")
            source.id(name, partition=partition, namespace=namespace)
        self.source = source
        self.name = name
        self.partition = partition
        self.namespace = namespace
        self.name_prefix = name_prefix

    def __repr__(self) -> str:
        parts = [repr(self.source), *([repr(self.name)] if self.name else [])]
        fields = (
            f"{each}={value!r}" for each in ("partition", "namespace", "name_prefix") if (value := getattr(self, each))
        )
        return f"Subject({', '.join([*parts, *fields])})"

    def message(self) -> subscribe_pb.Subject:
        """Return the subject as a wire message."""
        # Imported here, because most clients never subscribe.
        from headway._gen.headway.subscribe import v1 as subscribe_pb

        source, name = self.source, self.name
        if isinstance(source, Topic):
            if name:
                return subscribe_pb.Subject(topic=source.name, named=subscribe_pb.Named(name=name))
            return subscribe_pb.Subject(topic=source.name, everything=subscribe_pb.Everything())
        type = source.name.message()
        if name:
            id = source.id(name, partition=self.partition, namespace=self.namespace).message()
            return subscribe_pb.Subject(type=type, named=subscribe_pb.Named(name=id.name, tenancy=id.tenancy))
        tenancy = tenancy_searched(source, self.partition or "*", self.namespace or "*")
        within = subscribe_pb.Within(tenancy=tenancy, name_prefix=self.name_prefix)
        return subscribe_pb.Subject(type=type, within=within)


def checked_subjects(given: Iterable[ResourceType[Any] | Topic[Any] | Subject]) -> list[Subject]:
    """Return the subjects of a subscription. A type or a topic stands for all of it.

    Raises:
        InvalidArgument: no subject was given, or there are too many.
    """
    subjects = [each if isinstance(each, Subject) else Subject(each) for each in given]
    if not 1 <= len(subjects) <= MAX_SUBJECTS:
        raise InvalidArgument(
            f"subscribe() got {len(subjects)} subjects: give from 1 to {MAX_SUBJECTS}, such as [{FORM}]"
        )
    return subjects
