"""Symptoms that settings, definitions, skills or worktrees explain."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from difflib import get_close_matches

from shoal.app.doctor.doctor_case import DoctorContext
from shoal.app.isolation.machine_checks import DoctorDiagnostic
from shoal.app.reports.agent_report import AgentDefinitionInspector, list_session_tools
from shoal.app.settings.settings import load_settings
from shoal.app.skills.skill_catalog import load_skills
from shoal.core.agents.agent_definitions import AgentDefinition
from shoal.core.agents.worktrees import WorktreeStatus
from shoal.core.errors import ShoalError
from shoal.core.events import AgentStarted
from shoal.core.extensions.skills import is_full_or_unprefixed_skill_name
from shoal.core.text.text_format import format_count_with_noun


def explain_tool_missing(case: DoctorContext) -> Iterator[DoctorDiagnostic]:
    offered = asyncio.run(list_session_tools(case.cwd))
    report = AgentDefinitionInspector(case.cwd, offered=offered)
    if not case.about:
        yield case.make_diagnostic("lead", f"has {', '.join(offered)}")
    elif case.about.startswith("mcp__"):
        yield _explain_mcp_tool(case)
    elif case.about not in offered:
        close_names = get_close_matches(case.about, offered, n=1)
        advice = f"Did you mean {close_names[0]}?" if close_names else f"Available: {', '.join(offered)}"
        yield case.make_diagnostic(
            case.about, "sessions here have no tool with that name", state="bad", advice=advice
        )
    else:
        yield case.make_diagnostic("lead", f"has {case.about}")
    for definition in report.definitions.all():
        yield from _explain_agent_tools(case, report, definition)
    for problem in report.definitions.problems:
        yield case.make_diagnostic(
            "agent", str(problem), state="bad", advice="Fix the file. Shoal ignores it until then."
        )


def _explain_agent_tools(
    case: DoctorContext, report: AgentDefinitionInspector, definition: AgentDefinition
) -> Iterator[DoctorDiagnostic]:
    tools, locate_field = report.resolve_tools(definition), definition.source.locate_field
    if tools.missing:
        location = locate_field("tools") or str(definition.source)
        value = f"it asks for tools that are not available: {', '.join(tools.missing)} ({location})"
        yield case.make_diagnostic(
            definition.name,
            value,
            state="bad",
            advice="The agent cannot start until these tools are available or removed.",
        )
    if not case.about or case.about.startswith("mcp__") or case.about in tools.names:
        return
    if case.about in tools.never or case.about in definition.capabilities.disallowed_tools:
        location = locate_field("disallowed_tools") or str(definition.source)
        yield case.make_diagnostic(
            definition.name, f"disallowedTools removes {case.about} ({location})", state="warn"
        )
    elif locate_field("tools") is not None:
        value = f"{case.about} is not one of its tools ({locate_field('tools')})"
        yield case.make_diagnostic(
            definition.name, value, state="warn", advice=f"Add {case.about} there, or remove the tools field."
        )
    elif case.about in report.offered:
        yield case.make_diagnostic(
            definition.name, f"{case.about} is available only to the lead", state="none"
        )


def _explain_mcp_tool(case: DoctorContext) -> DoctorDiagnostic:
    from shoal.app.settings.mcp_files import load_mcp_servers

    server = case.about.split("__")[1]
    found = load_mcp_servers(load_settings(cwd=case.cwd, environ=case.environ), cwd=case.cwd)
    names = [each.name for each in found.servers]
    if server in names:
        advice = "Test it and list its tools: shoal mcp test"
        return case.make_diagnostic(case.about, f"the MCP server {server} is configured", advice=advice)
    close_names = get_close_matches(server, names, n=1)
    advice = f"Did you mean {close_names[0]}?" if close_names else f"Add it: shoal mcp add {server} COMMAND"
    problems = "; ".join(problem for problem in found.problems if server in problem)
    value = f"no MCP server {server} is configured{f': {problems}' if problems else ''}"
    return case.make_diagnostic(case.about, value, state="bad", advice=advice)


def explain_fork_not_taken(case: DoctorContext) -> Iterator[DoctorDiagnostic]:
    settings = load_settings(cwd=case.cwd, environ=case.environ)
    if settings.are_forks_enabled:
        origin = settings.find_setting_origin("shoal.forks") if settings.own.forks else "the environment"
        yield case.make_diagnostic("forks", f"on (from {origin})")
    else:
        advice = 'Turn them on: "shoal": {"forks": true} in settings.json, or SHOAL_FORK_SUBAGENT=1'
        yield case.make_diagnostic("forks", "off (the default)", state="bad", advice=advice)
    yield case.make_diagnostic(
        "headless", "a run with -p never forks because nobody would see the forks", state="none"
    )
    coordinator = settings.own.coordinator
    yield case.make_diagnostic(
        "coordinator",
        "on: a coordinator starts agents and does not fork" if coordinator else "off",
        state="bad" if coordinator else "ok",
    )
    yield case.make_diagnostic(
        "call",
        "an Agent call forks only without subagent_type; otherwise it starts an agent of that type",
        state="none",
    )
    if case.run is not None:
        started = [
            event for _, event in case.iter_run_events(AgentStarted) if isinstance(event, AgentStarted)
        ]
        fork_count = sum(event.kind == "fork" for event in started)
        yield case.make_diagnostic(
            "this run", f"started {len(started)} agents, {fork_count} of them forks", state="none"
        )


def explain_slash_command_not_forked(case: DoctorContext) -> Iterator[DoctorDiagnostic]:
    skills = load_skills(cwd=case.cwd, home=case.home)
    command_name = case.about.lstrip("/")
    by_name = {
        skill.name: skill for skill in (*skills.list_skills_for_user(), *skills.list_skills_for_model())
    }
    found = [
        skill
        for name, skill in by_name.items()
        if command_name and is_full_or_unprefixed_skill_name(command_name, name)
    ]
    for skill in found:
        location = skill.source.locate_field("forks") or str(skill.source)
        if skill.execution.forks:
            agent = f" as {skill.execution.agent}" if skill.execution.agent else ""
            yield case.make_diagnostic(
                f"/{skill.name}", f"has context: fork ({location}): a separate agent runs it{agent}"
            )
        else:
            advice = f"Write `context: fork` between the --- lines at the top of {skill.source}"
            yield case.make_diagnostic(
                f"/{skill.name}",
                "has no `context: fork`: the lead runs it",
                state="bad",
                advice=advice,
            )
    for problem in skills.describe_skill_file_problems():
        yield case.make_diagnostic(
            "not used", problem, state="warn" if found else "bad", advice="Fix the file."
        )
    if not found and command_name:
        close_names = get_close_matches(command_name, by_name, n=1)
        advice = f"Did you mean /{close_names[0]}?" if close_names else "List the skills: shoal skills ls"
        yield case.make_diagnostic(
            f"/{command_name}", "there is no command or skill with that name", state="bad", advice=advice
        )
    if not command_name:
        forking = [f"/{skill.name}" for skill in by_name.values() if skill.execution.forks]
        yield case.make_diagnostic(
            "commands that fork",
            ", ".join(forking) or "none",
            state="none",
            advice="Specify a command: --about NAME",
        )


def explain_worktree_not_cleaned(case: DoctorContext) -> Iterator[DoctorDiagnostic]:
    from shoal.app.isolation.repository_worktrees import open_worktrees
    from shoal.core.clock import SystemClock

    try:
        worktrees = open_worktrees(case.cwd, home=case.home, environ=case.environ, clock=SystemClock())
        found = asyncio.run(worktrees.list_worktrees())
    except ShoalError as error:
        yield case.make_diagnostic("repository", str(error), state="none")
        return
    for status in found:
        if case.is_about_subject(status.name, status.name.removeprefix("agent-")):
            yield _explain_worktree(case, status)
    if not found:
        yield case.make_diagnostic("worktrees", "there are none", state="ok")


def _explain_worktree(case: DoctorContext, status: WorktreeStatus) -> DoctorDiagnostic:
    name, work = status.name, status.work
    merge_advice = f"Merge its work: shoal worktree merge {name}"
    if status.alive:
        return case.make_diagnostic(
            name,
            "the session that created it is still running and removes it when its agent ends",
            state="none",
        )
    if status.record is None:
        return case.make_diagnostic(
            name, f"the worktree is gone; its work is kept under {status.ref}", advice=merge_advice
        )
    if work is None:
        advice = f"Look at {status.record.path}, then: shoal worktree rm {name} --force"
        return case.make_diagnostic(
            name, "git cannot read its content (a hook may have created it)", state="warn", advice=advice
        )
    if work.uncommitted or work.subjects:
        content = (
            f"{format_count_with_noun(len(work.subjects), 'commit')} and "
            f"{format_count_with_noun(len(work.uncommitted), 'uncommitted change')}"
        )
        advice = f"{merge_advice}; or discard it: shoal worktree rm {name} --force"
        if status.merged:
            advice = f"All its work is merged. Remove it: shoal worktree rm {name}"
        return case.make_diagnostic(name, f"contains work: {content}", state="warn", advice=advice)
    return case.make_diagnostic(
        name, "it is unchanged and its process died", state="warn", advice="Remove it: shoal worktree reap"
    )
