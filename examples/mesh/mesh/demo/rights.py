"""The access file: an operator, and one token for each identity, with which its proxies may be it and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from headway.access import new_token

OPERATOR = "operator"
_EVERYWHERE = {"partition": "*", "namespace": "*"}


def write(path: Path, identities: Iterable[str]) -> dict[str, str]:
    """Write an access file. Return the tokens of the operator and of the identities, by their names."""
    policies: list[dict[str, object]] = [{"name": OPERATOR, "rules": [{"verbs": ["*"], "type": "*", **_EVERYWHERE}]}]
    for name in identities:
        own = {"type": "auth.v2beta1.WorkloadIdentity", "partition": "default", "namespace": "default"}
        policies.append({"name": name, "rules": [{"verbs": ["write"], **own, "name_prefix": name}]})
    texts: dict[str, str] = {}
    tokens: list[dict[str, object]] = []
    for each in policies:
        name = str(each["name"])
        texts[name], token = new_token([name])
        tokens.append({"accessor": token.accessor, "hash": token.hash, "policies": [name]})
    path.touch(mode=0o600)
    # JSON is YAML.
    path.write_text(json.dumps({"policies": policies, "tokens": tokens}))
    return texts
