"""The types of the tests of schemas and CRDs: one with a field of every kind, and one as a user writes it."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import IntEnum

from headway import field, message
from headway.kubernetes._crd import Names, Scale, Version
from headway.kubernetes._schema import Hints


class Phase(IntEnum):
    Pending = 0
    Ready = 1


@message
class Port:
    """A port of the site.

    Attributes:
        name: tells the ports apart,
            and is also their DNS label.
        port: the number.
    """

    name: str = field(1)
    port: int | None = field(2, kind="int32")
    wait: timedelta = field(3)
    tcp: bool | None = field(4, oneof="protocol")
    namespace: bool | None = field(5, oneof="protocol")


@message
class Node:
    text: str = field(1)
    child: Node | None = field(2)


@message
class Step:
    """One of many ways: in a list, a rule in CEL about them would cost more than the server allows."""

    one: str | None = field(1, oneof="way")
    two: str | None = field(2, oneof="way")
    three: str | None = field(3, oneof="way")
    four: str | None = field(4, oneof="way")
    five: str | None = field(5, oneof="way")
    six: str | None = field(6, oneof="way")
    wait: timedelta = field(7)


@message
class Stage:
    steps: list[Step] = field(1)
    by_name: dict[str, Step] = field(2)


@message
class WebsiteSpec:
    """What a site should be."""

    host: str = field(1)
    min_size: int | None = field(2, kind="int32")
    max_size: int = field(3)
    count: int = field(4, kind="uint64")
    small: int = field(5, kind="uint32")
    ratio: float = field(6)
    part: float = field(7, kind="float")
    paused: bool = field(8)
    data: bytes = field(9)
    begun_at: datetime = field(10)
    timeout: timedelta = field(11)
    phase: Phase = field(12)
    ports: list[Port] = field(13)
    words: list[str] = field(14)
    waits: list[timedelta] = field(15)
    labels: dict[str, str] = field(16)
    backends: dict[str, Port] = field(17)
    file: str | None = field(18, oneof="source")
    url: str | None = field(19, oneof="source")
    git: str | None = field(20, oneof="source")
    tree: Node | None = field(21)
    token: str = field(22, secret=True)
    levels: list[Phase] = field(23)
    stages: list[Stage] = field(24)


@message
class WebsiteStatus:
    ready: int = field(1)
    size: int = field(2)
    since: datetime = field(3)


@message
class Website:
    spec: WebsiteSpec = field(1)
    status: WebsiteStatus = field(2)


NAMES = Names("example.org", "Website", "websites", short_names=["ws"], categories=["all"])
HINTS = Hints(
    rules={"spec": {"!has(self.maxSize) || self.minSize <= self.maxSize": "minSize must not be above maxSize"}},
    list_keys={"spec.ports": ["name"]},
    required=["spec.host", "spec.ports[*].port"],
    defaults={"spec.minSize": 1, "spec.count": 0},
    limits={"spec.host": {"maxLength": 253}, "spec.ports": {"maxItems": 100}},
)
VERSION = Version(
    "v1",
    Website,
    HINTS,
    columns={"READY": ".status.ready", "SINCE": ".status.since", "HOST": ".spec.host"},
    scale=Scale(".spec.minSize", ".status.size"),
)
