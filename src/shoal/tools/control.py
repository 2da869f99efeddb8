"""Tools that inspect and stop background work: agents and shells."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from shoal.core.agents import Crew, Glimpse
from shoal.core.teams import Teams
from shoal.core.tools import Outcome, Site, Tool, failed
from shoal.tools.define import tool
from shoal.tools.shells import Shell, Shells
from shoal.wire.notices import kept_work, report, summary

_LONGEST = 600_000


def control_tools(crew: Crew, shells: Shells, teams: Teams) -> tuple[Tool, ...]:
    return (_task_output(crew, shells), _task_stop(crew, shells, teams))


def _task_output(crew: Crew, shells: Shells) -> Tool:
    @tool(name="TaskOutput", reads_only=True, deadline=None)
    async def task_output(
        task_id: Annotated[str, "The id of an agent or of a shell in the background"],
        block: Annotated[bool, "Wait for its end"] = True,  # noqa: FBT002 - the name models know
        timeout: Annotated[int, Meta(ge=0, le=_LONGEST), "Milliseconds to wait at most"] = 30_000,  # noqa: ASYNC109
        *,
        site: Site,
    ) -> Outcome:
        """Look at what runs in the background, or wait for its end. A notification tells you of every end,
        so there is seldom a need to wait; to see how far it is, Read its output file."""
        seconds = timeout / 1000 if block else 0
        shell = shells.find(task_id)
        if shell is not None:
            return await _shell_output(shells, shell, seconds, site)
        return _agent_output(await crew.output(task_id, seconds=seconds, site=site))

    return task_output


def _task_stop(crew: Crew, shells: Shells, teams: Teams) -> Tool:
    @tool(name="TaskStop", deadline=60)
    async def task_stop(
        task_id: Annotated[str | None, "An agent or shell in the background, or a teammate"] = None,
        shell_id: Annotated[str | None, "The id of a shell"] = None,
        *,
        site: Site,
    ) -> Outcome:
        """End an agent or a shell that runs in the background. What an agent did so far is kept."""
        wanted = task_id or shell_id
        if wanted is None:
            return failed("Give task_id: what is to be stopped.")
        shell = shells.find(wanted)
        if shell is not None:
            if shell.status != "running":
                return failed(f"Shell {wanted} is not running: it {shell.status}.")
            await shell.stop(f"it was stopped by {site.agent.name}", by=site.agent.agent)
            return Outcome(content=f"Shell {wanted} is ended: {shell.command}", data={"task_id": wanted})
        if await teams.stop(wanted, site):
            return Outcome(content=f"The teammate {wanted} is ended.", data={"task_id": wanted})
        stopped = await crew.stop(wanted, site)
        return Outcome(
            content=f"Agent {stopped.agent} is stopped: {stopped.description}",
            data={"task_id": stopped.agent, "status": stopped.status},
        )

    return task_stop


async def _shell_output(shells: Shells, shell: Shell, seconds: float, site: Site) -> Outcome:
    if seconds and shell.status == "running":
        try:
            async with site.clock.deadline(seconds):
                await shell.ended.wait()
        except TimeoutError:
            pass
    shells.seen(shell, site)
    return Outcome(
        content=f"status: {shell.status}\nexit code: {shell.exit_code}\n\n{shell.fresh()}",
        data={"task_id": shell.id, "status": shell.status, "exit_code": shell.exit_code},
    )


def _agent_output(seen: Glimpse) -> Outcome:
    data = {"task_id": seen.agent, "status": seen.status, "output_file": seen.output}
    done = seen.completion
    if done is None:
        doing = f" It is at: {seen.doing}." if seen.doing else ""
        return Outcome(
            content=f"status: running\n{seen.tool_calls} tool calls, {seen.tokens:,} tokens, "
            f"{seen.seconds:.0f} s so far.{doing} Its output grows in {seen.output}.",
            data=data,
        )
    work = "" if done.worktree is None else f"\n\n{kept_work(done.worktree)}"
    told = f"status: {done.status}\n{summary(done)}\n\n{report(done)}{work}"
    return Outcome(content=told, data=data)
