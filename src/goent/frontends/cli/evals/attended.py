"""How does a run end with whoever started it? When nobody holds the other end of its standard input."""

import os
import signal
from threading import Thread

STDIN = 0


def end_with_input() -> None:
    """From now on, the end of the input is a request to end: a killed daemon cannot send another."""
    Thread(target=_wait_for_the_end, name="end of input", daemon=True).start()


def _wait_for_the_end() -> None:
    try:
        while os.read(STDIN, 4096):
            pass
    except OSError:
        pass
    os.kill(os.getpid(), signal.SIGTERM)
