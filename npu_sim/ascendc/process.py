"""A kernel's program while it runs: started, asked for rows, answered, watched, ended."""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from npu_sim.ascendc.control import LINE_BITS, ROWS, ROWS_AT, Control, Status
from npu_sim.errors import NpuSimError
from npu_sim.isa.row import INSTR, ROW_BYTES
from npu_sim.program.launch import SourceLine

SILENCE_SECONDS = 10.0
"""A core that hands nothing over for so long is ended: it loops without an instruction."""


class KernelError(NpuSimError, RuntimeError):
    """A kernel did what ends it: a call that breaks a rule, a crash, an endless loop.

    Attributes
    ----------
    line : SourceLine or None
        Where it was, as far as instructions tell.
    core : int
        Which core; -1: none.
    """

    status = 561103

    def __init__(self, message: str, line: SourceLine | None = None, core: int = -1) -> None:
        super().__init__(message)
        self.line, self.core = line, core


class Process:
    """A running program and the memory it shares with this process.

    Parameters
    ----------
    program : Path
    gm_bytes : int
        Global memory.
    silence : float
        Seconds after which a core that says nothing is ended.
    entry : mapping of str to str or None
        Environment variables by which a program that is more than this kernel knows that it is started for it.
    """

    def __init__(self, program: Path, gm_bytes: int, silence: float, entry: Mapping[str, str] | None = None) -> None:
        self._silence = silence
        self._program, self._entry = program, dict(entry or {})
        self._shared_fd = os.memfd_create("npu-sim-control")
        self._gm_fd = os.memfd_create("npu-sim-gm")
        self._child: subprocess.Popen[bytes] | None = None
        self._fds: list[int] = []
        size = ROWS_AT + ROWS * ROW_BYTES
        os.ftruncate(self._shared_fd, size)
        os.ftruncate(self._gm_fd, max(gm_bytes, 4096))
        self._shared = mmap.mmap(self._shared_fd, size)
        self.control = Control.from_buffer(self._shared)
        self.control.gm_bytes = max(gm_bytes, 4096)
        self.gm = mmap.mmap(self._gm_fd, max(gm_bytes, 4096))
        self.rows = np.frombuffer(self._shared, INSTR, ROWS, ROWS_AT)
        self.row_bytes: npt.NDArray[np.uint8] = np.frombuffer(
            self._shared, np.uint8, ROWS * ROW_BYTES, ROWS_AT
        ).reshape(ROWS, ROW_BYTES)

    def start(self) -> Status:
        """Start the program and return what it says first."""
        from_child, ask = os.pipe()
        answer, to_child = os.pipe()
        self._fds = [from_child, to_child]
        passed = (self._shared_fd, self._gm_fd, ask, answer)
        try:
            self._child = subprocess.Popen(
                [str(self._program), *map(str, passed)],
                pass_fds=passed,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **self._entry},
            )
        finally:
            os.close(ask)
            os.close(answer)
        return self._next()

    def go_on(self) -> Status:
        """Let the program go on and return what it says next."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._fds[1], b"\0")
        return self._next()

    def _next(self) -> Status:
        ready, _, _ = select.select([self._fds[0]], [], [], self._silence)
        if not ready:
            raise self._silent(f"must not loop without an instruction for {self._silence:g} seconds")
        if not os.read(self._fds[0], 1):
            assert self._child is not None
            code = self._child.wait()
            how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
            raise self._silent(f"must end by returning; its program ended {how}")
        return Status(self.control.status)

    def line(self, site: int) -> SourceLine | None:
        """Return the place in the source that a row's ``site`` means; None: none."""
        number, line = site >> LINE_BITS, site & ((1 << LINE_BITS) - 1)
        if not line or number >= self.control.file_count:
            return None
        return SourceLine(shown_path(os.fsdecode(self.control.files[number].name)), line, "")

    def error(self, what: str) -> KernelError:
        """Return the error of the core that runs, at the place that it named."""
        core = int(self.control.core)
        return KernelError(f"core {core} {what}", self.line(int(self.control.site)), core)

    def _silent(self, what: str) -> KernelError:
        """Return the error of a core that named no place: that of its last instruction."""
        count = int(self.control.count)
        if 0 < count <= ROWS:
            self.control.site = int(self.rows[count - 1]["site"])
        return self.error(what)

    def text(self) -> str:
        """Return the text that the program left."""
        return self.control.text.decode(errors="replace")

    def close(self) -> None:
        """End the program and give its memory back."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
        for fd in (*self._fds, self._shared_fd, self._gm_fd):
            os.close(fd)
        self._fds = []


def shown_path(path: str) -> str:
    """Return a path as messages show it: below the current directory where it is there."""
    relative = os.path.relpath(path) if os.path.isabs(path) else path
    return path if relative.startswith("..") else relative
