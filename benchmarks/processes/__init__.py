"""What one server of one process and of two can do: `python -m benchmarks.processes`."""
