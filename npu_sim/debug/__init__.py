"""A launch under a debugger: a machine that stops where it is told, and where a result begins to be wrong."""

from __future__ import annotations

from npu_sim.debug.machine import Machine
from npu_sim.debug.places import Place, Stop
from npu_sim.debug.views import SpaceView

__all__ = ["Machine", "Place", "SpaceView", "Stop"]
