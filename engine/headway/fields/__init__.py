"""Fields with owners: several writers share a resource, and each owns the fields that it applies.

A manager is the name of a writer, such as a controller. The owners of a resource's fields are in its metadata
(`_owners.py`). `Client.apply` with ``fields`` merges what it applies with what is stored (`_merge.py`, pure, over the
places of `_places.py`) and writes the result if the stored version is still the same (`_apply.py`). The service keeps
the owners true at every write, whoever makes it (`_forms.py`).

Only programs with a type that has ``owned_fields=True`` import this package.
"""

from typing import TYPE_CHECKING

from headway._imported_later import imported_later
from headway.fields._apply import apply_fields as apply_fields
from headway.fields._merge import Applied as Applied
from headway.fields._merge import Merged as Merged
from headway.fields._owners import owners_by_field as owners_by_field
from headway.fields._owners import owners_in as owners_in

if TYPE_CHECKING:
    from headway.fields._extension import fields_extension as fields_extension
    from headway.fields._forms import with_owners as with_owners

# Imported on first use: only engines need them.
__getattr__ = imported_later(__name__, {"_extension": "fields_extension", "_forms": "with_owners"})
