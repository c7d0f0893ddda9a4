"""Finding unknown fields, and keeping those of a stored message that another one replaces."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import betterproto2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.protobuf import (
    UnsupportedClassError,
    decode,
    encode,
    equal,
    has_unknown_fields,
    keep_unknown_fields,
    plan_class,
)
from tests.helpers.older import New, NewPart, Old, OldPart, known, whole

TEXTS = st.sampled_from(["", "a", "b"])
PARTS = st.builds(NewPart, name=TEXTS, extra=TEXTS)
WAYS = st.sampled_from([{}, {"mail": "m"}, {"phone": ""}, {"pager": "p"}])


def _with_way(new: New, way: dict[str, str]) -> New:
    for name, value in way.items():
        setattr(new, name, value)
    return new


MESSAGES = st.builds(
    _with_way,
    st.builds(
        New,
        title=TEXTS,
        part=st.none() | PARTS,
        always=PARTS,
        parts=st.lists(PARTS, max_size=3),
        named=st.dictionaries(TEXTS, PARTS, max_size=2),
        token=TEXTS,
        extra=TEXTS,
        key=TEXTS,
    ),
    WAYS,
)

Change = Callable[[Any, type[Any]], None]
"""A change of a field that both programs know. It gets a message of either, and its class of parts."""


def _rename_title(box: Any, _: type[Any]) -> None:
    box.title += "x"


def _rename_part(box: Any, part: type[Any]) -> None:
    if box.part is None:
        box.part = part(name="x")
    else:
        box.part.name += "x"


def _remove_part(box: Any, _: type[Any]) -> None:
    box.part = None


def _rename_always(box: Any, _: type[Any]) -> None:
    box.always.name += "x"


def _rename_named(box: Any, _: type[Any]) -> None:
    for each in box.named.values():
        each.name += "x"


def _add_named(box: Any, part: type[Any]) -> None:
    box.named["z"] = part(name="x")


def _remove_named(box: Any, _: type[Any]) -> None:
    box.named.clear()


def _append(box: Any, part: type[Any]) -> None:
    box.parts.append(part(name="x"))


def _remove_last(box: Any, _: type[Any]) -> None:
    del box.parts[-1:]


def _replace_first(box: Any, part: type[Any]) -> None:
    # The changed element of a list is another one: it has only what the older program gives it.
    box.parts[:1] = [part(name="other")]


def _nothing(box: Any, part: type[Any]) -> None:
    pass


CHANGES: list[Change] = [
    _rename_title,
    _rename_part,
    _remove_part,
    _rename_always,
    _rename_named,
    _add_named,
    _remove_named,
    _append,
    _remove_last,
    _replace_first,
    _nothing,
]


def kept(made: Old, stored: New) -> New:
    """Return what the newer program reads after the older one has written ``made`` over ``stored``."""
    wanted = decode(Old, encode(made))
    keep_unknown_fields(wanted, decode(Old, encode(stored)))
    return decode(New, encode(wanted))


@given(stored=MESSAGES, change=st.sampled_from(CHANGES))
def test_older_program_changes_only_the_fields_that_it_knows(stored: New, change: Change) -> None:
    made = known(stored)
    change(made, OldPart)
    result = kept(made, stored)
    change(stored, NewPart)
    assert equal(result, decode(New, encode(stored)))


@given(stored=MESSAGES)
def test_unknown_fields_are_found_in_every_message(stored: New) -> None:
    extras = [stored.always, *stored.parts, *stored.named.values(), *([stored.part] if stored.part else [])]
    expected = bool(stored.extra or stored.key or stored.pager or any(each.extra for each in extras))
    assert has_unknown_fields(decode(Old, encode(stored))) == expected
    assert not has_unknown_fields(stored)


@dataclass(eq=False, repr=False)
class Odd(betterproto2.Message):
    """A class with its own encoding, which only betterproto2 can handle."""

    part: OldPart | None = betterproto2.field(1, betterproto2.TYPE_MESSAGE, optional=True)  # noqa: RUF009 - as generated

    def __bytes__(self) -> bytes:
        return super().__bytes__()


def test_unknown_fields_in_a_class_that_is_not_compiled() -> None:
    with pytest.raises(UnsupportedClassError):
        plan_class(Odd)
    stored = decode(Odd, b"\x0a\x06" + encode(NewPart(name="a", extra="b")))
    assert has_unknown_fields(stored)
    made = Odd(part=OldPart(name="c"))
    assert not has_unknown_fields(made)
    keep_unknown_fields(made, stored)
    assert made.part is not None
    assert decode(NewPart, encode(made.part)) == NewPart(name="c", extra="b")


def test_own_unknown_fields_win_over_the_stored_ones() -> None:
    """The writer has read them, so that it copies a message whole."""
    read = decode(Old, encode(New(extra="read", always=NewPart(name="b"))))
    keep_unknown_fields(read, decode(Old, encode(whole())))
    result = decode(New, encode(read))
    assert (result.extra, result.key, result.always.extra) == ("read", "", "B")


def test_field_of_a_oneof_replaces_one_that_the_class_does_not_know() -> None:
    """With both, the newer program would read the unknown one, which comes last."""
    assert kept(Old(mail="m"), New(pager="p", always=NewPart(extra="B"))).mail == "m"
    changed = kept(Old(mail="m"), New(phone="p", extra="F"))
    assert (changed.mail, changed.phone, changed.extra) == ("m", None, "F")
    assert kept(Old(title="x"), New(pager="p")).pager == "p"


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
@given(MESSAGES)
def test_copies_keep_unknown_fields(copied: Callable[[Old], Old], new: New) -> None:
    """They do so at every depth, and an encoded copy has all fields of the newer program."""
    old = decode(Old, encode(new))
    made = copied(old)
    assert equal(made, old)
    assert decode(New, encode(made)) == new


def test_deep_copy_is_independent() -> None:
    """A message that is held twice is one message in the copy, too."""
    old = decode(Old, encode(New(part=NewPart(name="a", extra="x"), parts=[NewPart(name="a")])))
    first, second = copy.deepcopy([old, old])
    assert first is second
    assert first.part is not None
    first.part.name = first.parts[0].name = "b"
    assert old.part is not None
    assert (old.part.name, old.parts[0].name) == ("a", "a")
