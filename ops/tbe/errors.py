"""Errors of the TBE DSL: a dictionary with ``errCode`` first, the text second, as the vendor raises them.

Source of codes and fields: ``tbe/common/utils/errormgr/error_manager_cube.py`` of canndev (2022). The texts are ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from npu_sim.errors import BudgetError, NpuSimError

OPERATOR = "conv3d_backprop_filter"

STATUS_PARAMETER = 161002
STATUS_SCHEDULE = 561103

_NO_FIELDS: Mapping[str, str] = MappingProxyType({})


class TbeError(NpuSimError, RuntimeError):
    """The DSL or its schedule refuses a call.

    Parameters
    ----------
    code : str
        ``"E60011"`` and the like.
    message : str
        Rule, value and product.
    fields : mapping of str to str
        What the vendor's dictionary holds beside ``errCode`` and ``op_name``.
    status : int
        161002 for the DSL call, 561103 for the schedule.

    Attributes
    ----------
    args : tuple of (dict, str)
        As of the vendor's `RuntimeError`: ``args[0]["errCode"]`` is the code, ``args[1]`` the message.
    """

    def __init__(
        self, code: str, message: str, fields: Mapping[str, str] = _NO_FIELDS, status: int = STATUS_PARAMETER
    ) -> None:
        super().__init__({"errCode": code, "op_name": OPERATOR, **fields}, message)
        self.status = status

    @property
    def code(self) -> str:
        """The ``errCode``."""
        return str(self.args[0]["errCode"])

    def __str__(self) -> str:
        return str(self.args[1])

    def __reduce__(self) -> tuple[Any, ...]:
        fields = {key: value for key, value in self.args[0].items() if key not in ("errCode", "op_name")}
        return type(self), (self.code, self.args[1], fields, self.status)


class TbeMemoryError(TbeError, BudgetError):
    """The call needs more memory than the budget has (`npu_sim.budget`), for which the vendor has no code."""


class TbeTypeError(TbeError, TypeError):
    """A parameter is missing or of the wrong Python type, where some releases raise E60038 and some a TypeError."""


class TbeKeyError(TbeError, KeyError):
    """``group_dict`` lacks a key, where the vendor's code lets Python's own KeyError through."""

    __str__ = TbeError.__str__


class TbeUnpackError(NpuSimError, ValueError):
    """``pads`` or ``dilations`` has the wrong length: the vendor's code fails to unpack it, without an error code."""

    status = STATUS_PARAMETER
