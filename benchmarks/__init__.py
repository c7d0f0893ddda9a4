"""Benchmarks: ratios of two things measured in the same run, one scenario per file.

The docstring of each scenario says what is measured, what it is compared with, and what is left out. `_harness.py`
measures and prints. `_message.py` has the message that all scenarios use.
"""
