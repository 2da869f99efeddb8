"""Text of runtime notifications and agent messages as the model reads it."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path

from shoal.core.agents.background_shells import BackgroundShell, BackgroundShellResult
from shoal.core.agents.schedules import Schedule
from shoal.core.agents.subagents import AgentResult, AgentWorkEvidence, RetainedWorktreeWork
from shoal.core.extensions.hooks import BackgroundHookNotice
from shoal.core.extensions.mcp_servers import McpChannelMessage
from shoal.core.permissions.questions import AllowAnswer, PermissionQuestion
from shoal.core.text.control_tags import escape_control_tags
from shoal.core.text.lazy_patterns import compile_on_first_use
from shoal.core.text.model_texts import ModelTexts
from shoal.wire.json_codec import encode_json

_TEXTS = ModelTexts(Path(__file__).parent / "prompts")
_ATTRIBUTE_ESCAPES = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\n": "&#10;", "\r": "&#13;", "\t": "&#9;"}
)
_STATUS_TEXT = {"completed": "completed", "failed": "failed", "killed": "was stopped"}
_MAX_FILES = 5
_MAX_COMMAND_LENGTH = 200
_MAX_INPUT_LENGTH = 2_000
_REMINDER_TAG = "<system-reminder>"
MAIL_MESSAGE_PATTERN = compile_on_first_use(
    r'<teammate-message teammate_id="(?P<sender>[^"]+)"(?P<about>[^>]*)>\n'
    r"(?P<words>.*?)\n</teammate-message>",
    re.DOTALL,
)
"""Matches the output of `format_mail_message` anywhere in an agent's input."""


def _fill(key: str, /, **values: object) -> str:
    return _TEXTS.fill_section("notifications", key, **values)


def _quote(value: str) -> str:
    """Return what `quoteattr` of `xml.sax.saxutils` returns, whose import loads an HTTP client."""
    text = value.translate(_ATTRIBUTE_ESCAPES)
    if '"' not in text:
        return f'"{text}"'
    return f"'{text}'" if "'" not in text else '"{}"'.format(text.replace('"', "&quot;"))


def format_system_reminder(text: str) -> str:
    """Wrap text of the runtime in a tag that no other sender can produce."""
    return f"{_REMINDER_TAG}\n{text}\n</system-reminder>"


def is_system_reminder(text: str) -> bool:
    return text.startswith(_REMINDER_TAG)


def format_agent_end_notification(completion: AgentResult) -> str:
    """Announce a finished background agent; everything is bounded except `text`, which the caller bounds."""
    usage = completion.usage
    lines = [
        "<task-notification>",
        f"<task-id>{completion.agent}</task-id>",
        f"<tool-use-id>{escape_control_tags(completion.call)}</tool-use-id>",
        f"<output-file>{completion.output}</output-file>",
        f"<status>{completion.status}</status>",
        f"<summary>{escape_control_tags(summarize_agent_result(completion))}</summary>",
        f"<result>{format_agent_report(completion)}</result>",
        f"<usage><total_tokens>{usage.total_tokens}</total_tokens>"
        f"<tool_uses>{completion.evidence.tool_calls}</tool_uses>"
        f"<duration_ms>{completion.duration_ms}</duration_ms></usage>",
    ]
    if completion.worktree is not None:
        work = completion.worktree
        lines.append(
            f"<worktree><path>{work.path}</path><branch>{work.branch}</branch><ref>{work.ref}</ref></worktree>"
        )
    return "\n".join([*lines, "</task-notification>"])


def summarize_agent_result(completion: AgentResult) -> str:
    """Return one sentence with the agent, its end status and its evidence."""
    agent = f'Agent "{completion.description}" ({completion.kind})'
    reason = f": {completion.detail}" if completion.detail else ""
    return f"{agent} {_STATUS_TEXT[completion.status]}{reason}. {format_work_evidence(completion.evidence)}"


def format_agent_report(completion: AgentResult) -> str:
    """Return the agent's report with escaped tags and, if it is cut, where to read all of it."""
    text = escape_control_tags(completion.text) if completion.text.strip() else _fill("no_report")
    if not completion.result:
        return text
    size, digest = f"{completion.size:,}", completion.digest[:16]
    return f"{text}\n{_fill('whole_report', size=size, digest=digest, path=completion.result)}"


def format_retained_worktree_work(work: RetainedWorktreeWork) -> str:
    """Return where the work of an agent in a worktree is and how to merge it."""
    text = f"worktreePath: {work.path}"
    if work.branch:
        text += f"\nworktreeBranch: {work.branch}"
    return f"{text}\n{_fill('retained_work', ref=work.ref)}" if work.ref else text


def format_work_evidence(evidence: AgentWorkEvidence) -> str:
    if not evidence.tool_calls:
        return _fill("no_tool_calls")
    calls = f"{evidence.tool_calls} tool call{'' if evidence.tool_calls == 1 else 's'}"
    parts = [calls + (f" ({evidence.failed_calls} failed)" if evidence.failed_calls else "")]
    if evidence.files:
        file_list = ", ".join(evidence.files[:_MAX_FILES])
        more = f" and {len(evidence.files) - _MAX_FILES} more" if len(evidence.files) > _MAX_FILES else ""
        parts.append(f"files changed: {file_list}{more}")
    if evidence.commits:
        parts.append(f"{len(evidence.commits)} commit{'' if len(evidence.commits) == 1 else 's'}")
    failed = sum(1 for ran in evidence.commands if ran.exit_code)
    if failed:
        parts.append(f"{failed} of its last {len(evidence.commands)} commands ended with an error")
    if evidence.acceptance is not None:
        outcome = (
            "passed" if evidence.acceptance.exit_code == 0 else f"failed ({evidence.acceptance.exit_code})"
        )
        parts.append(f"the acceptance command {outcome}")
    return "; ".join(parts) + "."


def format_shell_notification(end: BackgroundShellResult) -> str:
    """Announce the end of a background command."""
    exit_code = "" if end.exit_code is None else f" (exit code {end.exit_code})"
    reason = f": {end.detail}" if end.detail else ""
    summary = f"{_describe_background_command(end.facts)} {_STATUS_TEXT[end.status]}{exit_code}{reason}."
    return _format_shell_task_notification(end.facts, end.status, summary, end.tail)


def format_stuck_shell_notification(facts: BackgroundShell, tail: str) -> str:
    summary = _fill("stuck_command", command=_describe_background_command(facts))
    return _format_shell_task_notification(facts, "running", summary, tail)


def _describe_background_command(facts: BackgroundShell) -> str:
    command = facts.command.strip()
    if len(command) > _MAX_COMMAND_LENGTH:
        command = f"{command[:_MAX_COMMAND_LENGTH]}…"
    return f'Background command "{command}"'


def _format_shell_task_notification(facts: BackgroundShell, status: str, summary: str, tail: str) -> str:
    lines = [
        "<task-notification>",
        f"<task-id>{facts.shell}</task-id>",
        f"<tool-use-id>{escape_control_tags(facts.call)}</tool-use-id>",
        *([f"<output-file>{facts.output}</output-file>"] if facts.output else ()),
        f"<status>{status}</status>",
        f"<summary>{escape_control_tags(summary)}</summary>",
        *([f"<result>{escape_control_tags(tail)}</result>"] if tail else ()),
        "</task-notification>",
    ]
    return "\n".join(lines)


def format_workflow_notification(
    workflow: str, call: str, status: str, report: str, path: Path | None
) -> str:
    """Announce the end of a workflow; `path` is the file with its whole result, if the report is cut."""
    lines = [
        "<task-notification>",
        f"<task-id>{workflow}</task-id>",
        *([f"<tool-use-id>{escape_control_tags(call)}</tool-use-id>"] if call else ()),
        *([f"<output-file>{path}</output-file>"] if path is not None else ()),
        f"<status>{status}</status>",
        f"<summary>{_fill(f'workflow_{status}', workflow=workflow)}</summary>",
        *([f"<result>{escape_control_tags(report)}</result>"] if report else ()),
        "</task-notification>",
    ]
    return "\n".join(lines)


def format_hook_notification(notice: BackgroundHookNotice, *, forwarded: bool) -> str:
    """Format the output of a background hook; `forwarded` means that another agent receives it."""
    action = "objects" if notice.wakes else "adds something"
    summary = _fill("hook_summary", event=notice.event, hook=notice.hook, origin=notice.origin, action=action)
    if forwarded:
        summary += f" {_fill('hook_about', agent=notice.agent)}"
    lines = [
        "<task-notification>",
        f"<status>{'failed' if notice.wakes else 'completed'}</status>",
        f"<summary>{escape_control_tags(summary)}</summary>",
        f"<result>{escape_control_tags(notice.text)}</result>",
        "</task-notification>",
    ]
    return "\n".join(lines)


def format_scheduled_prompt(schedule: Schedule, due: int, *, last: bool) -> str:
    """Format a scheduled prompt, which is text of the agent that created the schedule, not of a person."""
    due_time = datetime.fromtimestamp(due / 1000).astimezone().isoformat(timespec="minutes")
    end = f"\n{_fill('schedule_end')}" if last else ""
    return (
        f"<scheduled-prompt id={_quote(schedule.id)} cron={_quote(escape_control_tags(schedule.cron))} "
        f"due={_quote(due_time)}>\n{escape_control_tags(schedule.prompt)}\n</scheduled-prompt>{end}"
    )


def format_mcp_channel_message(server: str, push: McpChannelMessage) -> str:
    """Format a message pushed by an MCP server; it comes neither from a person nor from the runtime."""
    attributes = "".join(f" {key}={_quote(escape_control_tags(value))}" for key, value in push.meta.items())
    remark = f"\n{_fill('channel_cut', count=f'{push.left_out:,}')}" if push.left_out else ""
    return (
        f"<channel source={_quote(escape_control_tags(server))}{attributes}>"
        f"{escape_control_tags(push.content)}</channel>{remark}\n"
        f"{_fill('channel_origin')}"
    )


def format_mcp_channel_drop_notice(server: str, count: int) -> str:
    noun = "message" if count == 1 else "messages"
    return _fill("channel_dropped", count=f"{count:,}", noun=noun, server=escape_control_tags(server))


def format_late_permission_notice(
    question: PermissionQuestion, answer: AllowAnswer, *, requester: str
) -> str:
    """Format the permission for an interrupted call; `requester` is empty if the reader made the call."""
    tool_input = question.input if answer.input is None else answer.input
    input_text = encode_json(tool_input).decode()
    if len(input_text) > _MAX_INPUT_LENGTH:
        input_text = f"{input_text[:_MAX_INPUT_LENGTH]}…"
    change = "" if answer.input is None else f" {_fill('late_permission_changed_input')}"
    by_attribute = f" by={_quote(requester)}" if requester else ""
    advice = _fill("late_permission_other" if requester else "late_permission_own")
    tool = _quote(escape_control_tags(question.tool))
    tool_use_id = _quote(escape_control_tags(question.tool_use_id))
    return (
        f"<permission-granted tool={tool} tool-use-id={tool_use_id}{by_attribute}>\n"
        f"{escape_control_tags(input_text)}\n</permission-granted>\n"
        f"{_fill('late_permission', change=change, advice=advice)}"
    )


def format_mail_message(
    sender: str, text: str, *, summary: str = "", color: str | None = None, verified: bool = True
) -> str:
    """Format a message between agents; `verified="no"` is in an attribute that the text cannot forge."""
    verified_attribute = "" if verified else ' verified="no"'
    summary_attribute = f" summary={_quote(escape_control_tags(summary))}" if summary else ""
    paint = f" color={_quote(color)}" if color else ""
    return (
        f"<teammate-message teammate_id={_quote(sender)}{verified_attribute}{paint}{summary_attribute}>\n"
        f"{escape_control_tags(text)}\n</teammate-message>"
    )
