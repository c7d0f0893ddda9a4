"""Hypothesis profiles: the default is bounded for `make test`; `deep` is for `make prove`."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile("default", max_examples=60, stateful_step_count=30, deadline=None)
settings.register_profile(
    "deep",
    max_examples=2000,
    stateful_step_count=80,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
