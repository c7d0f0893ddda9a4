"""Declaring messages in Python: valid declarations, and errors."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any, ClassVar, cast

import betterproto2
import pytest

from headway.errors import DeclarationError
from headway.protobuf import decode, encode, field, message
from headway.resource import ResourceType

UTC = datetime.UTC


class State(enum.IntEnum):
    UNKNOWN = 0
    READY = 1


class Colour(betterproto2.Enum):
    NONE = 0
    RED = 1


class Limited:
    def limit_of(self, name: str) -> int:
        return cast("Any", self).limits.get(name, 0)  # type: ignore[no-any-return]  # a mixin knows no fields


@message
class Person:
    login: str = field(1)


@message(name="acme.v1.Team")
class Team(Limited):
    """A team and its members."""

    VERSION: ClassVar[int] = 3
    members: list[str] = field(1)
    limits: dict[str, int] = field(2, kind="uint32")
    owner: Person | None = field(3)
    state: State = field(4)
    lead: Person = field(5)
    since: datetime.datetime = field(6)
    pause: datetime.timedelta | None = field(7)
    parent: Team | None = field(8)
    tasks: list[Task] = field(9)
    states: dict[str, State] = field(10)
    colours: list[Colour] = field(11)
    note: str | None = field(12)

    @property
    def size(self) -> int:
        return len(self.members)

    def __repr__(self) -> str:
        return f"{super().__repr__()} of {__class__.__name__}"  # type: ignore[name-defined]  # the compiler's cell


@message
class Task:
    title: str = field(1)


def a_team() -> Team:
    return Team(
        members=["ada"],
        limits={"cpu": 3},
        owner=Person(login="grace"),
        state=State.READY,
        pause=datetime.timedelta(seconds=-1.5),
        parent=Team(note=""),
        tasks=[Task(title="one"), Task()],
        states={"a": State.READY},
        colours=[Colour.RED],
    )


def test_declared_class_is_a_betterproto2_message() -> None:
    """It survives a round trip through betterproto2's bytes and JSON."""
    team = a_team()
    assert isinstance(team, betterproto2.Message)
    assert Team.__name__ == "Team"
    assert Team.__doc__ == "A team and its members."
    assert Team.__module__ == __name__
    generated = cast("Any", Team)
    assert generated.parse(bytes(team)) == team
    assert generated.from_dict(team.to_dict()) == team
    assert team.to_dict()["state"] == "READY"
    assert pickle.loads(pickle.dumps(team)) == team


def test_methods_properties_and_constants_are_kept() -> None:
    """super() and __class__ work in methods, and a ClassVar is not a field."""
    team = a_team()
    assert team.size == 1
    assert repr(Team()).endswith("Team() of Team")
    assert Team.VERSION == 3
    assert team.limit_of("cpu") == 3


def test_unset_field_has_the_proto3_default() -> None:
    """It is empty, or None if the annotation allows it, and takes no bytes."""
    team = Team()
    assert (team.members, team.limits, team.owner, team.note) == ([], {}, None, None)
    assert team.state is State.UNKNOWN
    assert team.lead == Person()
    assert team.since == datetime.datetime(1970, 1, 1, tzinfo=UTC)
    assert bytes(cast("Any", team)) == encode(team) == b""
    assert Team().members is not team.members


def test_optional_field_set_to_its_default_is_present() -> None:
    assert decode(Team, encode(Team(note=""))).note == ""
    assert decode(Team, encode(Team(note=None))).note is None


def test_unknown_enum_number_is_kept() -> None:
    """It becomes a member without a name, in an IntEnum as in betterproto2's own enums."""
    for read in (lambda data: cast("Any", Team).parse(data), lambda data: decode(Team, data)):
        team = read(b"\x20\x07\x5a\x01\x09")
        assert isinstance(team.state, State)
        assert team.state == 7
        assert team.colours == [9]
        assert encode(team) == b"\x20\x07\x5a\x01\x09"


def test_messages_can_be_declared_inside_a_function() -> None:
    """Local names are found, including messages that are declared after their use."""

    @message
    class Leaf:
        level: int = field(1, kind="sint32")

    @message
    class Tree:
        class Kind(enum.IntEnum):
            NONE = 0
            OAK = 1

        kind: Kind = field(1)
        leaf: Leaf | None = field(2)
        trees: list[Tree] = field(3)
        nests: list[Nest] = field(4)

    @message
    class Nest:
        eggs: int = field(1)

    tree = Tree(kind=Tree.Kind.OAK, leaf=Leaf(level=-1), trees=[Tree()], nests=[Nest(eggs=2)])
    assert decode(Tree, encode(tree)) == tree


def test_evaluated_annotations_work() -> None:
    """Without `from __future__ import annotations` declarations mean the same. Forward references are in quotes."""
    code = """
from typing import Optional
import betterproto2
from headway.protobuf import decode, encode, field, message
from headway.resource import ResourceType
@message
class Node(betterproto2.Message):
    name: str = field(1)
    nodes: "list[Node]" = field(2)
    by_name: dict[str, "Later"] = field(3)
    maybe: Optional["Later"] = field(4)
@message
class Later:
    size: int = field(1)
node = Node(name="a", nodes=[Node(name="b")], by_name={"x": Later(size=1)}, maybe=Later())
assert Node.parse(bytes(node)) == decode(Node, encode(node)) == node
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def declares(body: str) -> Callable[[], object]:
    """Return a declaration of a class Wrong with this body."""
    text = f"@message\nclass Wrong:\n    {body}\n"
    names: dict[str, object] = {
        "message": message, "field": field, "enum": enum, "Any": Any, "Person": Person, "__name__": __name__,
    }  # fmt: skip
    return lambda: exec(text, names)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("a: str", "Wrong.a has no number: write `a: str = field(1)`"),
        ("a: str = 'x'", "Wrong.a is 'x', expected a field number: write `a: str = field(1)`"),
        (
            "a: str = field(1); b: str = field(1)",
            "Wrong.b: field(1) is already used by 'a'; use field(2)",
        ),
        ("a: str = field(0)", "Wrong.a: field(0) is out of range"),
        ("a: str = field(19500)", "Wrong.a: field(19500) is out of range"),
        ("a: str = field(536870912)", "the number must be from 1 to 536870911"),
        ("a: str = field('1')", "Wrong.a: field('1') must have an integer as its number"),
        ("a: complex = field(1)", "Wrong.a: unsupported annotation complex; a field can be str, int, bool"),
        ("a: Any = field(1)", "a field can be str, int, bool"),
        ("a: str | int = field(1)", "a field can be str, int, bool"),
        (
            "a: list[list[str]] = field(1)",
            "unsupported annotation list[list[str]]: list[str] cannot stand there; declare a message for the inner "
            "one, such as `class Row` with `values: list[str] = field(1)`, and write `list[Row]`",
        ),
        ("a: dict[int, dict[str, int]] = field(1)", "`values: dict[str, int] = field(1)`, and write `dict[int, Row]`"),
        (
            "a: list[str] | None = field(1)",
            "unsupported annotation list[str] | None: list[str] cannot stand there; a list or dict that isn't set is "
            "empty: write `list[str]`, or put it into a message of its own",
        ),
        ("a: dict[str, int] | None = field(1)", "isn't set is empty: write `dict[str, int]`, or put"),
        (
            "a: list[str | None] = field(1)",
            "unsupported annotation list[str | None]: str | None cannot stand there; an",
        ),
        ("a: dict[str, complex] = field(1)", "dict[str, complex]: complex cannot stand there; a field can be str, int"),
        ("a: list = field(1)", "unsupported annotation list;"),
        ("a: dict[float, str] = field(1)", "the keys of a dict must be str, int or bool, not float"),
        ("a: str = field(1, default='x')", "field() takes no default='x'"),
        ("a: str = field(1, kind='uint64')", "kind='uint64' is only valid for an int or a float, not str"),
        ("a: int = field(1, kind='double')", "invalid kind='double' for int; expected one of int32, int64"),
        ("a = field(1)", "Wrong.a has no annotation: write `a: str = field(1)`"),
        ("a: Wrong = field(1)", "write `Wrong | None`"),
        ("a: enum.IntEnum('E', {'X': 1}) = field(1)", "E must have a member with value 0"),
        ("to_dict: str = field(1)", "the name 'to_dict' is reserved in messages"),
        ("line_1: str = field(1)", "name the field 'line1'"),
        (
            "a: no.such = field(1)",
            "invalid annotation 'no.such': no is not defined (an import under `if TYPE_CHECKING:`",
        ),
        ("a: Sequence[str] = field(1)", "Sequence is not defined (an import under `if TYPE_CHECKING:` does not count)"),
        ("a: datetime = field(1)", "declare datetime first (an import under `if TYPE_CHECKING:` does not count)"),
    ],
)
def test_invalid_declaration_fails_at_once(body: str, said: str) -> None:
    """The error names the class, the field and the value, and shows a valid form."""
    with pytest.raises(DeclarationError) as caught:
        declares(body)()
    assert said in str(caught.value)
    assert "Wrong" in str(caught.value)


def test_messages_do_not_inherit_fields() -> None:
    """Protobuf has no inheritance. The error names the alternative."""
    with pytest.raises(DeclarationError, match=r"Boss.*use a field instead: `person: Person = field\(1\)`"):

        @message
        class Boss(Person):
            rank: int = field(1)


def test_message_is_no_dataclass_as_well() -> None:
    """The methods of the dataclass would replace the message's own, and show secrets."""
    with pytest.raises(DeclarationError, match=r"Badge: remove @dataclass: @headway.message alone"):

        @message
        @dataclasses.dataclass
        class Badge:
            token: str = field(1, secret=True)


def test_message_cannot_become_a_dataclass_again() -> None:
    """It is refused where a type carries it, and where another message holds it."""

    @dataclasses.dataclass
    @message(name="test.Badge")
    class Badge:
        token: str = field(1, secret=True)

    @message(name="test.Holder")
    class Holder:
        badge: Badge | None = field(1)

    with pytest.raises(DeclarationError, match=r"type staff.v1.Badge: payload .*Badge: remove @dataclass"):
        ResourceType("staff", "v1", "Badge", Badge)
    with pytest.raises(DeclarationError, match=r"Badge: remove @dataclass"):
        encode(Holder(badge=Badge(token="secret-token")))


def test_name_must_be_a_protobuf_name() -> None:
    """A full name that no type_url could carry is refused."""
    with pytest.raises(DeclarationError, match=r"acme.v1.Team"):

        @message(name="acme/Team")
        class Named:
            pass


def test_unresolved_forward_reference_is_named() -> None:
    """The error names the field, at its first use."""

    @message
    class Hopeful:
        other: NeverDeclared | None = field(1)  # type: ignore[name-defined]  # noqa: F821 - on purpose

    with pytest.raises(DeclarationError, match=r"Hopeful\.other: NeverDeclared not found"):
        encode(Hopeful())


def test_message_without_fields_is_valid() -> None:
    """Some types need no payload but themselves."""

    @message
    class Empty:
        pass

    assert encode(Empty()) == b""
    assert decode(Empty, b"") == Empty()


def test_field_of_a_base_that_is_no_message_is_refused() -> None:
    """It would silently be no field of the message."""

    class Named:
        name: str = field(1)

    with pytest.raises(DeclarationError, match=r"Desk: the field 'name' of its base .*Named would not be part of"):

        @message
        class Desk(Named):
            city: str = field(2)
