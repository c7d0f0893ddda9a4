"""Pages and metadata filters of List."""

from __future__ import annotations

import base64
import itertools
import json
from typing import Any

import pytest
from grpclib.const import Status

from headway.client import Client
from headway.resource import pb
from headway.storage import MemoryBackend, list_part
from tests.helpers.calls import Calls, at, refused
from tests.helpers.declared import CHILD, NOTE, NOTE_V2, a_note, a_type, id_of, registry

EVERYWHERE = pb.Tenancy(partition="*", namespace="*")

METADATA: dict[str, dict[str, str]] = {
    "bare": {},
    "empty": {"colour": ""},
    "red": {"colour": "red", "size": "big"},
    "small": {"colour": "red", "size": "small", "note": "text/html; charset=utf-8"},
    "blue": {"colour": "blue", "a=b": "c", "note": "x = y"},
}

FILTERS: list[tuple[str, list[str]]] = [
    ("", ["bare", "blue", "empty", "red", "small"]),
    ("  ", ["bare", "blue", "empty", "red", "small"]),
    ("colour", ["blue", "empty", "red", "small"]),
    ("!colour", ["bare"]),
    ("colour=red", ["red", "small"]),
    (" colour = red , size = big ", ["red"]),
    ("colour!=red", ["bare", "blue", "empty"]),
    ("colour,colour!=red", ["blue", "empty"]),
    ("colour=", ["empty"]),
    ("colour!=", ["bare", "blue", "red", "small"]),
    ("note=x = y", ["blue"]),
    ("colour=red,colour=blue", []),
    ("of:whom=ada", []),
    ("key=YWI7Yw==", []),
    ("first name=ada", []),
    ("note=text/html; charset=utf-8", ["small"]),
    ("note!=text/html; charset=utf-8", ["bare", "blue", "empty", "red"]),
]


async def names(calls: Calls, **rest: Any) -> list[str]:
    reply = await calls.list_type(a_type(), EVERYWHERE, **rest)
    return [id_of(each).name for each in reply.resources]


async def test_metadata_filter_matches_resources_that_meet_all_its_terms(calls: Calls) -> None:
    """A term requires a value to be equal, unequal, present or absent. Consul's server has no filter."""
    for name, metadata in METADATA.items():
        await calls.write(a_note(name, metadata=metadata))
    for text, expected in FILTERS:
        assert await names(calls, metadata_filter=text) == expected, text


FOREIGN = [
    *("colour==red", "colour!==red", "colour in (red)", "colour notin (red,blue)", "colour:red", "!colour:red"),
    *("colour~=red", "colour:=red", "size>=3", "size>3", "has(colour)"),
]
"""Filters as other systems write them. They matched nothing, or everything, without a word."""


@pytest.mark.parametrize("text", [",", "a,", "=a", "!=a", "!", "!!a", "a!b", "a!b=c", " = ", *FOREIGN])
async def test_invalid_filter_is_refused_with_the_term(in_memory: Calls, text: str) -> None:
    """The error also has the valid forms."""
    said = f"metadata_filter {text!r}: "
    call = in_memory.list_type(a_type(), EVERYWHERE, metadata_filter=text)
    await refused(call, Status.INVALID_ARGUMENT, said, "use key=value, key!=value, key or !key")


@pytest.mark.parametrize("text", ["team:core", "!team:core", "first name"])
async def test_error_for_a_key_that_needs_its_value_says_so(in_memory: Calls, text: str) -> None:
    call = in_memory.list_type(a_type(), EVERYWHERE, metadata_filter=text)
    await refused(call, Status.INVALID_ARGUMENT, "a key with blanks, quotes or any of ():;<>~ needs its value")


async def paged(calls: Calls, size: int, **rest: Any) -> list[list[str]]:
    pages: list[list[str]] = []
    token = ""
    for _ in range(50):
        reply = await calls.list_type(a_type(), EVERYWHERE, page_size=size, page_token=token, **rest)
        pages.append([id_of(each).name for each in reply.resources])
        token = reply.next_page_token
        if not token:
            return pages
    raise AssertionError("the pages do not end")


async def test_pages_add_up_to_the_list(calls: Calls) -> None:
    """All pages but the last are full, whatever the filter and the versions of the kind leave out."""
    for index in range(7):
        await calls.write(a_note(f"n{index}", metadata={"odd": str(index % 2)}))
        await calls.write(a_note(f"n{index}-other", type=NOTE_V2))
    whole = await names(calls)
    assert len(whole) == 7
    for size in (1, 2, 3, 6, 7, 8, 1000):
        assert await paged(calls, size) == [whole[at : at + size] for at in range(0, 7, size)]
    assert await paged(calls, 2, metadata_filter="odd=1") == [["n1", "n3"], ["n5"]]
    assert await paged(calls, 3, metadata_filter="odd=2") == [[]]


async def test_reads_for_a_page_are_bounded(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    """A selective filter takes several reads, and misses nothing between them."""
    monkeypatch.setattr("headway.service._pages._LEAST_READ", 2)
    for index in range(9):
        await calls.write(a_note(f"n{index}", metadata={"third": str(index % 3)}))
    assert await paged(calls, 2, metadata_filter="third=0") == [["n0", "n3"], ["n6"]]


async def test_position_of_a_page_is_that_of_its_first_read(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch that resumes there delivers what changed while the rest of the page was read."""
    monkeypatch.setattr("headway.service._pages._LEAST_READ", 1)
    for name in ("a", "b", "c"):
        await calls.write(a_note(name, metadata={"red": str(name == "c")}))
    began = calls.backend.position

    async def read(*part: Any) -> Any:
        found = await list_part(*part)
        await calls.write(a_note("a", metadata={"red": "True"}))
        return found

    monkeypatch.setattr("headway.service._pages.list_part", read)
    reply = await calls.list_type(a_type(), EVERYWHERE, page_size=1, metadata_filter="red=True")
    assert [id_of(each).name for each in reply.resources] == ["c"]
    assert at(reply.position) == began


async def test_token_of_another_query_or_store_is_refused(calls: Calls) -> None:
    """A token is a position in one list, and means nothing in another. A malformed token is refused, too."""
    for name in ("a", "b"):
        await calls.write(a_note(name))
    token = (await calls.list_type(a_type(), EVERYWHERE, page_size=1)).next_page_token
    other = "page_token belongs to another query"
    for call, said in (
        (calls.list_type(a_type(CHILD), EVERYWHERE, page_token=token), other),
        (calls.list_type(a_type(), pb.Tenancy(), page_token=token), other),
        (calls.list_type(a_type(), EVERYWHERE, "a", page_token=token), other),
        (calls.list_type(a_type(), EVERYWHERE, metadata_filter="a", page_token=token), other),
        (calls.list_type(a_type(), EVERYWHERE, page_token="nonsense"), "page_token 'nonsense' is invalid"),
        (calls.list_type(a_type(), EVERYWHERE, page_token="MQ=="), "page_token 'MQ==' is invalid"),
        (
            Calls(MemoryBackend(), registry()).list_type(a_type(), EVERYWHERE, page_token=token),
            f"page_token belongs to store {calls.backend.position.store_id}",
        ),
    ):
        await refused(call, Status.INVALID_ARGUMENT, said)


async def test_token_with_an_impossible_key_is_refused(calls: Calls) -> None:
    """The digest in a token is not secret, so a caller can forge one. Not every store can look up a lone surrogate."""
    for name in ("a", "b"):
        await calls.write(a_note(name))
    token = (await calls.list_type(a_type(), EVERYWHERE, page_size=1)).next_page_token
    parts = json.loads(base64.urlsafe_b64decode(token))
    forged = base64.urlsafe_b64encode(json.dumps([*parts[:-1], "\ud800"]).encode()).decode()
    await refused(names(calls, page_size=1, page_token=forged), Status.INVALID_ARGUMENT, "send the next_page_token")


async def test_client_filters_and_goes_through_pages(calls: Calls) -> None:
    """The client yields one list for each page. The last may be shorter. An empty result is one empty page."""
    client = Client(calls.channel, registry())
    for index in range(5):
        await client.write(NOTE.new(f"n{index}", metadata={"odd": str(index % 2)}))
    assert [each.name for each in await client.list(NOTE, filter="odd=1")] == ["n1", "n3"]
    pages = [[each.name for each in page] async for page in client.pages(NOTE, size=2)]
    assert pages == [["n0", "n1"], ["n2", "n3"], ["n4"]]
    pages = [[each.name for each in page] async for page in client.pages(NOTE, size=1, filter="odd=1")]
    assert list(itertools.chain(*pages)) == ["n1", "n3"]
    assert [page async for page in client.pages(CHILD)] == [[]]
