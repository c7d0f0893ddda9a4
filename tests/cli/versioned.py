"""An app whose type has two versions, for the tests of the command line."""

from __future__ import annotations

import headway
from headway.protobuf import field
from headway.resource import ResourceType
from tests.helpers.versions import ALONE, V1, V2, V3, Roster, down, down_again, up, up_again

app = headway.App("versioned")
for each in (V1, V2, V3, ALONE):
    app.registry.register(each)
app.converter(V1, V2, up=up, down=down)
app.converter(V2, V3, up=up_again, down=down_again)

unconverted = headway.App("unconverted")


@headway.message(name="tests.v1.Swapped")
class Swapped:
    """The payload of v1 with the numbers of its fields swapped, so that stored data would be misread."""

    color: str = field(1)
    names: list[str] = field(2)


SWAPPED = ResourceType("tests", "v1", "Team", Swapped)
misreading = headway.App("misreading")
misreading.registry.register(SWAPPED)
misreading.registry.register(ALONE)
misreading.converter(
    SWAPPED,
    misreading.type("tests", "v2", "Team", Roster),
    up=lambda old: Roster(names=old.names, color=old.color),
    down=lambda new: Swapped(names=new.names, color=new.color),
)
