"""Generate the source of a message class's encoder.

Names in the generated code: m (message), o (output so far), v (value), n (length), p (pieces of a list or map), k and w
(the key and the whole of a map's entry).
"""

from headway.protobuf._decoder import indented
from headway.protobuf._plan import ClassPlan, FieldPlan, Value
from headway.protobuf._wire import (
    DELIMITED,
    FIXED_FORMATS,
    SHORT,
    VARINT_KINDS,
    heads,
    varint,
    wire_type,
)

_WRITERS = {"enum": "write_int64", "sint32": "write_uint32", "sint64": "write_uint64"}


def encoder_source(plan: ClassPlan, known: dict[str, object], number: dict[type, int]) -> str:
    """Return the source of ``encode_<n>(m)``. The objects that it refers to are added to ``known``."""
    lines = [f"def encode_{number[plan.cls]}(m):", " o = b''"]
    for field in plan.fields:
        lines += indented(_field(field, known, number))
    return "\n".join([*lines, " if (v := m._unknown_fields): o += v", " return o"])


def _field(field: FieldPlan, known: dict[str, object], number: dict[type, int]) -> list[str]:
    held = f"v := m.{field.name}"
    if field.key is not None:
        return [f"if ({held}):", *indented(_map(field, field.key, known, number))]
    if field.shape == "repeated":
        return [f"if ({held}):", *indented(_list(field, known, number))]
    write = _write(field.value, field.number, "v", "o += ", known, number)
    if field.shape == "single" and field.value.kind != "message":
        return [f"if ({held}):", *indented(write)]
    if field.make_default is not None:
        # The message is never absent, so it is omitted if it is empty.
        write = _write(field.value, field.number, "v", "o += ", known, number, keep_empty=False)
    return [f"if ({held}) is not None:", *indented(write)]


def _tag(number: int, wire: int, known: dict[str, object]) -> int:
    tag = number << 3 | wire
    known[f"heads_{tag}"] = heads(tag)
    known[f"tag_{tag}"] = varint(tag)
    return tag


def _write(
    value: Value,
    field_number: int,
    name: str,
    out: str,
    known: dict[str, object],
    number: dict[type, int],
    *,
    keep_empty: bool = True,
) -> list[str]:
    """Return lines that append the tag and the value ``name`` to ``out``."""
    kind = value.kind
    tag = _tag(field_number, wire_type(kind), known)
    if kind == "bool":
        return [f"{out}heads_{tag}[1 if {name} else 0]"]
    if kind in VARINT_KINDS:
        zigzag = [f"{name} = {name} << 1 if {name} >= 0 else ~({name} << 1)"] if kind.startswith("s") else []
        writer = _WRITERS.get(kind, f"write_{kind}")
        short = f"heads_{tag}[{name}] if 0 <= {name} < {SHORT}"
        return [*zigzag, f"{out}{short} else tag_{tag} + {writer}({name})"]
    if kind in FIXED_FORMATS:
        return [f"{out}tag_{tag} + pack_{FIXED_FORMATS[kind]}({name})"]
    lines: list[str] = []
    if kind == "string":
        lines = [f"{name} = {name}.encode()"]
    elif value.message is not None:
        own = number[value.message]
        lines = [f"{name} = encode_{own}({f'class_{own}.from_wrapped({name})' if value.wrapped else name})"]
    put = f"{out}{_delimited(tag, name)}"
    return [*lines, put if keep_empty else f"if {name}: {put}"]


def _delimited(tag: int, name: str) -> str:
    head = f"(heads_{tag}[n] if (n := len({name})) < {SHORT} else long_head({tag}, n))"
    return f"{head} + {name}"


def _list(field: FieldPlan, known: dict[str, object], number: dict[type, int]) -> list[str]:
    kind = field.value.kind
    if wire_type(kind) == DELIMITED:
        write = _write(field.value, field.number, "v", "p += (", known, number)
        write[-1] += ",)"
        # Joined once at the end, since repeated concatenation would take quadratic time. A str given in place of a
        # list must be rejected: a loop would take it for a list of characters.
        one = ["if v.__class__ is str: raise TypeError('one text')"] if kind == "string" else []
        return [*one, "p = []", f"for v in m.{field.name}:", *indented(write), "o += b''.join(p)"]
    tag = _tag(field.number, DELIMITED, known)
    if kind in FIXED_FORMATS:
        return [f"p = pack(f'<{{len(v)}}{FIXED_FORMATS[kind]}', *v)", f"o += {_delimited(tag, 'p')}"]
    if kind == "bool":
        element = "b'\\x01' if v else b'\\x00'"
    elif kind.startswith("s"):
        element = f"{_WRITERS[kind]}(v << 1 if v >= 0 else ~(v << 1))"
    else:
        element = f"digits[v] if 0 <= v < {SHORT} else {_WRITERS.get(kind, f'write_{kind}')}(v)"
    return [f"p = b''.join([{element} for v in v])", f"o += {_delimited(tag, 'p')}"]


def _map(field: FieldPlan, key: Value, known: dict[str, object], number: dict[type, int]) -> list[str]:
    tag = _tag(field.number, DELIMITED, known)
    return [
        "p = []",
        "for k, v in v.items():",
        *indented(_write(key, 1, "k", "w = ", known, number)),
        *indented(_write(field.value, 2, "v", "w += ", known, number)),
        f" p.append({_delimited(tag, 'w')})",
        "o += b''.join(p)",
    ]
