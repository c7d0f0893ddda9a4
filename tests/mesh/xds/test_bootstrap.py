"""The file with which an Envoy starts."""

from __future__ import annotations

from mesh.checks.limits import LARGEST_PROGRAM
from mesh.xds import bootstrap


def test_proxy_without_a_server_tries_again_every_few_seconds() -> None:
    """By default, it would wait for up to half a minute, and miss all changes until then."""
    ads = bootstrap("web-1", "127.0.0.1:9000")["dynamic_resources"]["ads_config"]
    (service,) = ads["grpc_services"]
    assert service["envoy_grpc"]["retry_policy"]["retry_back_off"] == {"base_interval": "0.5s", "max_interval": "5s"}


def test_proxy_takes_the_patterns_of_long_names() -> None:
    """By default, it would refuse a permission for an identity and a namespace of 63 characters each."""
    (layer,) = bootstrap("web-1", "127.0.0.1:9000")["layered_runtime"]["layers"]
    assert layer["static_layer"]["re2"]["max_program_size"]["error_level"] > LARGEST_PROGRAM
