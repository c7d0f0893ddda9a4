"""Generate the source of the functions that copy and compare messages of a class."""

from headway.protobuf._decoder import indented
from headway.protobuf._plan import ClassPlan, FieldPlan


def copier_source(plan: ClassPlan, number: dict[type, int]) -> str:
    """Return the source of ``copy_<n>(m)``, which returns a copy that shares only immutable values with ``m``."""
    own = number[plan.cls]
    by_name = {field.name: field for field in plan.fields}
    lines = [f"def copy_{own}(m):", f" c = {plan.maker(own)}"]
    for name in plan.names:
        lines += indented(_copy_field(by_name[name], number))
    return "\n".join([*lines, " c._unknown_fields = m._unknown_fields", " return c"])


def _copy_field(field: FieldPlan, number: dict[type, int]) -> list[str]:
    name, value = field.name, field.value
    # A wrapped value (a datetime, a str) is immutable.
    inner = None if value.message is None or value.wrapped else f"copy_{number[value.message]}"
    if field.shape == "repeated":
        return [f"c.{name} = {f'[{inner}(v) for v in m.{name}]' if inner else f'list(m.{name})'}"]
    if field.shape == "map":
        copied = f"{{k: {inner}(v) for k, v in m.{name}.items()}}" if inner else f"dict(m.{name})"
        return [f"c.{name} = {copied}"]
    if inner:
        return [f"c.{name} = None if (v := m.{name}) is None else {inner}(v)"]
    return [f"c.{name} = m.{name}"]


def equality_source(plan: ClassPlan, number: dict[type, int]) -> str:
    """Return the source of ``equal_<n>(a, b)``, which compares all fields, including unknown ones."""
    own = number[plan.cls]
    checks = ["a._unknown_fields == b._unknown_fields", *(_equal(field, number) for field in plan.fields)]
    body = "\n  and ".join(checks)
    return (
        f"def equal_{own}(a, b):\n if a is b: return True\n"
        f" if a is None or b is None or a.__class__ is not b.__class__: return False\n"
        f" return bool(\n  {body}\n )"
    )


def _equal(field: FieldPlan, number: dict[type, int]) -> str:
    value = field.value
    left, right = f"a.{field.name}", f"b.{field.name}"
    if value.message is not None and not value.wrapped:
        same = f"equal_{number[value.message]}"
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
