"""The message that chooses workloads."""

from __future__ import annotations

from headway import field, message


@message(name="hashicorp.consul.catalog.v2beta1.WorkloadSelector")
class WorkloadSelector:
    """A choice of workloads: those with one of the names, or with one of the prefixes, that meet the filter.

    An empty prefix chooses every workload. A selector without names and prefixes chooses none.
    """

    prefixes: list[str] = field(1)
    names: list[str] = field(2)
    filter: str = field(3)
