"""The program `headway`, which is also ``python -m headway.cli``."""

import atexit
import gc


def program() -> None:
    """Run the command line as the program of this process.

    Most commands end soon after their imports, and no module becomes garbage. So the collector is off until the work of
    the command begins (`_running.py`), and modules are excluded from its last passes, when the process ends.
    """
    gc.disable()
    atexit.register(gc.freeze)

    from headway.cli._main import main

    main()


if __name__ == "__main__":
    program()
