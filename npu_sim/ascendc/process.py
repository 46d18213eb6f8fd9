"""A kernel's program while it runs: started, asked for rows, answered, watched, ended."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import select
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from npu_sim.ascendc.control import HALVES, LINE_BITS, MAX_LOTS, ROWS, ROWS_AT, Control, Status
from npu_sim.ascendc.layout import layout_number
from npu_sim.engines.kit import Spare
from npu_sim.errors import NpuSimError
from npu_sim.isa.row import INSTR, ROW_BYTES
from npu_sim.program.launch import SourceLine

_OTHER_VERSION = 187
"""Exit code of a program that was compiled with other headers (runtime.h)."""
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


class _Memory:
    """Memory that two processes share, as many bytes, and the file that it is for both."""

    def __init__(self, byte_count: int) -> None:
        self.fd = os.memfd_create("npu-sim")
        os.ftruncate(self.fd, byte_count)
        self.bytes = mmap.mmap(self.fd, byte_count)

    def __del__(self) -> None:
        os.close(self.fd)


_CONTROL_BYTES = ROWS_AT + HALVES * ROWS * ROW_BYTES
_MOST_KEPT = 48 << 20
"""Bytes of global memory that are kept for the next call: touching fresh pages takes longer than filling them."""
_CONTROLS, _GLOBALS = Spare(_Memory), Spare(_Memory, limit=1)


def _forget() -> None:
    """Leave what is kept to the process that this one is a copy of."""
    global _CONTROLS, _GLOBALS
    _CONTROLS, _GLOBALS = Spare(_Memory), Spare(_Memory, limit=1)


os.register_at_fork(after_in_child=_forget)


class Process:
    """A running program and the memory it shares with this process.

    Parameters
    ----------
    program : Path
    gm_bytes : int
        Global memory; what is in it is left over.
    silence : float
        Seconds after which a core that says nothing is ended.
    entry : mapping of str to str or None
        Environment variables by which a program that is more than this kernel knows that it is started for it.
    """

    def __init__(self, program: Path, gm_bytes: int, silence: float, entry: Mapping[str, str] | None = None) -> None:
        self._silence = silence
        self._program, self._entry = program, dict(entry or {})
        self._child: subprocess.Popen[bytes] | None = None
        self._fds: list[int] = []
        self._paths: dict[int, str] = {}
        self._gm_bytes = max(gm_bytes, 4096)
        self._shared, self._global = _CONTROLS.take(_CONTROL_BYTES), _GLOBALS.take(self._gm_bytes)
        self.control = Control.from_buffer(self._shared.bytes)
        ctypes.memset(ctypes.addressof(self.control), 0, Control.sites.offset)  # behind that is what is counted
        self.control.layout, self.control.gm_bytes = layout_number(), self._gm_bytes
        self.gm = self._global.bytes
        self._rows = np.frombuffer(self._shared.bytes, INSTR, HALVES * ROWS, ROWS_AT)

    @property
    def words(self) -> str:
        """What is started, and how."""
        return "\n".join([str(self._program), *(f"{name}={value}" for name, value in self._entry.items())])

    def start(self) -> Status:
        """Start the program and return what it says first."""
        from_child, ask = os.pipe()
        answer, to_child = os.pipe()
        self._fds = [from_child, to_child]
        passed = (self._shared.fd, self._global.fd, ask, answer)
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
        return self.listen()

    def rows(self) -> np.ndarray:
        """Return the rows that the program has handed over, INSTR[n], where they are: until it hands over others."""
        first, count = int(self.control.first), int(self.control.count)
        return self._rows[first : first + count]

    def go_on(self) -> None:
        """Let the program go on."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._fds[1], b"\0")

    def listen(self) -> Status:
        """Return what the program says next.

        Raises
        ------
        KernelError
            It says nothing for long, or has ended.
        """
        ready, _, _ = select.select([self._fds[0]], [], [], self._silence)
        if not ready:
            raise self._silent(f"must not loop without an instruction for {self._silence:g} seconds")
        if not os.read(self._fds[0], 1):
            assert self._child is not None
            code = self._child.wait()
            if code == _OTHER_VERSION:
                raise self._silent("must be compiled with this version of npu_sim, as by npu-sim cc, and is of another")
            how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
            raise self._silent(f"must end by returning; its program ended {how}")
        return Status(self.control.status)

    def line(self, site: int) -> SourceLine | None:
        """Return the place in the source that a row's ``site`` means; None: none."""
        number, line = site >> LINE_BITS, site & ((1 << LINE_BITS) - 1)
        if not line or number >= self.control.file_count:
            return None
        if number not in self._paths:
            self._paths[number] = shown_path(os.fsdecode(self.control.files[number].name))
        return SourceLine(self._paths[number], line, "")

    def error(self, what: str) -> KernelError:
        """Return the error of the core that runs, at the place that it named."""
        core = int(self.control.core)
        return KernelError(f"core {core} {what}", self.line(int(self.control.site)), core)

    def _silent(self, what: str) -> KernelError:
        """Return the error of a core that named no place: that of its last instruction."""
        count, lots = int(self.control.count), int(self.control.lot_count)
        begin = int(self.control.lots[lots - 1].end) if 0 < lots <= MAX_LOTS else 0
        if begin < count <= ROWS and 0 <= self.control.first <= ROWS:
            self.control.site = int(self.rows()[count - 1]["site"])
        return self.error(what)

    def text(self) -> str:
        """Return the text that the program left."""
        return self.control.text.decode(errors="replace")

    def close(self) -> None:
        """End the program and give its memory back: nobody may look at it from now on."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
        for fd in self._fds:
            os.close(fd)
        _CONTROLS.give_back(_CONTROL_BYTES, self._shared)
        if self._gm_bytes <= _MOST_KEPT:
            _GLOBALS.give_back(self._gm_bytes, self._global)
        self._fds = []


def shown_path(path: str) -> str:
    """Return a path as messages show it: below the current directory where it is there."""
    relative = os.path.relpath(path) if os.path.isabs(path) else path
    return path if relative.startswith("..") else relative
