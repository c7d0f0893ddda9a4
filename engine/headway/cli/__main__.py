"""The entry point of ``python -m headway.cli``."""

from headway.cli import main

main()
