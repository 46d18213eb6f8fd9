"""Why calls were refused, per thread, as aclGetRecentErrMsg tells it.

Source: AscendCL reference, aclGetRecentErrMsg: it returns and clears the descriptions of failed calls of this thread,
the latest on top, and a null pointer if there is none; unread messages may be lost.
"""

from __future__ import annotations

from contextvars import ContextVar

from ops.common.status import AclnnStatus

KEPT = 16
"""Unread messages that are kept; older ones are lost."""

_unread: ContextVar[tuple[str, ...]] = ContextVar("aclnn_unread_messages", default=())


def keep(line: str) -> None:
    """Keep ``line`` for aclGetRecentErrMsg."""
    _unread.set((line, *_unread.get()[: KEPT - 1]))


def record(status: int, text: str) -> AclnnStatus:
    """Keep the code, its name and ``text`` for aclGetRecentErrMsg and return ``status``."""
    code = AclnnStatus(status)
    keep(f"{int(code)} {code.name}: {text}")
    return code


def aclGetRecentErrMsg() -> str | None:
    """Return why the calls of this thread since the last reading failed, the latest first, and forget it.

    Returns
    -------
    str or None
        One line per failed call: code, name of the code, rule, value and product; None if no call failed.
    """
    unread = _unread.get()
    _unread.set(())
    return "\n".join(unread) if unread else None
