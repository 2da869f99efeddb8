"""Errors for sessions that another process has open."""

from __future__ import annotations

from shoal.core.ids import SessionId

COPY_ADVICE = " To continue the conversation in a copy, without its workflows, use --fork-session."
"""Left out where a copy is no help."""


def describe_used_session(session: SessionId, holder: str) -> str:
    return f"The session {session} is in use by {holder}. Wait until {holder} ends, or stop it.{COPY_ADVICE}"
