"""The resource service: the eight verbs over a store. The file of a verb has its method."""

from __future__ import annotations

from headway.api import ResourceApi
from headway.service._context import Context
from headway.service._delete import delete
from headway.service._list import list_by_owner, list_type
from headway.service._mutate_and_validate import mutate_and_validate
from headway.service._read import read
from headway.service._watch_list import watch_list
from headway.service._write import write
from headway.service._write_status import write_status

RESOURCE_SERVICE = "headway.resource.v1.ResourceService"
WATCH_LIST = f"/{RESOURCE_SERVICE}/WatchList"


class ResourceService(Context, ResourceApi):
    """The eight verbs over a store, for the types of a registry. It takes the arguments of `Context`.

    Every refusal is a `HeadwayError` whose message names the field and says what would be right.
    """

    read = read
    write = write
    write_status = write_status
    delete = delete
    mutate_and_validate = mutate_and_validate
    list = list_type
    list_by_owner = list_by_owner
    watch_list = watch_list
