"""Tools that start, message and list other agents."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from shoal.core.agents import Completion, Crew, Glimpse, Launched, Order, Resolved
from shoal.core.teams import Spawned, Teams
from shoal.core.tools import Outcome, Site, Tool
from shoal.tools.define import FunctionTool, tool
from shoal.tools.messages import Abroad, message_tool
from shoal.wire.notices import evidence, kept_work, report

_ABOUT = (
    "Start an agent for one job and get its report back. It begins with your prompt alone: tell it all "
    "it needs to know, what to do and what to report. You see only its last message. Several calls in one "
    "message run side by side. Use it for work that a paragraph can tell and whose details you need not "
    "see: searching widely, reading much, a change in one place while another goes on. What you can do with "
    "one or two calls of your own, do yourself.\n\n"
    "In the background it works on while you go on; a notification tells you of its end, so do not wait or "
    "look for it. SendMessage reaches it while it works, and resumes it after its end with all it knows."
)


_FORKS = (
    "Without subagent_type the agent is a fork of you: it knows this whole conversation, has your tools and "
    "your model, and reads what you share from the cache. Its prompt is a directive: say what to do and what "
    "is not its part, not what you both know. Fork for what would fill your conversation with details that "
    "you need not keep; an agent that is named begins with your prompt alone. All agents run in the "
    "background. Until a fork has reported you do not know what it found: do not guess it."
)


class Shown(Struct, frozen=True, kw_only=True):
    """Optional inputs of the Agent tool that have an effect in this session; the others are hidden."""

    background: bool = True
    model: bool = True
    remote: bool = False
    cwd: bool = False
    teams: bool = False
    forks: bool = False
    """True if omitting the agent's type forks the caller."""


def agent_tools(crew: Crew, teams: Teams, *, listing: str, shown: Shown, abroad: Abroad) -> tuple[Tool, ...]:
    """Return the agent tools; `listing` names the agents, `send_to_session` reaches other sessions."""
    sending = message_tool(crew, teams, abroad)
    return (_agent(crew, teams, listing, shown), sending, _list_agents(crew, teams))


def _agent(crew: Crew, teams: Teams, listing: str, shown: Shown) -> Tool:
    about = "\n\n".join([_ABOUT, *([_FORKS] if shown.forks else []), listing]).strip()

    @tool(name="Agent", deadline=None, description=about, beside=True)
    async def agent(  # noqa: PLR0913, PLR0917 - the inputs that the protocol names
        description: Annotated[str, "What it does, in three to five words"],
        prompt: Annotated[str, Meta(min_length=1), "The job, with everything it needs to know"],
        subagent_type: Annotated[str | None, "Which agent; general-purpose if left out"] = None,
        model: Annotated[str | None, "Another model than its own: sonnet, opus, haiku or a name"] = None,
        run_in_background: Annotated[  # noqa: FBT002 - the protocol names it
            bool, "Go on at once; a notification tells of its end"
        ] = False,
        name: Annotated[str | None, "A name by which SendMessage reaches it"] = None,
        team_name: Annotated[str | None, "The team it joins as a teammate"] = None,
        mode: Annotated[str | None, "The permission mode of a teammate"] = None,
        isolation: Annotated[
            Literal["worktree", "remote"] | None, "worktree: it works on a copy of the repository of its own"
        ] = None,
        cwd: Annotated[str | None, "The directory it works in"] = None,
        effort: Annotated[str | int | None, "How hard it thinks: low, medium, high, or a number"] = None,
        *,
        site: Site,
    ) -> Outcome:
        order = Order(
            description=description,
            prompt=prompt,
            kind=subagent_type,
            model=model,
            background=run_in_background,
            name=name,
            team=team_name,
            mode=mode,
            isolation=isolation,
            cwd=cwd,
            effort=effort,
        )
        return told_start(await _begun(crew, teams, order, site))

    agent.show(_inputs(agent, shown))
    return agent


def _inputs(agent: FunctionTool, shown: Shown) -> dict[str, Any]:
    inputs = agent.inputs_but(
        *(() if shown.background else ("run_in_background",)),
        *(() if shown.model else ("model",)),
        *(() if shown.cwd else ("cwd",)),
        *(() if shown.teams else ("team_name", "mode")),
    )
    if shown.forks:
        # A new dict: all sessions of a process share the cached schema.
        kind = inputs["subagent_type"]
        inputs["subagent_type"] = {**kind, "description": "Which agent; a fork of you if left out"}
    if not shown.remote:
        inputs["isolation"] = {
            "type": "string",
            "enum": ["worktree"],
            "description": "worktree: it works on a copy of the repository of its own",
        }
    return inputs


async def _begun(crew: Crew, teams: Teams, order: Order, site: Site) -> Completion | Launched | Spawned:
    """Start a teammate if the call asks for one, else an agent for one job."""
    return await teams.spawn(order, site) or await crew.start(order, site)


def _list_agents(crew: Crew, teams: Teams) -> Tool:
    @tool(name="ListAgents", reads_only=True, deadline=10)
    async def list_agents() -> Outcome:
        """List the agents of this session: who is at work, on what, and how the others ended."""
        agents, members = crew.agents(), teams.members()
        lines = [f"{each.name}: teammate, {each.kind} on {each.model}, {each.state}" for each in members]
        lines += [_line(each) for each in agents]
        return Outcome(
            content="\n".join(lines) or "No agent has been started.",
            data={"agents": [_facts(each) for each in agents], "teammates": members},
        )

    return list_agents


def told_start(result: Completion | Launched | Spawned) -> Outcome:
    """Return the tool output for an agent that was started or has completed."""
    match result:
        case Completion():
            return _completed(result)
        case Launched():
            return _launched(result)
        case Spawned():
            return _spawned(result)


def _completed(done: Completion) -> Outcome:
    data = {
        "status": done.status,
        "content": done.text,
        "agentId": done.agent,
        "totalTokens": done.usage.total_tokens,
        "totalToolUseCount": done.evidence.tool_calls,
        "totalDurationMs": done.duration_ms,
        "evidence": done.evidence,
    }
    if done.worktree is not None:
        data |= {"worktreePath": done.worktree.path, "worktreeBranch": done.worktree.branch}
    if done.status != "completed":
        partial = f"\n\nWhat it said before:\n{report(done)}" if done.text else ""
        ended = "was stopped" if done.status == "killed" else "failed"
        why = f"The agent {ended}: {done.detail}{partial}"
        return Outcome(content=f"{why}\n\n{_trailer(done)}", is_error=not done.text, data=data)
    parts = [report(done)]
    if done.detail:
        parts.append(f"[{done.detail}]")
    if done.worktree is not None or not done.one_shot:
        parts.append(_trailer(done))
    return Outcome(content="\n\n".join(parts), data=data)


def _trailer(done: Completion) -> str:
    lines = [f"agentId: {done.agent} (SendMessage resumes it)"]
    if done.worktree is not None:
        lines.append(kept_work(done.worktree))
    lines.append(f"evidence: {evidence(done.evidence)}")
    lines.append(
        f"<usage>total_tokens: {done.usage.total_tokens}\ntool_uses: {done.evidence.tool_calls}\n"
        f"duration_ms: {done.duration_ms}</usage>"
    )
    return "\n".join(lines)


def _launched(launched: Launched) -> Outcome:
    found = launched.resolved
    how = (
        "It was taking long and goes on in the background" if launched.moved else "It works in the background"
    )
    lines = [
        f"{how}. agentId: {launched.agent}" + (f", name: {launched.name}" if launched.name else ""),
        f"It is {found.kind} ({found.source}) on {found.model}, mode {found.mode}, in {found.cwd}, with "
        f"{_given(found)}, starting at about {found.start_tokens:,} tokens.",
        *found.notes,
        "A notification will tell you of its end: go on with other work, or end your turn. "
        f"What it does can be read in {launched.output}.",
    ]
    return Outcome(
        content="\n".join(lines),
        data={
            "status": "async_launched",
            "agentId": launched.agent,
            "description": launched.description,
            "prompt": launched.prompt,
            "outputFile": str(launched.output),
            "canReadOutputFile": True,
            "resolved": found,
        },
    )


def _spawned(spawned: Spawned) -> Outcome:
    found = spawned.resolved
    lines = [
        f"{spawned.name} has joined the team {spawned.team} and works on your prompt. "
        f"teammate_id: {spawned.teammate}",
        f"It is {found.kind} ({found.source}) on {found.model}, mode {found.mode}, in {found.cwd}, with "
        f"{_given(found)}.",
        *found.notes,
        "Its messages come to you by themselves: go on with other work, or end your turn.",
    ]
    return Outcome(
        content="\n".join(lines),
        data={
            "status": "teammate_spawned",
            "teammate_id": spawned.teammate,
            "name": spawned.name,
            "team_name": spawned.team,
            "color": spawned.color,
            "resolved": found,
        },
    )


def _given(found: Resolved) -> str:
    servers = f" (MCP servers: {', '.join(found.servers)})" if found.servers else ""
    parts = [f"{len(found.tools)} tools{servers}"]
    if found.skills:
        parts.append(f"the skill{'' if len(found.skills) == 1 else 's'} {', '.join(found.skills)}")
    if found.hooks:
        parts.append(f"{len(found.hooks)} hook{'' if len(found.hooks) == 1 else 's'}")
    return " and ".join(parts)


def _line(each: Glimpse) -> str:
    who = f"{each.agent}" + (f" ({each.name})" if each.name else "")
    doing = f", now {each.doing}" if each.doing else ""
    return (
        f"{who}: {each.kind}, {each.status}: {each.description} "
        f"[{each.tool_calls} tool calls, {each.tokens:,} tokens, {each.seconds:.0f} s{doing}]"
    )


def _facts(each: Glimpse) -> dict[str, object]:
    return {
        "agentId": each.agent,
        "name": each.name,
        "agentType": each.kind,
        "description": each.description,
        "status": each.status,
        "parent": each.parent,
        "background": each.background,
        "outputFile": each.output,
    }
