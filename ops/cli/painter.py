"""A process that loads matplotlib while this one computes, and then draws: of a small study that is a third."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from contextlib import suppress
from types import TracebackType
from typing import Self

from ops.cli.precision_picture import draw, require_matplotlib
from ops.studies.precision_report import PrecisionReport

# without the working directory, where a module of the user may have the name of one of ours
_COMMAND = ("-P", "-c", "from ops.cli.painter import paint; paint()")


class Painter:
    """Draws the picture of a precision report, where there are processors for it in a process that is started at once.

    Parameters
    ----------
    suffix : {".png", ".svg", ".pdf"}
        File format.
    """

    def __init__(self, suffix: str) -> None:
        self._suffix = suffix
        self._process: subprocess.Popen[bytes] | None = None
        if "matplotlib.figure" not in sys.modules and (os.cpu_count() or 1) > 1 and sys.executable:
            # What it has to say to people is said again here, where `draw` draws what it could not.
            with suppress(OSError):
                self._process = subprocess.Popen(
                    [sys.executable, *_COMMAND],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def draw(self, report: PrecisionReport) -> bytes:
        """Return the picture's file; errors as of `precision_picture.draw`."""
        if self._process is not None:
            drawn, _ = self._process.communicate(pickle.dumps((report, self._suffix)))
            if self._process.returncode == 0:
                return drawn
        return draw(report, self._suffix)


def paint() -> None:
    """Draw what comes in on standard input, to standard output; nothing if the other process ends before."""
    # whoever interrupts the command means the other process, which ends this one
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    require_matplotlib()
    import matplotlib.backends.backend_agg
    import matplotlib.figure  # noqa: F401

    sent = sys.stdin.buffer.read()
    if sent:
        sys.stdout.buffer.write(draw(*pickle.loads(sent)))
