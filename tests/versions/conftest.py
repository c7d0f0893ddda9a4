"""The fixtures of the service, which these tests use with types that have converters."""

from tests.service.conftest import backend as backend
from tests.service.conftest import in_memory as in_memory
