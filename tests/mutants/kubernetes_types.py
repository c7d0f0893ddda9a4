"""Mutants of what a Kubernetes object is as a payload, and of the schemas of types."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_JSON, _SCHEMA = "kubernetes/test_json.py", "kubernetes/test_schema.py"
_REVIEWS = "kubernetes/test_reviews.py"

KUBERNETES_TYPE_MUTANTS = (
    Mutant(
        "JSON that a class does not know is dropped",
        "kubernetes/_json.py",
        "        if left:\n",
        "        if left < 0:\n",
        _JSON,
        "unknown_fields_survive",
    ),
    Mutant(
        "unknown JSON of an item without a name stays at its index when the list has become shorter",
        "kubernetes/_json.py",
        'kept["count"] == len(values)',
        "values",
        _JSON,
        "unknown_fields_survive",
    ),
    Mutant(
        "a zero of an object is read as an absent field",
        "kubernetes/_json.py",
        "return value if unset or (written",
        "return value if (written",
        _JSON,
        "zeros_of_an_object",
    ),
    Mutant(
        "another form of a value stays after a change of the value",
        "kubernetes/_json.py",
        "        return bool(read(kept) == value)\n",
        "        return bool(read(kept) is not None)\n",
        _JSON,
        "other_forms_of_a_value",
    ),
    Mutant(
        "the fields around a required field are not required",
        "kubernetes/_schema.py",
        "                self._required.add(parent)\n",
        "",
        _SCHEMA,
        "required_fields",
    ),
    Mutant(
        "a conversion loses the fields that its program does not know",
        "kubernetes/_json.py",
        "_kept_field(_carried(type(source), _kept_of(source) or {}, wanted))",
        "_kept_field({})",
        _REVIEWS,
        "no_class_knows",
    ),
    Mutant(
        "a write in an older version loses the fields of the newer one",
        "kubernetes/_reviews.py",
        "                if different_fields(given, back):\n",
        "                if False:\n",
        _REVIEWS,
        "older_version_keeps",
    ),
    Mutant(
        "an annotation that somebody has made stops the conversion",
        "kubernetes/_reviews.py",
        "RecursionError, BadConversion):\n            stored",
        "RecursionError):\n            stored",
        _REVIEWS,
        "somebody",
    ),
)
