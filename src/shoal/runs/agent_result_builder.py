"""Builds the results of ended agents."""

from __future__ import annotations

from shoal.core.agents.subagents import AgentResult
from shoal.core.clock import Clock
from shoal.core.ids import IdGenerator
from shoal.runs.agent_run import AgentRun
from shoal.runs.agent_worker import AgentWorker
from shoal.runs.inbox_queue import SharedInboxQueue
from shoal.runs.prepared_agent import PreparedAgent
from shoal.runs.run_outcome import AgentRunOutcome, describe_unread_messages, join_outcome_details
from shoal.runs.running_agents import RunningAgents
from shoal.runs.stored_report import excerpt_and_store_long_report


class AgentResultBuilder:
    """Stores long reports, and puts the part that a conversation gets into the result."""

    def __init__(
        self,
        *,
        queue: SharedInboxQueue,
        running_agents: RunningAgents,
        ids: IdGenerator,
        clock: Clock,
        report_tokens: int,
    ) -> None:
        self._queue = queue
        self._running_agents = running_agents
        self._ids = ids
        self._clock = clock
        self._report_tokens = report_tokens

    def build_result(
        self,
        run: AgentRun,
        prepared: PreparedAgent | None,
        outcome: AgentRunOutcome,
        worker: AgentWorker | None,
    ) -> AgentResult:
        """Build the result; nothing was prepared here for an agent on another machine."""
        monitor = run.monitor
        assert monitor is not None
        result_id = self._ids.new_short_id()
        results = (self._running_agents.lead if prepared is None else prepared.agent).environment.results
        report = excerpt_and_store_long_report(
            outcome.text, run.id, result_id, results, tokens=self._report_tokens
        )
        detail = join_outcome_details(
            outcome.detail,
            describe_unread_messages(self._queue.count_waking_items(run.id), is_remote=run.is_remote),
        )
        is_completed = outcome.status == "completed"
        closing_text = f"\n{outcome.text}\n" if is_completed else f"\n[{outcome.status}: {outcome.detail}]\n"
        return AgentResult(
            id=result_id,
            agent=run.id,
            status=outcome.status,
            kind=run.facts.kind,
            name=run.facts.name,
            description=run.facts.description,
            report_to=run.report_to,
            call=run.facts.call,
            background=run.background,
            text=report.excerpt,
            detail=detail,
            size=report.size,
            digest=report.digest,
            result="" if report.path is None else str(report.path),
            output=monitor.finish_output(closing_text, is_needed=run.background or not is_completed),
            usage=monitor.usage,
            requests=monitor.requests,
            duration_ms=round((self._clock.monotonic() - run.started_at) * 1000),
            evidence=monitor.collect_evidence(None if worker is None else worker.acceptance),
            one_shot=prepared is not None and prepared.one_shot,
            answer=outcome.answer
            if prepared is None or prepared.output_tool is None
            else prepared.output_tool.answer,
        )
