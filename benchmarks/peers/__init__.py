"""Benchmarks against programs of other runtimes, which `make bench-peers` builds and runs in turn with Headway's."""
