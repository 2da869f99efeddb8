"""Symptoms that settings, definitions, skills or worktrees explain."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from difflib import get_close_matches

from shoal.app.doctor.case import Case
from shoal.app.quarters.machine import Fact
from shoal.app.settings.settings import load_settings
from shoal.app.skills.skills import skills_for
from shoal.app.views.agents import AgentsView, offered_tools
from shoal.core.definitions import Definition
from shoal.core.errors import ShoalError
from shoal.core.events import AgentStarted
from shoal.core.skills import named_alike
from shoal.core.worktrees import Standing


def tool_missing(case: Case) -> Iterator[Fact]:
    offered = asyncio.run(offered_tools(case.cwd))
    view = AgentsView(case.cwd, offered=offered)
    if not case.about:
        yield case.fact("lead", f"has {', '.join(offered)}")
    elif case.about.startswith("mcp__"):
        yield _server_tool(case)
    elif case.about not in offered:
        near = get_close_matches(case.about, offered, n=1)
        advice = f"Is {near[0]} meant?" if near else f"There are: {', '.join(offered)}"
        yield case.fact(
            case.about, "there is no tool of that name in a session here", state="bad", advice=advice
        )
    else:
        yield case.fact("lead", f"has {case.about}")
    for definition in view.definitions.all():
        yield from _of_agent(case, view, definition)
    for problem in view.definitions.problems:
        yield case.fact(
            "agent", str(problem), state="bad", advice="Repair the file: it is not used before that."
        )


def _of_agent(case: Case, view: AgentsView, definition: Definition) -> Iterator[Fact]:
    tools, place = view.tools(definition), definition.source.place
    if tools.missing:
        where = place("tools") or str(definition.source)
        value = f"asks for what is not here: {', '.join(tools.missing)} ({where})"
        yield case.fact(
            definition.name, value, state="bad", advice="It cannot be started before that is mended."
        )
    if not case.about or case.about.startswith("mcp__") or case.about in tools.names:
        return
    if case.about in tools.never or case.about in definition.disallowed_tools:
        where = place("disallowed_tools") or str(definition.source)
        yield case.fact(
            definition.name, f"{case.about} is taken away by disallowedTools ({where})", state="warn"
        )
    elif place("tools") is not None:
        value = f"{case.about} is not among its tools ({place('tools')})"
        yield case.fact(
            definition.name, value, state="warn", advice=f"Add {case.about} there, or leave tools out."
        )
    elif case.about in view.offered:
        yield case.fact(definition.name, f"{case.about} is for the lead alone", state="none")


def _server_tool(case: Case) -> Fact:
    from shoal.app.settings.mcp_files import configured

    server = case.about.split("__")[1]
    found = configured(load_settings(cwd=case.cwd, environ=case.environ), cwd=case.cwd)
    names = [each.name for each in found.servers]
    if server in names:
        advice = "See whether it answers and what it offers: shoal mcp test"
        return case.fact(case.about, f"the MCP server {server} is configured", advice=advice)
    near = get_close_matches(server, names, n=1)
    advice = f"Is {near[0]} meant?" if near else f"Add it: shoal mcp add {server} COMMAND"
    problems = "; ".join(problem for problem in found.problems if server in problem)
    value = f"no MCP server {server} is configured{f': {problems}' if problems else ''}"
    return case.fact(case.about, value, state="bad", advice=advice)


def fork_not_taken(case: Case) -> Iterator[Fact]:
    settings = load_settings(cwd=case.cwd, environ=case.environ)
    if settings.forks:
        origin = settings.origin("shoal.forks") if settings.own.forks else "the environment"
        yield case.fact("forks", f"are on (from {origin})")
    else:
        advice = 'Turn them on: "shoal": {"forks": true} in settings.json, or SHOAL_FORK_SUBAGENT=1'
        yield case.fact("forks", "are off, which is the default", state="bad", advice=advice)
    yield case.fact(
        "headless", "a run with -p never forks: nobody would see what multiplies there", state="none"
    )
    coordinator = settings.own.coordinator
    yield case.fact(
        "coordinator",
        "is on: a coordinator starts agents, and does not fork" if coordinator else "is off",
        state="bad" if coordinator else "ok",
    )
    yield case.fact(
        "call",
        "only an Agent call without subagent_type forks; with one, that agent is started",
        state="none",
    )
    if case.run is not None:
        started = [event for _, event in case.events() if isinstance(event, AgentStarted)]
        forks = sum(event.kind == "fork" for event in started)
        yield case.fact("this run", f"started {len(started)} agents, {forks} of them forks", state="none")


def command_not_forked(case: Case) -> Iterator[Fact]:
    skills = skills_for(cwd=case.cwd, home=case.home)
    wanted = case.about.lstrip("/")
    every = {skill.name: skill for skill in (*skills.for_person(), *skills.for_model())}
    found = [skill for name, skill in every.items() if wanted and named_alike(wanted, name)]
    for skill in found:
        where = skill.source.place("forks") or str(skill.source)
        if skill.forks:
            agent = f" as {skill.agent}" if skill.agent else ""
            yield case.fact(
                f"/{skill.name}", f"has context: fork ({where}): an agent of its own does it{agent}"
            )
        else:
            advice = f"Write `context: fork` between the --- lines at the top of {skill.source}"
            yield case.fact(
                f"/{skill.name}",
                "has no `context: fork`: the lead itself does it",
                state="bad",
                advice=advice,
            )
    for problem in skills.unusable():
        yield case.fact("not used", problem, state="warn" if found else "bad", advice="Repair the file.")
    if not found and wanted:
        near = get_close_matches(wanted, every, n=1)
        advice = f"Is /{near[0]} meant?" if near else "shoal skills ls shows those there are."
        yield case.fact(f"/{wanted}", "there is no such command or skill", state="bad", advice=advice)
    if not wanted:
        forking = [f"/{skill.name}" for skill in every.values() if skill.forks]
        yield case.fact(
            "commands that fork", ", ".join(forking) or "none", state="none", advice="Name one: --about NAME"
        )


def worktree_not_cleaned(case: Case) -> Iterator[Fact]:
    from shoal.app.quarters.worktrees import worktrees_of
    from shoal.core.clock import SystemClock

    try:
        worktrees = worktrees_of(case.cwd, home=case.home, environ=case.environ, clock=SystemClock())
        found = asyncio.run(worktrees.list())
    except ShoalError as error:
        yield case.fact("repository", str(error), state="none")
        return
    for standing in found:
        if case.concerns(standing.name, standing.name.removeprefix("agent-")):
            yield _worktree(case, standing)
    if not found:
        yield case.fact("worktrees", "none is left", state="ok")


def _worktree(case: Case, standing: Standing) -> Fact:
    name, work = standing.name, standing.work
    merge = f"Bring its work in: shoal worktree merge {name}"
    if standing.alive:
        return case.fact(
            name, "the session that made it still runs, and clears it when its agent ends", state="none"
        )
    if standing.record is None:
        return case.fact(name, f"the worktree is gone; its work is kept under {standing.ref}", advice=merge)
    if work is None:
        advice = f"Look at {standing.record.path}, then: shoal worktree rm {name} --force"
        return case.fact(
            name, "git cannot tell what is in it (a hook may have made it)", state="warn", advice=advice
        )
    if work.uncommitted or work.subjects:
        kept = f"{len(work.subjects)} commits and {len(work.uncommitted)} changes that are not committed"
        advice = f"{merge}; or let it go: shoal worktree rm {name} --force"
        if standing.merged:
            advice = f"All of it is merged here; clear it: shoal worktree rm {name}"
        return case.fact(name, f"holds work: {kept}", state="warn", advice=advice)
    return case.fact(
        name, "is unchanged, and its process died", state="warn", advice="Clear it: shoal worktree reap"
    )
