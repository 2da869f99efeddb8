"""The `/agents` command: list, show, stop and message agents."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from shoal.core.errors import AgentRequestRefused
from shoal.core.text.text_format import format_dollars, format_duration, strip_terminal_codes, to_one_line
from shoal.stores.files.home.home_paths import open_state_file
from shoal.surfaces.terminal.status_text import describe_agent_activity, format_agent_usage
from shoal.surfaces.terminal.text_styles import BOLD, DIM, YELLOW, get_agent_style, truncate_text
from shoal.surfaces.terminal.user_messages import describe_message_delivery, join_names

if TYPE_CHECKING:
    from shoal.app.run_view.agent_status import AgentStatusRecord
    from shoal.core.agents.subagents import AgentStatusSnapshot
    from shoal.surfaces.terminal.terminal_controller import StyledTextWriter, TerminalController

USAGE = "/agents, /agents show ID, stop ID|all, background [ID], send ID TEXT"
_LAST = 4_000
"""Maximum number of bytes of an agent's output to show."""


async def manage_agents(controller: TerminalController, argument: str) -> None:
    match argument.split(maxsplit=2):
        case []:
            _print_agents_and_shells(controller)
        case ["stop", "all"]:
            stopped_agents = await controller.session.stop_all()
            controller.notices.write_note(
                f"Stopped: {join_names(stopped_agents.ids)}."
                if stopped_agents.ids
                else "No agent is working."
            )
        case ["stop", task]:
            stopped_task = await controller.session.stop_task(_resolve_agent_prefix(controller, task))
            controller.notices.write_note(f"Stopped {task}: {to_one_line(stopped_task)}")
        case ["show", agent]:
            _print_agent_output_tail(controller, _resolve_agent_prefix(controller, agent))
        case ["background", *agent_argument]:
            moved_agents = controller.session.move_to_background(
                _resolve_agent_prefix(controller, agent_argument[0]) if agent_argument else None
            )
            if not moved_agents:
                controller.notices.write_note("There is no foreground agent.", YELLOW)
        case ["send", agent, text]:
            delivery = await controller.session.send(_resolve_agent_prefix(controller, agent), text)
            controller.notices.write_note(describe_message_delivery(delivery.name, delivery.how))
        case _:
            controller.notices.write_note(f"Usage: {USAGE}", YELLOW)


def _print_agents_and_shells(controller: TerminalController) -> None:
    statuses = list(controller.statuses.iter_agents_except_lead())
    shells = [shell for shell in controller.session.list_shells() if shell.status == "running"]
    definitions = controller.session.list_agent_definitions()
    with controller.notices.open_notice_block() as write:
        for status in (each for each in controller.statuses.iter_agents_in_tree_order() if each in statuses):
            _write_agent_rows(write, status, controller.now)
        for shell in shells:
            write(f"  $ {shell.id}  {to_one_line(shell.command)}\n", DIM)
        if not statuses and not shells:
            write("  No agent has been started.\n")
        write("  Agents that can be started:\n")
        for definition in definitions:
            write(f"  {definition.name:<18}", BOLD)
            description = truncate_text(to_one_line(definition.description), 70)
            write(f" {description} ({definition.source.kind})\n", DIM)
        write(f"  {USAGE}\n", DIM)


def _write_agent_rows(write: StyledTextWriter, status: AgentStatusRecord, now: float) -> None:
    write(f"{'  ' * max(status.depth, 1)}● ", get_agent_style(status.color))
    write(f"{status.display_name}", BOLD)
    write(f"  {to_one_line(status.task)}\n")
    usage = format_agent_usage(status, now if status.is_live else status.since + _get_agent_duration(status))
    cost = format_dollars(status.usd if status.priced else None)
    activity = f"{status.state}: {describe_agent_activity(status)}" if status.is_live else status.state_label
    background_note = " · in the background" if status.background and status.is_live else ""
    write(
        f"{'  ' * max(status.depth, 1)}  {status.agent} · {activity}{background_note} · {usage} · {cost}\n",
        DIM,
    )


def _get_agent_duration(status: AgentStatusRecord) -> float:
    return status.completion.duration_ms / 1000 if status.completion else 0.0


def _print_agent_output_tail(controller: TerminalController, agent: str) -> None:
    snapshot = _find_agent_snapshot(controller, agent)
    text = _read_file_tail(Path(snapshot.output)) if snapshot.output else ""
    with controller.notices.open_notice_block() as write:
        write(f"  {snapshot.output}  {snapshot.status}, {format_duration(snapshot.seconds)}\n", DIM)
        for line in strip_terminal_codes(text).splitlines():
            write(f"    {line}\n")


def _read_file_tail(path: Path) -> str:
    try:
        with open_state_file(path) as file:
            size = file.seek(0, 2)
            file.seek(max(size - _LAST, 0))
            text = file.read().decode(errors="replace")
    except OSError:
        return "(It has not written anything yet.)"
    return text if size <= _LAST else f"… {text.split(chr(10), 1)[-1]}"


def _find_agent_snapshot(controller: TerminalController, agent: str) -> AgentStatusSnapshot:
    for snapshot in controller.session.list_subagents():
        if agent in (snapshot.agent, snapshot.name):
            return snapshot
    raise AgentRequestRefused(f"There is no agent {agent!r} in this session. /agents lists them.")


def _resolve_agent_prefix(controller: TerminalController, prefix: str) -> str:
    """Resolve a name, an id, or a unique prefix of an id."""
    snapshots = controller.session.list_subagents()
    if any(prefix in (each.agent, each.name) for each in snapshots):
        return prefix
    matching_ids = [each.agent for each in snapshots if each.agent.startswith(prefix)]
    return matching_ids[0] if len(matching_ids) == 1 else prefix
