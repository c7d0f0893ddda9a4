"""Find what of a change to a CRD the cluster would refuse, and what would lose data. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headway.kubernetes._schema import PRESERVE, Schema

_RULES = "x-kubernetes-validations"
# A greater value of these is stricter; both exclusive ones are booleans.
_LEAST = ("minimum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "minItems", "minProperties")
_MOST = ("maximum", "maxLength", "maxItems", "maxProperties")
_REFUSED = "the cluster may refuse writes of objects with other values"
_OTHERS = ("pattern", "format", "multipleOf")


def diff(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a change of a CustomResourceDefinition, a sentence for each problem.

    Args:
        old: the present document, best as the cluster has it, because its status lists the stored versions.
        new: the document that would replace it.
    """
    return [*_names(old["spec"], new["spec"]), *_versions(old, new), *_conversions(old["spec"], new["spec"])]


def _names(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    renamed = "the cluster takes it for another type; objects of the old one are not moved"
    refused = "the cluster refuses it while the type exists"
    for what, problem in (("group", renamed), ("plural", renamed), ("scope", refused), ("kind", refused)):
        before, after = ((each | each["names"])[what] for each in (old, new))
        if before != after:
            yield f"spec.{what if what in old else f'names.{what}'} changes from {before} to {after}: {problem}"


def _versions(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    before = {each["name"]: each for each in old["spec"]["versions"]}
    after = {each["name"]: each for each in new["spec"]["versions"]}
    stored = (old.get("status") or {}).get("storedVersions") or [
        name for name, each in before.items() if each["storage"]
    ]
    for name, version in before.items():
        if name not in after and name in stored:
            yield (
                f"{name} is removed, but objects may be stored in it: the cluster refuses it until they are rewritten "
                "and status.storedVersions is without it"
            )
        served = name in after and after[name]["served"]
        if version["served"] and not served:
            yield f"{name} is no longer served: clients that use it fail"
        if name not in after:
            continue
        if "status" in version.get("subresources", {}) and "status" not in after[name].get("subresources", {}):
            yield f"{name} loses the subresource status: writers of the status fail, and spec writers can change it"
        yield from _schemas(name, version["schema"]["openAPIV3Schema"], after[name]["schema"]["openAPIV3Schema"], "")


def _conversions(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    # An apply without the field leaves it as it is.
    strategy = (new.get("conversion") or old.get("conversion") or {}).get("strategy")
    first, *others = new["versions"]
    for each in others if strategy != "Webhook" else ():
        if each["schema"] != first["schema"]:
            yield (
                f"{first['name']} and {each['name']} differ, and no webhook converts between them: fields that only "
                "one of them has are dropped; declare app.converter(...), and give --webhooks-at"
            )


def _schemas(version: str, old: Schema, new: Schema, path: str) -> Iterator[str]:
    where = f"{version} {path or 'the object'}"
    if old.get("type") != new.get("type"):
        if (old.get("type"), new.get("type")) != ("integer", "number"):
            yield f"{where} changes from {old.get('type')} to {new.get('type')}: stored values become invalid"
        return
    if old.get(PRESERVE) and not new.get(PRESERVE):
        yield f"{where} keeps no unknown fields any more: they are dropped at the next write of an object"
    properties, kept = old.get("properties", {}), new.get("properties", {})
    open_ended = new.get(PRESERVE) or "additionalProperties" in new
    for name, inner in properties.items():
        below = f"{path}.{name}" if path else name
        if name in kept:
            yield from _schemas(version, inner, kept[name], below)
        elif not open_ended:
            yield f"{version} {below} is removed: its values are dropped at the next write of an object"
    for name in sorted(set(new.get("required", ())) - set(old.get("required", ()))):
        if "default" not in kept.get(name, {}):
            below = f"{path}.{name}" if path else name
            yield f"{version} {below} becomes required: objects without it are refused; give it a default"
    for inner in ("items", "additionalProperties"):
        if inner in old and inner in new:
            yield from _schemas(version, old[inner], new[inner], f"{path}[*]")
        elif inner in old and not open_ended:
            yield f"{where} has no {inner} any more: its values are dropped at the next write of an object"
    gone = [value for value in old.get("enum", ()) if value not in new.get("enum", (value,))]
    if gone:
        yield f"{where} loses the value{'s' * (len(gone) > 1)} {', '.join(map(str, gone))}: {_REFUSED}"
    elif "enum" in new and "enum" not in old:
        yield f"{where} takes only {', '.join(map(str, new['enum']))} from now on: {_REFUSED}"
    for keyword in (*_LEAST, *_MOST, *_OTHERS):
        limit, before = new.get(keyword), old.get(keyword)
        if limit is None or limit == before:
            continue
        if before is None or keyword in _OTHERS or (limit > before) == (keyword in _LEAST):
            yield f"{where} has {keyword} {limit}, before {'none' if before is None else before}: {_REFUSED}"
    rules = {each["rule"] for each in old.get(_RULES, ())}
    for each in new.get(_RULES, ()):
        if each["rule"] not in rules:
            yield f"{where} has the new rule {each['rule']}: {_REFUSED}"
    for keyword in ("x-kubernetes-list-type", "x-kubernetes-list-map-keys"):
        if keyword in new and new[keyword] != old.get(keyword):
            yield f"{where} has {keyword} {new[keyword]}: lists with equal keys are refused"
