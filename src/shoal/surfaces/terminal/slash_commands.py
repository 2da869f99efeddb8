"""Commands typed at the prompt that start with a slash."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from shoal.app.session.session_changes import save_session_notes
from shoal.app.session.typed_commands import SlashCommandInvocation
from shoal.core.errors import InvalidAgentDefinition, UnknownSkill
from shoal.core.extensions.skills import Skill, TypedCommand
from shoal.core.text.text_format import (
    format_count_with_noun,
    format_dollars,
    format_token_count,
    to_one_line,
)
from shoal.surfaces.terminal.listings import format_hook_lines, format_undo_lines
from shoal.surfaces.terminal.text_styles import BOLD, DIM, YELLOW, truncate_text

if TYPE_CHECKING:
    from shoal.app.session.session import Session
    from shoal.surfaces.terminal.terminal_controller import TerminalController

SlashHandler = Callable[["TerminalController", str], Coroutine[Any, Any, None]]


class SlashCommand(Struct, frozen=True, kw_only=True):
    name: str
    usage: str
    help: str
    run: SlashHandler
    during_turn: bool = False
    """True if the command may also run during a turn."""


def is_slash_command(text: str) -> bool:
    """Return True for a slash command; a path at the start of a prompt is not one."""
    word = text.split(maxsplit=1)[0]
    return word.startswith("/") and "/" not in word[1:] and "\n" not in text.strip()


def find_slash_command(text: str, session: Session) -> SlashCommand | SlashCommandInvocation | str:
    """Return the terminal's or the session's command, or an error message for the user."""

    word = text.split(maxsplit=1)[0]
    by_name = {command.name: command for command in COMMANDS}
    if word in by_name:
        return by_name[word]
    try:
        invocation = session.parse_slash_command(text)
    except InvalidAgentDefinition as parse_error:
        return str(parse_error)
    except UnknownSkill as unknown:
        if unknown.advice:
            return str(unknown)
        invocation = text
    if isinstance(invocation, SlashCommandInvocation):
        return invocation
    matches = get_close_matches(word, list_slash_command_names([session]), n=1)
    return (
        f"Unknown command {word}. {f'Did you mean {matches[0]}? ' if matches else ''}/help lists the "
        "commands."
    )


def list_slash_command_names(sessions: Sequence[Session]) -> list[str]:
    """List the command names that can be typed, of the terminal and of the session."""
    skills = (each for session in sessions for each in session.list_slash_commands())
    return [*(command.name for command in COMMANDS), *(f"/{each.name}" for each in skills)]


def describe_slash_commands(session: Session) -> list[tuple[str, str]]:
    """List each command with its description."""
    skill_commands = [
        (f"/{each.name}", to_one_line(each.description)) for each in session.list_slash_commands()
    ]
    return [*((command.name, command.help) for command in COMMANDS), *skill_commands]


def parse_slash_command_argument(text: str) -> str:
    return text.partition(" ")[2].strip()


async def _show_help(controller: TerminalController, _: str) -> None:
    with controller.notices.open_notice_block() as write:
        for command in COMMANDS:
            write(f"  {command.usage:<20}", BOLD)
            write(f"{command.help}\n", DIM)
        for skill in controller.session.list_slash_commands():
            write(f"  {f'/{skill.name} {skill.argument_hint}'.strip():<19} ", BOLD)
            write(
                f"{truncate_text(to_one_line(skill.description), 70)}{_format_skill_source_note(skill)}\n",
                DIM,
            )
        for line in controller.key_help:
            write(f"  {line}\n", DIM)


async def _show_prompt_suggestion(controller: TerminalController, _: str) -> None:
    suggestion = await controller.session.suggest_prompt()
    with controller.notices.open_notice_block() as write:
        write(f"  ↳ {suggestion or 'There is no suggestion yet.'}\n", "" if suggestion else DIM)


def _format_skill_source_note(command: TypedCommand) -> str:
    return f" ({command.source.kind})" if isinstance(command, Skill) else ""


async def _ask_side_question(controller: TerminalController, question: str) -> None:
    if not question:
        controller.notices.write_note(
            "/btw QUESTION asks the agent a side question that is not added to its conversation."
        )
        return
    answer = await controller.session.ask_side_question(question)
    with controller.notices.open_notice_block() as write:
        write(f"  ↳ {to_one_line(question)}\n", DIM)
        for line in (answer or "The agent had no answer.").splitlines():
            write(f"  {line}\n")


async def _compact_conversation(controller: TerminalController, instructions: str) -> None:
    if not controller.session.messages:
        controller.notices.write_note("There is nothing to summarize yet.")
        return
    controller.start_turn_activity("summarizing the conversation")
    await controller.session.compact(instructions)
    if not controller.shows_entries:
        controller.notices.write_note("The conversation continues from a summary.")


async def _show_session_notes(controller: TerminalController, action: str) -> None:
    session_memory = controller.session.memory
    if session_memory is None:
        controller.notices.write_note(
            "This session has no notes because the setting shoal.session_memory is off."
        )
    elif action == "save":
        controller.start_turn_activity("writing the notes")
        saved_notes = await save_session_notes(controller.session)
        controller.notices.write_note(
            f"The notes are in {session_memory.path}." if saved_notes else "There was nothing worth noting."
        )
    elif action:
        controller.notices.write_note("/notes shows this session's notes, and /notes save updates them.")
    else:
        for line in (
            session_memory.read_notes() or "There are no notes yet. Write them: /notes save"
        ).splitlines():
            controller.notices.write_note(line)


async def _show_cost(controller: TerminalController, _: str) -> None:
    spending = controller.session.spending
    controller.notices.write_note(
        f"{format_dollars(spending.usd)} · "
        f"{format_token_count(spending.usage.prompt_tokens)} tokens in, "
        f"{format_token_count(spending.usage.output_tokens)} out"
    )
    if len(spending.by_model) > 1:
        for model, (usage, usd) in spending.by_model.items():
            controller.notices.write_note(
                f"  {model}: {format_dollars(usd)} · {format_token_count(usage.total_tokens)} tokens"
            )


async def _switch_model(controller: TerminalController, name: str) -> None:
    if name:
        await controller.session.set_model(name)
    controller.notices.write_note(f"The model is {controller.session.model_card.id}.")


async def _rewind_turn(controller: TerminalController, turn: str) -> None:
    turns = controller.session.list_undoable_turns()
    if not turn:
        for undoable_turn in turns:
            files = (
                f"  {format_count_with_noun(len(undoable_turn.files), 'changed file')}"
                if undoable_turn.files
                else ""
            )
            controller.notices.write_note(
                f"{undoable_turn.turn:>3}  {truncate_text(to_one_line(undoable_turn.prompt), 50)}{files}"
            )
        controller.notices.write_note(
            "/rewind TURN goes back to the state before that turn." if turns else "There are no turns yet."
        )
        return
    turns_by_number = {str(each.turn): each.turn for each in turns}
    if turn not in turns_by_number:
        controller.notices.write_note(f"There is no turn {turn}. /rewind lists them.", YELLOW)
        return
    reply = await controller.ask_user_for_line("Rewind the conversation too? y/n")
    report = await controller.session.undo(
        turns_by_number[turn], conversation=reply.strip().lower().startswith("y")
    )
    for line, style in format_undo_lines(report, controller.session.cwd):
        controller.notices.write_note(line, style)


async def _show_skills(controller: TerminalController, _: str) -> None:
    from shoal.surfaces.terminal.slash_skill_commands import show_skills

    show_skills(controller)


async def _show_instruction_files(controller: TerminalController, _: str) -> None:
    from shoal.surfaces.terminal.slash_skill_commands import show_instruction_files

    show_instruction_files(controller)


async def _show_hooks(controller: TerminalController, _: str) -> None:
    from shoal.app.reports.hook_report import build_hook_report, make_hook_rows

    session = controller.session
    shared_rows = make_hook_rows(session.list_hooks())
    others = [row for row in build_hook_report(session.cwd).hooks if row.agent or not row.trusted]
    for line in format_hook_lines((*shared_rows, *others), colours=False):
        controller.notices.write_note(line)


async def _show_mcp_servers(controller: TerminalController, _: str) -> None:
    statuses = controller.session.list_mcp_servers()
    for status in statuses:
        detail = status.detail or (
            f"{format_count_with_noun(len(status.tools), 'tool')}, "
            f"{format_count_with_noun(len(status.prompts), 'prompt')}"
        )
        controller.notices.write_note(f"{to_one_line(status.name)}  {status.status}  {to_one_line(detail)}")
    if not statuses:
        controller.notices.write_note("No MCP server is configured. Add one: shoal mcp add NAME COMMAND")


def _make_lazy_slash_handler(module: str, name: str) -> SlashHandler:
    """Return a handler that imports its module when the command runs."""

    async def import_and_run_handler(controller: TerminalController, argument: str) -> None:
        command: SlashHandler = getattr(import_module(f"shoal.surfaces.terminal.{module}"), name)
        await command(controller, argument)

    return import_and_run_handler


async def _clear_session(controller: TerminalController, _: str) -> None:
    controller.finish_with_outcome("cleared")


async def _exit_terminal(controller: TerminalController, _: str) -> None:
    controller.finish_with_outcome()


def _make_slash_command(
    usage: str, description: str, run: SlashHandler, *, during_turn: bool = True
) -> SlashCommand:
    return SlashCommand(
        name=usage.split(maxsplit=1)[0], usage=usage, help=description, run=run, during_turn=during_turn
    )


COMMANDS = (
    _make_slash_command("/help", "show this list", _show_help),
    _make_slash_command("/btw QUESTION", "ask a side question", _ask_side_question),
    _make_slash_command("/suggest", "suggest your next prompt", _show_prompt_suggestion),
    _make_slash_command(
        "/agents [stop ID]",
        "list agents; also stop all, show, send, background",
        _make_lazy_slash_handler("slash_agent_commands", "manage_agents"),
    ),
    _make_slash_command(
        "/tasks", "show the task board", _make_lazy_slash_handler("slash_session_commands", "show_tasks")
    ),
    _make_slash_command(
        "/team", "list the team members", _make_lazy_slash_handler("slash_session_commands", "show_team")
    ),
    _make_slash_command("/skills", "list the skills", _show_skills),
    _make_slash_command("/memory", "list the instruction files", _show_instruction_files),
    _make_slash_command(
        "/to NAME|lead",
        "talk to a teammate",
        _make_lazy_slash_handler("slash_team_commands", "choose_addressee"),
    ),
    _make_slash_command(
        "/delegate [on|off]",
        "restrict the lead to delegating",
        _make_lazy_slash_handler("slash_team_commands", "set_delegate_mode"),
    ),
    _make_slash_command(
        "/compact [WISH]", "continue from a summary", _compact_conversation, during_turn=False
    ),
    _make_slash_command("/notes [save]", "show the session's notes", _show_session_notes, during_turn=False),
    _make_slash_command("/cost", "show the cost of this session", _show_cost),
    _make_slash_command(
        "/permissions [MODE]",
        "show agents' permissions",
        _make_lazy_slash_handler("slash_session_commands", "show_permissions"),
    ),
    _make_slash_command("/hooks", "list the hooks", _show_hooks),
    _make_slash_command("/mcp", "list the MCP servers and their state", _show_mcp_servers),
    _make_slash_command(
        "/doctor", "check the setup", _make_lazy_slash_handler("slash_session_commands", "run_doctor")
    ),
    _make_slash_command("/model [NAME]", "show or change the model", _switch_model, during_turn=False),
    _make_slash_command(
        "/export [FILE]",
        "export the conversation",
        _make_lazy_slash_handler("slash_session_commands", "export_conversation"),
        during_turn=False,
    ),
    _make_slash_command(
        "/rewind [TURN]", "go back to the state before a turn", _rewind_turn, during_turn=False
    ),
    _make_slash_command(
        "/resume [ID]",
        "resume another session",
        _make_lazy_slash_handler("slash_session_commands", "resume_session"),
        during_turn=False,
    ),
    _make_slash_command("/clear", "start a new session", _clear_session, during_turn=False),
    _make_slash_command("/exit", "exit Shoal", _exit_terminal),
)
