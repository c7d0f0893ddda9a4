"""An app whose type has two versions, for the tests of the command line."""

from __future__ import annotations

import headway
from tests.helpers.versions import ALONE, V1, V2, V3, down, down_again, up, up_again

app = headway.App("versioned")
for each in (V1, V2, V3, ALONE):
    app.registry.register(each)
app.converter(V1, V2, up=up, down=down)
app.converter(V2, V3, up=up_again, down=down_again)

unconverted = headway.App("unconverted")
