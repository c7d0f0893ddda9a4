"""Generate the source of a message class's decoder.

The decoder expects fields in the order of their numbers, the usual order on the wire. After each field it continues
with the next `if`, and returns to the first one only when a field is out of order. Names in the generated code: data,
i (index), end, depth, m (message), t (tag), n (length), e (end of the value), v (value), w (its second byte).
"""

from headway.protobuf._plan import ClassPlan, FieldPlan, Globals, Value
from headway.protobuf._wire import (
    DELIMITED,
    DEPTH_LIMIT,
    FIXED64,
    FIXED_FORMATS,
    VARINT_KINDS,
    wire_type,
)

# In steps: a step reads some more than this, and a value of up to twice as much, in bytes, or the text of one string.
_STEP = 64
_PAUSE = f"if i > y: y = i + {_STEP}; yield"
_NEXT_TAG = ["t = data[i]; i += 1", "if t > 127: t, i = read_varint(data, i - 1)"]

# The conversion of a varint of more than two bytes.
_LONG_VARINT = {
    "int64": ["if v > 0x7FFFFFFFFFFFFFFF: v -= 1 << 64"],
    **{kind: ["v &= 0xFFFFFFFF", "if v > 0x7FFFFFFF: v -= 1 << 32"] for kind in ("int32", "enum")},
    "uint32": ["v &= 0xFFFFFFFF"],
    "sint32": ["v &= 0xFFFFFFFF"],
}
_LITERALS = {"string": "''", "bytes": "b''", "bool": "False", "float": "0.0", "double": "0.0"}


def indented(lines: list[str], by: int = 1) -> list[str]:
    """Return the lines, indented."""
    return [" " * by + line for line in lines]


def decoder_source(plan: ClassPlan, shared: Globals) -> str:
    """Return the source of ``decode_<n>(data, i, end, depth)``. Objects that it refers to are added to ``shared``.

    In steps it is ``decoding_<n>``.
    """
    own = shared.number[plan.cls]
    blocks: list[str] = []
    entries: list[str] = []
    tags: set[int] = set()
    for field in plan.fields:
        suffix = f"{own}_{field.number}"
        blocks += _field_blocks(field, suffix, shared, tags)
        if field.key is not None:
            entries += _entry_function(field, field.key, suffix, shared)
    if shared.stepwise:
        blocks = [_PAUSE, *blocks]
    shared.objects[f"tags_{own}"] = frozenset(tags)
    shared.objects[f"names_{own}"] = {field.number: field.name for field in plan.fields}
    by_name = {field.name: field for field in plan.fields}
    lines = [
        *entries,
        f"def {_reader(shared)}_{own}(data, i, end, depth):",
        *([" y = i"] if shared.stepwise else []),
        f" m = {plan.maker(own)}",
        *(f" m.{name} = {_default(by_name[name], own, shared)}" for name in plan.names),
        " m._unknown_fields = b''",
        *_loop(blocks, "m", f"tags_{own}", f"names_{own}", keep_unknown=True),
    ]
    return "\n".join(lines)


def _loop(blocks: list[str], result: str, tags: str, names: str, *, keep_unknown: bool) -> list[str]:
    kept = ["if rest is None: rest = []", "rest += (varint(t), data[i:j])"] if keep_unknown else []
    rest = ["if rest: m._unknown_fields = b''.join(rest)"] if keep_unknown else []
    return indented(
        [
            f"if i >= end: return {result}",
            f"if depth > {DEPTH_LIMIT}: raise too_deep()",
            "t = 0",
            *(["rest = None"] if keep_unknown else []),
            "try:",
            *indented(_NEXT_TAG),
            " while True:",
            *indented(blocks, 2),
            f"  if t not in {tags}:",
            "   j = skip(data, t, i, depth)",
            *indented(kept, 3),
            "   i = j",
            *indented(_go_on("break"), 3),
            f"except PayloadError as error: raise located({names}, t, error) from None",
            f"except MALFORMED as error: raise malformed({names}, t, error) from error",
            f"if i > end: raise located({names}, t, truncated())",
            *rest,
            f"return {result}",
        ]
    )


def _go_on(at_end: str) -> list[str]:
    return [f"if i >= end: {at_end}", *_NEXT_TAG]


def _default(field: FieldPlan, own: int, shared: Globals) -> str:
    if field.shape == "repeated":
        return "[]"
    if field.shape == "map":
        return "{}"
    if field.make_default is None:
        return "None"
    return _empty(field.value, f"{own}_{field.number}", shared, field.make_default)


def _empty(value: Value, suffix: str, shared: Globals, make: object) -> str:
    if value.kind == "message":
        shared.objects[f"empty_{suffix}"] = make
        return f"empty_{suffix}()"
    if value.enum is not None:
        shared.objects[f"enum_{suffix}"] = value.enum
        return f"enum_{suffix}[0]"
    return _LITERALS.get(value.kind, "0")


def _field_blocks(field: FieldPlan, suffix: str, shared: Globals, tags: set[int]) -> list[str]:
    tag = field.number << 3
    if field.key is not None:
        tags.add(tag | DELIMITED)
        read = [*_LENGTH, f"k, v = {_called(f'entry_{suffix}', shared)}"]
        return _while(tag | DELIMITED, [*read, f"m.{field.name}[k] = v", "i = e"], shared)
    if field.shape == "repeated":
        return _repeated(field, suffix, shared, tags)
    tags.add(tag | wire_type(field.value.kind))
    clear = [f"m.{rival} = None" for rival in field.rivals]
    read = [*_read(field.value, suffix, shared, f"m.{field.name} = {{}}"), *clear]
    return [f"if t == {tag | wire_type(field.value.kind)}:", *indented(read), *indented(_go_on("break"))]


def _reader(shared: Globals) -> str:
    return "decoding" if shared.stepwise else "decode"


def _called(function: str, shared: Globals) -> str:
    """Return the expression that reads the message, or the entry of a map, from ``i`` to ``e``."""
    at_once = f"decode_{function}(data, i, e, depth + 1)"
    if not shared.stepwise:
        return at_once
    return f"({at_once} if n <= {2 * _STEP} else (yield from decoding_{function}(data, i, e, depth + 1)))"


def _while(tag: int, read: list[str], shared: Globals) -> list[str]:
    if shared.stepwise:
        read = [*read, _PAUSE]
    # -1 is not a valid tag: it signals that the data ended inside the inner loop.
    return [f"while t == {tag}:", *indented(read), *indented(_go_on("t = -1; break")), "if t < 0: break"]


def _repeated(field: FieldPlan, suffix: str, shared: Globals, tags: set[int]) -> list[str]:
    kind = field.value.kind
    one = field.number << 3 | wire_type(kind)
    append = f"m.{field.name}.append({{}})"
    read = _read(field.value, suffix, shared, append)
    tags.add(one)
    lines = _while(one, read, shared)
    if wire_type(kind) != DELIMITED:
        packed = field.number << 3 | DELIMITED
        tags.add(packed)
        many = [*_LENGTH, *_packed(field, read, shared), "if i != e: raise truncated()"]
        lines = _while(packed, many, shared) + lines
    return lines


def _packed(field: FieldPlan, read: list[str], shared: Globals) -> list[str]:
    kind = field.value.kind
    if kind in VARINT_KINDS:
        return ["while i < e:", *indented([*read, _PAUSE] if shared.stepwise else read)]
    size = 8 if wire_type(kind) == FIXED64 else 4
    code = FIXED_FORMATS[kind]
    return [f"m.{field.name} += unpack('<%d{code}' % (n // {size}), data[i:e])", "i = e"]


_LENGTH = [
    "n = data[i]; i += 1",
    "if n > 127: n, i = read_varint(data, i - 1)",
    "e = i + n",
    "if e > end: raise truncated()",
]


def _read(value: Value, suffix: str, shared: Globals, put: str) -> list[str]:
    """Return lines that read one value at ``i`` and store it by the template ``put``."""
    kind = value.kind
    if kind in VARINT_KINDS:
        return _read_varint(value, suffix, shared, put)
    if kind in FIXED_FORMATS:
        size = 8 if wire_type(kind) == FIXED64 else 4
        return [put.format(f"unpack_{FIXED_FORMATS[kind]}(data, i)[0]"), f"i += {size}"]
    if value.message is not None:
        expression = _called(str(shared.number[value.message]), shared)
        if value.wrapped:
            expression += ".to_wrapped()"
    else:
        expression = "data[i:e].decode()" if kind == "string" else "data[i:e]"
    return [*_LENGTH, put.format(expression), "i = e"]


def _read_varint(value: Value, suffix: str, shared: Globals, put: str) -> list[str]:
    kind = value.kind
    expression = "v"
    if value.enum is not None:
        shared.objects[f"enum_{suffix}"] = value.enum
        expression = f"enum_{suffix}[v]"
    elif kind == "bool":
        expression = "v != 0"
    elif kind in ("sint32", "sint64"):
        expression = "(v >> 1) ^ -(v & 1)"
    return [
        "v = data[i]; i += 1",
        "if v > 127:",
        # Many values, such as port numbers, have two bytes. A call for each would cost more than the rest of a message.
        " w = data[i]",
        " if w < 128: v += (w << 7) - 128; i += 1",
        " else:",
        "  v, i = read_varint(data, i - 1)",
        *indented(_LONG_VARINT.get(kind, []), 2),
        put.format(expression),
    ]


def _entry_function(field: FieldPlan, key: Value, suffix: str, shared: Globals) -> list[str]:
    """Return the lines of a function that decodes an entry of a map field into a pair of key and value."""
    value = field.value
    # An entry without a value has an empty one. Each entry needs its own object.
    absent = _empty(value, suffix, shared, None)
    if value.message is not None:
        absent = f"decode_{shared.number[value.message]}(b'', 0, 0, 0)"
        if value.wrapped:
            absent += ".to_wrapped()"
    key_tag, value_tag = 1 << 3 | wire_type(key.kind), 2 << 3 | wire_type(value.kind)
    shared.objects[f"entry_tags_{suffix}"] = frozenset([key_tag, value_tag])
    blocks: list[str] = []
    for tag, part, target in ((key_tag, key, "key"), (value_tag, value, "value")):
        read = _read(part, suffix, shared, f"{target} = {{}}")
        blocks += [f"if t == {tag}:", *indented(read), *indented(_go_on("break"))]
    held = "value"
    if value.message is not None:
        held = f"({absent} if value is None else value)"
    if shared.stepwise:
        blocks = [_PAUSE, *blocks]
    return [
        f"def {_reader(shared)}_entry_{suffix}(data, i, end, depth):",
        *([" y = i"] if shared.stepwise else []),
        f" key = {_LITERALS.get(key.kind, '0')}",
        f" value = {'None' if value.message is not None else absent}",
        *_loop(blocks, f"key, {held}", f"entry_tags_{suffix}", "entry_names", keep_unknown=False),
    ]
