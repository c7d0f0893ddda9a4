"""The types of the manifest tests: a small one as a user writes it, and one with every kind of field."""

import datetime
import enum
from dataclasses import dataclass
from typing import Any

import betterproto2
from hypothesis import strategies as st

from headway import field, message
from headway._gen.headway.resource.v1 import ConditionState
from headway.resource import Registry, ResourceType, Scope


class Policy(enum.IntEnum):
    ALWAYS = 0
    NEVER = 1
    NO = 2


@message(name="tests.Limits")
class Limits:
    cpu: float = field(1)
    memory: int = field(2, kind="uint32")


@message
class App:
    command: list[str] = field(1)
    replicas: int = field(2, kind="int32")
    environment: dict[str, str] = field(3)
    policy: Policy = field(4)
    limits: Limits = field(5)
    paused: bool = field(6)
    icon: bytes = field(7)
    since: datetime.datetime = field(8)
    grace_period: datetime.timedelta = field(9)
    note: str | None = field(10)
    ports: dict[int, Limits] = field(11)


@dataclass(eq=False, repr=False)
class Int64Value(betterproto2.Message):
    """An optional number, in the form of generated code."""

    value: int = betterproto2.field(1, betterproto2.TYPE_INT64)

    @staticmethod
    def from_wrapped(wrapped: int) -> "Int64Value":
        return Int64Value(value=wrapped)

    def to_wrapped(self) -> int:
        return self.value


@dataclass(eq=False, repr=False)
class Choice(betterproto2.Message):
    """The features of generated classes only: a oneof, a wrapper, a field named like a keyword, renamed members."""

    path: str | None = betterproto2.field(1, betterproto2.TYPE_STRING, group="target")
    port: int | None = betterproto2.field(2, betterproto2.TYPE_UINT32, group="target")
    limits: Limits | None = betterproto2.field(3, betterproto2.TYPE_MESSAGE, group="target")  # noqa: RUF009 - as generated
    wrapped: int | None = betterproto2.field(4, betterproto2.TYPE_MESSAGE, unwrap=lambda: Int64Value, optional=True)
    from_: str = betterproto2.field(5, betterproto2.TYPE_STRING)
    state: ConditionState = betterproto2.field(  # noqa: RUF009 - as generated
        6, betterproto2.TYPE_ENUM, default_factory=lambda: ConditionState.UNKNOWN
    )


@message
class Every:
    """A field of every kind."""

    text: str = field(1)
    blob: bytes = field(2)
    flag: bool = field(3)
    int32: int = field(4, kind="int32")
    int64: int = field(5, kind="int64")
    uint32: int = field(6, kind="uint32")
    uint64: int = field(7, kind="uint64")
    sint32: int = field(8, kind="sint32")
    sint64: int = field(9, kind="sint64")
    fixed32: int = field(10, kind="fixed32")
    fixed64: int = field(11, kind="fixed64")
    sfixed32: int = field(12, kind="sfixed32")
    sfixed64: int = field(13, kind="sfixed64")
    single: float = field(14, kind="float")
    double: float = field(15)
    policy: Policy = field(16)
    limits: Limits = field(17)
    moment: datetime.datetime = field(18)
    span: datetime.timedelta = field(19)
    maybe_text: str | None = field(20)
    maybe_flag: bool | None = field(21)
    maybe_int: int | None = field(22)
    maybe_policy: Policy | None = field(23)
    maybe_limits: Limits | None = field(24)
    maybe_moment: datetime.datetime | None = field(25)
    maybe_span: datetime.timedelta | None = field(26)
    texts: list[str] = field(27)
    blobs: list[bytes] = field(28)
    flags: list[bool] = field(29)
    ints: list[int] = field(30)
    singles: list[float] = field(31, kind="float")
    policies: list[Policy] = field(32)
    parts: list[Limits] = field(33)
    moments: list[datetime.datetime] = field(34)
    spans: list[datetime.timedelta] = field(35)
    by_text: dict[str, str] = field(36)
    by_int: dict[int, float] = field(37)
    by_flag: dict[bool, Policy] = field(38)
    limits_of: dict[str, Limits] = field(39)
    moment_of: dict[str, datetime.datetime] = field(40)
    choice: Choice | None = field(41)
    choices: list[Choice] = field(42)


APP = ResourceType("fleet", "v1", "App", App)
NODE = ResourceType("fleet", "v1", "Node", Limits, scope=Scope.CLUSTER)
JOB = ResourceType("fleet", "v1", "Job", Limits)
LATER_JOB = ResourceType("fleet", "v2", "Job", Limits)
CHOICE = ResourceType("fleet", "v1", "Choice", Choice)
EVERY = ResourceType("fleet", "v1", "Every", Every, columns={"TEXT": "text", "LIMITS": "limits"})

REGISTRY = Registry()
for declared in (APP, NODE, JOB, LATER_JOB, CHOICE, EVERY):
    REGISTRY.register(declared)

SIGNED = {"int32": 32, "sint32": 32, "sfixed32": 32, "int64": 64, "sint64": 64, "sfixed64": 64}
UNSIGNED = {"uint32": 32, "fixed32": 32, "uint64": 64, "fixed64": 64}
# Texts that need quotes in YAML.
TREACHEROUS = [
    "",
    "yes",
    "NO",
    "null",
    "~",
    "1",
    "1.10",
    "1e3",
    "0o7",
    "1:30",
    "2024-01-01",
    "a: b",
    "# x",
    "- x",
    "*x",
]
TREACHEROUS += [
    "a\n",
    " a\nb\n",
    "\n",
    "a \n",
    "\ta",
    "a\n\n b\n",
    "\x85",
    "\u2028",
    "\ufeff",
    "<<",
    "=",
    "'",
    "---\n",
    "...",
]


def numbers() -> dict[str, st.SearchStrategy[Any]]:
    signed = {name: st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) for name, bits in SIGNED.items()}
    return signed | {name: st.integers(0, (1 << bits) - 1) for name, bits in UNSIGNED.items()}


text = st.text(max_size=12) | st.sampled_from(TREACHEROUS)
blob = st.binary(max_size=20)
whole = st.integers(-(1 << 63), (1 << 63) - 1)
double = st.floats(allow_nan=False)
single = st.floats(width=32, allow_nan=False)
policy = st.sampled_from(Policy)
limits = st.builds(Limits, cpu=double, memory=st.integers(0, (1 << 32) - 1))
moment = st.datetimes(timezones=st.just(datetime.UTC))
span = st.timedeltas(datetime.timedelta(days=-100_000), datetime.timedelta(days=100_000))
arms: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"path": text}),
    st.fixed_dictionaries({"port": st.integers(0, (1 << 32) - 1)}),
    st.fixed_dictionaries({"limits": limits}),
)
choice = st.builds(
    lambda arm, wrapped, from_, state: Choice(**arm, wrapped=wrapped, from_=from_, state=state),
    arms,
    st.none() | whole,
    text,
    st.sampled_from(list(ConditionState)),
)


def few(element: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(element, max_size=3)


def pairs(key: st.SearchStrategy[Any], value: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[Any, Any]]:
    return st.dictionaries(key, value, max_size=3)


FIELDS: dict[str, st.SearchStrategy[Any]] = numbers() | {
    "text": text, "blob": blob, "flag": st.booleans(), "single": single, "double": double,
    "policy": policy, "limits": limits, "moment": moment, "span": span,
    "maybe_text": st.none() | text, "maybe_flag": st.none() | st.booleans(), "maybe_int": st.none() | whole,
    "maybe_policy": st.none() | policy, "maybe_limits": st.none() | limits, "maybe_moment": st.none() | moment,
    "maybe_span": st.none() | span,
    "texts": few(text), "blobs": few(blob), "flags": few(st.booleans()), "ints": few(whole), "singles": few(single),
    "policies": few(policy), "parts": few(limits), "moments": few(moment), "spans": few(span),
    "by_text": pairs(text, text), "by_int": pairs(whole, double), "by_flag": pairs(st.booleans(), policy),
    "limits_of": pairs(text, limits), "moment_of": pairs(text, moment),
    "choice": st.none() | choice, "choices": few(choice),
}  # fmt: skip

# Few fields at once, so that a failing example is small.
every = st.lists(st.sampled_from(sorted(FIELDS)), max_size=12, unique=True).flatmap(
    lambda names: st.fixed_dictionaries({name: FIELDS[name] for name in names}).map(lambda values: Every(**values))
)
