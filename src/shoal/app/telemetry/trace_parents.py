"""Trace parents, which connect the traces of agents in other processes with that of the session."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.app.telemetry.span_recorder import TelemetrySpanRecorder
    from shoal.core.ids import AgentId


class SessionTraceParents:
    def __init__(self) -> None:
        self._recorder: TelemetrySpanRecorder | None = None

    def use_recorder(self, recorder: TelemetrySpanRecorder) -> None:
        """Take trace parents from this recorder from now on."""
        self._recorder = recorder

    def find_trace_parent(self, agent: AgentId, call: str) -> str:
        """Return the trace parent for an agent in another process; empty without telemetry."""
        return "" if self._recorder is None else self._recorder.hand_off_agent_trace(agent, call)
