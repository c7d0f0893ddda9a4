"""Generate the source of the functions of a message class that read messages: encoder, copier and comparisons.

Names in the generated encoder: m (message), o (output so far), v (value), n (length), p (pieces of a list or map), k
and w (the key and the whole of a map's entry).
"""

import struct

from headway.protobuf._decoder import indented
from headway.protobuf._plan import ClassPlan, FieldPlan, Globals, Value
from headway.protobuf._wire import (
    DELIMITED,
    FIXED_FORMATS,
    SHORT,
    VARINT_KINDS,
    heads,
    varint,
    wire_type,
)

# The encoders of varints of any length. They are called for those of two bytes or more.
_LONG_VARINT = {
    "int64": "signed_varint({}, 64)",
    **dict.fromkeys(("int32", "enum"), "signed_varint({}, 32)"),
    "uint64": "unsigned_varint({}, 64)",
    "uint32": "unsigned_varint({}, 32)",
    "sint64": "zigzag_varint({}, 64)",
    "sint32": "zigzag_varint({}, 32)",
}


# In steps: after so many elements.
_PAUSE = "if not len(p) & 15: yield"


def encoder_source(plan: ClassPlan, shared: Globals) -> str:
    """Return the source of ``encode_<n>(m)``. The objects that it refers to are added to ``shared``.

    In steps it is ``encoding_<n>``.
    """
    own = shared.number[plan.cls]
    # No argument has a default: in Python 3.13.0, calls that use one are not counted as recursion, so that a message
    # which contains itself would take all memory.
    lines = [f"def encoding_{own}(m):", " yield"] if shared.stepwise else [f"def encode_{own}(m):"]
    lines.append(" o = b''")
    for field in plan.fields:
        lines += indented(_field(field, own, shared))
    return "\n".join([*lines, " if (v := m._unknown_fields): o += v", " return o"])


def _field(field: FieldPlan, own: int, shared: Globals) -> list[str]:
    held = f"v := m.{field.name}"
    if field.key is not None:
        write = _map(field, field.key, shared)
        return [f"if ({held}).__class__ is not dict: must_be(Mapping, v)", "if v:", *indented(write)]
    if field.shape == "repeated":
        # The class comes first: an array that holds one zero is false.
        return [f"if ({held}).__class__ is not list: v = many(v)", "if v:", *indented(_list(field, shared))]
    write = _write(field.value, field.number, "v", "o += ", shared)
    if field.shape == "single" and field.value.kind in ("float", "double"):
        return _float(field, shared)
    if field.shape == "single" and field.value.kind != "message":
        return [f"if {_is_set(field)}:", *indented(write), *_else(field, own, shared)]
    if field.make_default is not None:
        # The message is never absent, so it is omitted if it is empty.
        write = _write(field.value, field.number, "v", "o += ", shared, keep_empty=False)
    return [f"if ({held}) is not None:", *indented(write)]


def _float(field: FieldPlan, shared: Globals) -> list[str]:
    """Return lines that write a number whose bytes are not zero.

    Negative zero is false but is written, and a number that is too small for a float becomes zero.
    """
    tag, code = _tag(field.number, wire_type(field.value.kind), shared), FIXED_FORMATS[field.value.kind]
    shared.objects[f"zero_{code}"] = struct.pack(f"<{code}", 0)
    return [
        f"if (v := m.{field.name}) or v.__class__ is not float or copysign(1.0, v) < 0:",
        f" if (p := pack_{code}(v)) != zero_{code}: o += tag_{tag} + p",
    ]


def _is_set(field: FieldPlan) -> str:
    """Return the condition under which a value is written. It raises for an empty value of a wrong type.

    A comparison with the default comes first where it costs less than a test of the value: most fields are unset.
    """
    held = f"(v := m.{field.name})"
    if field.value.kind == "bool":
        return f"{held} is not False"
    if field.value.kind == "string":
        return f"{held} is not no_text and (v or v.encode())"
    if field.value.kind == "bytes":
        return f"{held} is not no_bytes and (v or no_bytes + v)"
    return held


def _else(field: FieldPlan, own: int, shared: Globals) -> list[str]:
    """Return lines that refuse a zero of a wrong type, by an operation that also refuses other values of the type."""
    if field.value.kind in ("bool", "string", "bytes"):
        return []
    unset = "zero"
    if field.value.enum is not None:
        shared.objects[unset := f"unset_{own}_{field.number}"] = field.value.enum[0]
    return [f"elif v is not {unset}: digits[v]"]


def _tag(number: int, wire: int, shared: Globals) -> int:
    tag = number << 3 | wire
    shared.objects[f"heads_{tag}"] = heads(tag)
    shared.objects[f"tag_{tag}"] = varint(tag)
    return tag


def _write(
    value: Value,
    field_number: int,
    name: str,
    out: str,
    shared: Globals,
    *,
    keep_empty: bool = True,
) -> list[str]:
    """Return lines that append the tag and the value ``name`` to ``out``."""
    kind = value.kind
    tag = _tag(field_number, wire_type(kind), shared)
    if kind == "bool":
        return [f"if {name} is not True: must_be(bool, {name})", f"{out}heads_{tag}[1 if {name} else 0]"]
    if kind in VARINT_KINDS:
        return [f"{out}{_varint(kind, name, f'heads_{tag}', f'tag_{tag} + ')}"]
    if kind in FIXED_FORMATS:
        return [f"{out}tag_{tag} + pack_{FIXED_FORMATS[kind]}({name})"]
    lines: list[str] = []
    if kind == "bytes":
        # The length of other buffers need not be a number of bytes.
        lines = [f"if {name}.__class__ is not bytes: {name} = no_bytes + {name}"]
    elif kind == "string":
        lines = [f"{name} = {name}.encode()"]
    elif value.message is not None:
        own = shared.number[value.message]
        called = f"encode_{own}({{}})"
        if shared.stepwise and value.message not in shared.flat:
            called = f"yield from encoding_{own}({{}})"
        if value.wrapped:
            lines = [f"{name} = {called.format(f'class_{own}.from_wrapped({name})')}"]
        else:
            # A message of another class would be read by the names of its fields.
            check = f"if {name}.__class__ is not class_{own}: must_be(class_{own}, {name})"
            lines = [check, f"{name} = {called.format(name)}"]
    put = f"{out}{_delimited(tag, name)}"
    return [*lines, put if keep_empty else f"if {name}: {put}"]


def _varint(kind: str, name: str, short: str, before: str) -> str:
    """Return the expression that encodes a number: one of the list ``short``, or ``before`` and a long varint.

    No calculation may overflow, since an integer of a library such as numpy has few bits.
    """
    long = f"{before}{_LONG_VARINT[kind].format(name)}"
    if not kind.startswith("s"):
        return f"{short}[{name}] if 0 <= {name} < {SHORT} else {long}"
    zigzag = f"{name} + {name} if {name} >= 0 else ~({name} + {name})"
    return f"{short}[{zigzag}] if -{SHORT // 2} <= {name} < {SHORT // 2} else {long}"


def _delimited(tag: int, name: str) -> str:
    head = f"(heads_{tag}[n] if (n := len({name})) < {SHORT} else long_head({tag}, n))"
    return f"{head} + {name}"


def _list(field: FieldPlan, shared: Globals) -> list[str]:
    kind = field.value.kind
    if wire_type(kind) == DELIMITED:
        write = _write(field.value, field.number, "v", "p.append(", shared)
        write[-1] += ")"
        if shared.stepwise:
            write.append(_PAUSE)
        # Joined once at the end, since repeated concatenation would take quadratic time.
        return ["p = []", "for v in v:", *indented(write), "o += b''.join(p)"]
    tag = _tag(field.number, DELIMITED, shared)
    if kind in FIXED_FORMATS:
        return [f"p = pack(f'<{{len(v)}}{FIXED_FORMATS[kind]}', *v)", f"o += {_delimited(tag, 'p')}"]
    if kind == "bool":
        element = "b'\\x01' if v is True else b'\\x00' if v is False else must_be(bool, v)"
    else:
        element = _varint(kind, "v", "digits", "")
    return [f"p = b''.join([{element} for v in v])", f"o += {_delimited(tag, 'p')}"]


def _map(field: FieldPlan, key: Value, shared: Globals) -> list[str]:
    tag = _tag(field.number, DELIMITED, shared)
    return [
        "p = []",
        "for k, v in v.items():",
        *indented(_write(key, 1, "k", "w = ", shared)),
        *indented(_write(field.value, 2, "v", "w += ", shared)),
        f" p.append({_delimited(tag, 'w')})",
        *([f" {_PAUSE}"] if shared.stepwise else []),
        "o += b''.join(p)",
    ]


def copier_source(plan: ClassPlan, shared: Globals) -> str:
    """Return the source of ``copy_<n>(m)``, which returns a copy that shares only immutable values with ``m``."""
    own = shared.number[plan.cls]
    by_name = {field.name: field for field in plan.fields}
    lines = [f"def copy_{own}(m):", f" c = {plan.maker(own)}"]
    for name in plan.names:
        lines += indented(_copy_field(by_name[name], shared))
    return "\n".join([*lines, " c._unknown_fields = m._unknown_fields", " return c"])


def _copy_field(field: FieldPlan, shared: Globals) -> list[str]:
    name, value = field.name, field.value
    # A wrapped value (a datetime, a str) is immutable.
    inner = None if value.message is None or value.wrapped else f"copy_{shared.number[value.message]}"
    if field.shape == "repeated":
        return [f"c.{name} = {f'[{inner}(v) for v in m.{name}]' if inner else f'list(m.{name})'}"]
    if field.shape == "map":
        copied = f"{{k: {inner}(v) for k, v in m.{name}.items()}}" if inner else f"dict(m.{name})"
        return [f"c.{name} = {copied}"]
    if inner:
        return [f"c.{name} = None if (v := m.{name}) is None else {inner}(v)"]
    return [f"c.{name} = m.{name}"]


def equality_source(plan: ClassPlan, shared: Globals) -> str:
    """Return the source of ``equal_<n>(a, b)``, which compares all fields, including unknown ones."""
    own = shared.number[plan.cls]
    checks = ["a._unknown_fields == b._unknown_fields", *(_equal(field, shared) for field in plan.fields)]
    body = "\n  and ".join(checks)
    return (
        f"def equal_{own}(a, b):\n if a is b: return True\n"
        f" if a is None or b is None or a.__class__ is not b.__class__: return False\n"
        f" return bool(\n  {body}\n )"
    )


def unknown_source(plan: ClassPlan, shared: Globals) -> str:
    """Return the source of ``unknown_<n>(m)``: True if the message, or one in it, has fields that its class lacks."""
    checks = ["m._unknown_fields"]
    for field in plan.fields:
        if field.value.message is not None and not field.value.wrapped:
            inner, held = f"unknown_{shared.number[field.value.message]}", f"m.{field.name}"
            if field.shape == "repeated":
                checks.append(f"any(map({inner}, {held}))")
            elif field.shape == "map":
                checks.append(f"any(map({inner}, {held}.values()))")
            else:
                checks.append(f"((v := {held}) is not None and {inner}(v))")
    return f"def unknown_{shared.number[plan.cls]}(m):\n return bool({' or '.join(checks)})"


def _equal(field: FieldPlan, shared: Globals) -> str:
    value = field.value
    left, right = f"a.{field.name}", f"b.{field.name}"
    if value.message is not None and not value.wrapped:
        same = f"equal_{shared.number[value.message]}"
    elif value.kind in ("float", "double"):
        same = "equal_floats"
    else:
        return f"{left} == {right}"
    if field.shape == "repeated":
        return f"len({left}) == len({right}) and all(map({same}, {left}, {right}))"
    if field.shape == "map":
        both = f"{left}.keys() == {right}.keys()"
        return f"{both} and all([{same}(v, {right}[k]) for k, v in {left}.items()])"
    return f"{same}({left}, {right})"
