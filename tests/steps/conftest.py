"""The stores and transports that steps are tested with: those of the contract."""

from tests.run.conftest import setting as setting
