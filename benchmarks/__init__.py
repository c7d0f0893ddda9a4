"""The numbers to hold: ratios of two things measured in the same run, one scenario a file.

Each scenario's docstring says what is measured against what, and what is left out. `_harness.py` measures and
prints, `_message.py` holds the message that all of them use.
"""
