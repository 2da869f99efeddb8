"""Workflows that the lead's model wrote: started in the background after approval, stopped, and resumed."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from shoal.app.model_notices import format_session_notice
from shoal.app.workflows.json_values import format_returned_value
from shoal.app.workflows.script_host import MAX_SCRIPT_STEPS, ScriptHost, select_script_sandbox
from shoal.app.workflows.step_log import StepLog, WorkflowRecord, WorkflowRecords
from shoal.app.workflows.step_runner import StepRunner
from shoal.app.workflows.workflow_supervisor import WorkflowLaunch, WorkflowSupervisor
from shoal.backends.sandbox.sandbox_driver import SandboxDriver
from shoal.core.agents.workflow_scripts import (
    MAX_SCRIPT_AGENTS,
    WorkflowScript,
    WorkflowSnapshot,
    WorkflowStatus,
)
from shoal.core.conversation.inbox_items import InboxItem
from shoal.core.conversation.messages import TextBlock
from shoal.core.conversation.tools import ToolContext
from shoal.core.errors import RunFailed, WorkflowError, WorkflowStopped
from shoal.core.events import QueueItemAdded, WorkflowStarted
from shoal.core.ids import LEAD_ID, AgentId
from shoal.runs.spawn_approval import describe_agents_cost
from shoal.runs.stored_report import excerpt_and_store_long_report
from shoal.wire.notification_text import format_workflow_notification


class ScriptWorkflows:
    """Implements `WorkflowOperations` for a session."""

    def __init__(self, supervisor: WorkflowSupervisor) -> None:
        self._supervisor = supervisor
        self._runtime = supervisor.agents.runtime

    def describe_cost(self, script: str, agents: int) -> str:
        cost = describe_agents_cost(agents, self._supervisor.agents.lead.model.card, self._runtime.budget)
        # The estimate is for the lead's model.
        if "model" in script:
            return f"{cost}; the script chooses models, so the cost can differ"
        definitions = self._runtime.config.definitions.all()
        if any(each.model is not None and each.name in script for each in definitions):
            return f"{cost}; its agents have their own models, so the cost can differ"
        return cost

    def find_script(self, workflow: str) -> WorkflowScript | None:
        record = self._supervisor.read_records().workflows.get(workflow)
        if record is None or not record.started.script:
            return None
        started = record.started
        return WorkflowScript(
            name=started.name,
            script=started.script,
            max_agents=MAX_SCRIPT_AGENTS if started.max_agents is None else started.max_agents,
            arguments=started.arguments,
        )

    async def start_script(self, script: WorkflowScript, context: ToolContext) -> str:
        driver = await select_script_sandbox(self._runtime)
        _check_syntax(script.script)
        start = WorkflowStarted(
            agent=LEAD_ID,
            workflow=self._supervisor.create_id(script.name),
            name=script.name,
            arguments=script.arguments,
            script=script.script,
            digest=sha256(script.script.encode("utf-8", "surrogatepass")).hexdigest(),
            max_agents=script.max_agents,
        )
        launch = self._build_launch(start, driver, StepLog())
        self._supervisor.start_in_background(self._run_and_notify(launch, context.call_id))
        return start.workflow

    async def resume_script(self, workflow: str, context: ToolContext) -> str:
        launch = await self._prepare_resume(workflow)
        self._supervisor.start_in_background(self._run_and_notify(launch, context.call_id))
        return launch.start.workflow

    async def resume_in_foreground(self, workflow: str, rerun_from: int | None = None) -> Any:
        """Continue a script and return its value. Raises `WorkflowError`."""
        record = self._find_record(self._supervisor.read_records(), workflow)
        record.select_steps(rerun_from)
        if record.ended is not None and record.ended.status == "completed" and rerun_from is None:
            return record.ended.value
        _, value = await self._supervisor.execute(await self._prepare_resume(workflow, rerun_from))
        return value

    def take_snapshot(self, workflow: str) -> WorkflowSnapshot | None:
        found = self._supervisor.find_latest(workflow)
        if found is None:
            return None
        steps, ended = found.steps, found.ended
        return WorkflowSnapshot(
            workflow=workflow,
            status="running" if ended is None else ended.status,
            phase=steps.latest_phase,
            finished_steps=steps.finished_count,
            open_steps=max(0, steps.started_count - steps.finished_count),
            detail="" if ended is None else ended.detail,
            value=format_returned_value(ended.value) if ended and ended.status == "completed" else "",
        )

    async def wait_for_end(self, workflow: str) -> None:
        await self._supervisor.wait_for_end(workflow)

    async def stop_workflow(self, workflow: str, why: str) -> bool:
        return await self._supervisor.stop(workflow, why)

    def notify_interrupted(self, workflows: Iterable[str]) -> None:
        """Tell the lead of a resumed session which scripts were interrupted when its process ended."""
        for workflow in workflows:
            self._notify(workflow, "", "interrupted", "")

    def _find_record(self, records: WorkflowRecords, workflow: str) -> WorkflowRecord:
        record = records.workflows.get(workflow)
        if record is None or not record.started.script:
            scripts = [key for key, each in records.workflows.items() if each.started.script]
            raise WorkflowError(
                format_session_notice(
                    "no_script_workflow", workflow=repr(workflow), names=", ".join(scripts) or "none"
                )
            )
        return record

    async def _prepare_resume(self, workflow: str, rerun_from: int | None = None) -> WorkflowLaunch:
        records = self._supervisor.read_records()
        record = self._find_record(records, workflow)
        if self._supervisor.find_running(workflow) is not None:
            raise WorkflowError(format_session_notice("workflow_running", workflow=workflow))
        if record.ended is not None and record.ended.status == "completed" and rerun_from is None:
            raise WorkflowError(format_session_notice("workflow_completed", workflow=workflow))
        driver = await select_script_sandbox(self._runtime)
        started = record.started
        start = WorkflowStarted(
            agent=LEAD_ID,
            workflow=workflow,
            name=started.name,
            arguments=started.arguments,
            script=started.script,
            digest=started.digest,
            max_agents=started.max_agents,
            resumed=True,
            rerun_from=rerun_from,
        )
        steps = record.select_steps(rerun_from)
        return self._build_launch(start, driver, StepLog(steps, records.completions))

    def _build_launch(
        self,
        start: WorkflowStarted,
        driver: SandboxDriver,
        log: StepLog,
    ) -> WorkflowLaunch:
        async def run_script(steps: StepRunner) -> Any:
            return await ScriptHost(self._runtime, steps, driver).run(start.script, start.arguments)

        return WorkflowLaunch(
            start=start,
            run=run_script,
            convert_value=lambda value: value,
            log=log,
            max_steps=MAX_SCRIPT_STEPS,
        )

    async def _run_and_notify(self, launch: WorkflowLaunch, call: str) -> None:
        workflow = launch.start.workflow
        status: WorkflowStatus = "completed"
        try:
            _, value = await self._supervisor.execute(launch)
            report = format_returned_value(value)
        except WorkflowStopped as error:
            status, report = "stopped", error.reason
        except (RunFailed, WorkflowError) as error:
            status, report = "failed", str(error)
        self._notify(workflow, call, status, report)

    def _notify(self, workflow: str, call: str, status: WorkflowStatus, report: str) -> None:
        runtime, item_id = self._runtime, self._runtime.inbox.notice_ids.new_short_id()
        stored = excerpt_and_store_long_report(
            report,
            AgentId(workflow),
            item_id,
            runtime.store.results,
            tokens=runtime.settings.own.report_tokens,
        )
        text = format_workflow_notification(workflow, call, status, stored.excerpt, stored.path)
        item = InboxItem(
            id=item_id,
            to=LEAD_ID,
            content=(TextBlock(text=text),),
            by="runtime",
            mode="task-notification",
            priority="later",
        )
        runtime.events.emit_event(
            QueueItemAdded(agent=LEAD_ID, item=item.id, by=item.by, text=text, mode=item.mode)
        )
        runtime.inbox.queue.put(item)


def _check_syntax(script: str) -> None:
    """Raise `WorkflowError` for a script that Python cannot compile; nothing of it runs."""
    import ast

    try:
        ast.parse(script)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise WorkflowError(format_session_notice("script_syntax", error=error)) from error
