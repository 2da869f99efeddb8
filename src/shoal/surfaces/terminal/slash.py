"""Commands typed at the prompt that start with a slash."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from shoal.app.session.commanding import Invocation
from shoal.core.errors import BadDefinition, UnknownSkill
from shoal.core.skills import Skill, TypedPrompt
from shoal.core.wording import count, dollars, one_line
from shoal.surfaces.terminal.listings import hook_lines, undone_lines
from shoal.surfaces.terminal.paint import BOLD, DIM, YELLOW, cut

if TYPE_CHECKING:
    from shoal.app.session.session import Session
    from shoal.surfaces.terminal.dialogue import Dialogue

Run = Callable[["Dialogue", str], Coroutine[Any, Any, None]]


class Command(Struct, frozen=True, kw_only=True):
    name: str
    usage: str
    help: str
    run: Run
    at_once: bool = False
    """True if the command may also run during a turn."""


def is_command(text: str) -> bool:
    """Return True for a slash command; a path at the start of a prompt is not one."""
    word = text.split(maxsplit=1)[0]
    return word.startswith("/") and "/" not in word[1:] and "\n" not in text.strip()


def find(text: str, session: Session) -> Command | Invocation | str:
    """Return the terminal's or the session's command, or an error message for the person."""
    from shoal.app.session.commanding import typed

    word = text.split(maxsplit=1)[0]
    by_name = {command.name: command for command in COMMANDS}
    if word in by_name:
        return by_name[word]
    try:
        found = typed(session.parts, text)
    except BadDefinition as bad:
        return str(bad)
    except UnknownSkill:
        found = text
    if isinstance(found, Invocation):
        return found
    near = get_close_matches(word, completions([session]), n=1)
    return f"There is no command {word}. {f'Did you mean {near[0]}? ' if near else ''}/help lists them."


def completions(sessions: Sequence[Session]) -> list[str]:
    """List the command names that can be typed, of the terminal and of the session."""
    own = [f"/{each.name}" for session in sessions for each in session.parts.knowledge.commands()]
    return [*(command.name for command in COMMANDS), *own]


def described(session: Session) -> list[tuple[str, str]]:
    """List each command with its description."""
    own = [(f"/{each.name}", one_line(each.description)) for each in session.parts.knowledge.commands()]
    return [*((command.name, command.help) for command in COMMANDS), *own]


def argument(text: str) -> str:
    return text.partition(" ")[2].strip()


async def _help(talk: Dialogue, _: str) -> None:
    with talk.telling.aside() as write:
        for command in COMMANDS:
            write(f"  {command.usage:<20}", BOLD)
            write(f"{command.help}\n", DIM)
        for each in talk.session.parts.knowledge.commands():
            write(f"  {f'/{each.name} {each.argument_hint}'.strip():<19} ", BOLD)
            write(f"{cut(one_line(each.description), 70)}{_from(each)}\n", DIM)
        for line in talk.keys:
            write(f"  {line}\n", DIM)


async def _suggest(talk: Dialogue, _: str) -> None:
    proposal = await talk.session.suggest()
    with talk.telling.aside() as write:
        write(f"  ↳ {proposal or 'There is nothing to propose yet.'}\n", "" if proposal else DIM)


def _from(command: Skill | TypedPrompt) -> str:
    return f" ({command.source.kind})" if isinstance(command, Skill) else ""


async def _btw(talk: Dialogue, question: str) -> None:
    if not question:
        talk.telling.note("/btw QUESTION asks the agent something that its conversation never holds.")
        return
    answer = await talk.session.ask_aside(question)
    with talk.telling.aside() as write:
        write(f"  ↳ {one_line(question)}\n", DIM)
        for line in (answer or "It had no answer.").splitlines():
            write(f"  {line}\n")


async def _compact(talk: Dialogue, wish: str) -> None:
    if not talk.session.agent.conversation.messages:
        talk.telling.note("Nothing was said yet that a summary could tell.")
        return
    talk.watch_activity().doing = "summarising the conversation"
    await talk.session.compact(wish)
    if not talk.shows_entries:
        talk.telling.note("The conversation goes on from a summary of itself.")


async def _notes(talk: Dialogue, word: str) -> None:
    from shoal.app.basis.session_memory import SessionMemory

    memory = talk.session.agent.remember
    if not isinstance(memory, SessionMemory):
        talk.telling.note("This session keeps no notes: the setting shoal.session_memory is off.")
    elif word == "save":
        talk.watch_activity().doing = "writing its notes"
        saved = await memory.save(talk.session.agent)
        talk.telling.note(f"The notes are in {memory.path}." if saved else "It had nothing to note.")
    elif word:
        talk.telling.note("/notes shows the notes of this session, /notes save brings them up to date.")
    else:
        for line in (memory.text() or "There are no notes yet: /notes save writes them.").splitlines():
            talk.telling.note(line)


async def _cost(talk: Dialogue, _: str) -> None:
    purse = talk.session.agent.purse.tree
    talk.telling.note(
        f"{dollars(purse.usd if purse.priced else None)} · "
        f"{count(purse.usage.prompt_tokens)} tokens in, {count(purse.usage.output_tokens)} out"
    )
    if len(purse.by_model) > 1:
        for model, (usage, usd) in purse.by_model.items():
            talk.telling.note(f"  {model}: {dollars(usd)} · {count(usage.total_tokens)} tokens")


async def _model(talk: Dialogue, name: str) -> None:
    if name:
        await talk.session.set_model(name)
    talk.telling.note(f"The model is {talk.session.agent.model.card.id}.")


async def _rewind(talk: Dialogue, turn: str) -> None:
    turns = talk.session.turns()
    if not turn:
        for each in turns:
            files = f"  {len(each.files)} files changed" if each.files else ""
            talk.telling.note(f"{each.turn:>3}  {cut(one_line(each.prompt), 50)}{files}")
        talk.telling.note("/rewind TURN goes back to before that turn." if turns else "There is no turn yet.")
        return
    known = {str(each.turn): each.turn for each in turns}
    if turn not in known:
        talk.telling.note(f"There is no turn {turn}. /rewind lists them.", YELLOW)
        return
    words = await talk.ask("The conversation too? y/n")
    report = await talk.session.undo(known[turn], conversation=words.strip().lower().startswith("y"))
    for line, style in undone_lines(report, talk.session.parts.workspace.root):
        talk.telling.note(line, style)


async def _skills(talk: Dialogue, _: str) -> None:
    from shoal.surfaces.terminal.slash_skills import skills

    skills(talk)


async def _memory(talk: Dialogue, _: str) -> None:
    from shoal.surfaces.terminal.slash_skills import memory

    memory(talk)


async def _hooks(talk: Dialogue, _: str) -> None:
    from shoal.app.views.hooks import rows_of, seen_in

    parts = talk.session.parts
    shared = rows_of(hook for hooks in parts.hooks.by_event.values() for hook in hooks)
    others = [row for row in seen_in(parts.workspace.root).hooks if row.agent or not row.trusted]
    for line in hook_lines((*shared, *others), colours=False):
        talk.telling.note(line)


async def _mcp(talk: Dialogue, _: str) -> None:
    standings = talk.session.parts.servers.standings()
    for each in standings:
        about = each.detail or f"{len(each.tools)} tools, {len(each.prompts)} prompts"
        talk.telling.note(f"{one_line(each.name)}  {each.status}  {one_line(about)}")
    if not standings:
        talk.telling.note("No MCP server is configured. Add one with: shoal mcp add NAME COMMAND")


def _of(module: str, name: str) -> Run:
    """Return a handler that imports its module when the command runs."""

    async def run(talk: Dialogue, words: str) -> None:
        command: Run = getattr(import_module(f"shoal.surfaces.terminal.{module}"), name)
        await command(talk, words)

    return run


async def _clear(talk: Dialogue, _: str) -> None:
    talk.end("cleared")


async def _exit(talk: Dialogue, _: str) -> None:
    talk.end()


def _command(usage: str, about: str, run: Run, *, at_once: bool = True) -> Command:
    return Command(name=usage.split(maxsplit=1)[0], usage=usage, help=about, run=run, at_once=at_once)


COMMANDS = (
    _command("/help", "this list", _help),
    _command("/btw QUESTION", "ask beside the work", _btw),
    _command("/suggest", "what you may want to say next", _suggest),
    _command(
        "/agents [stop ID]",
        "who is at work; also stop all, show, send, background",
        _of("slash_agents", "agents"),
    ),
    _command("/tasks", "the task board", _of("slash_more", "tasks")),
    _command("/team", "who is in the team", _of("slash_more", "team")),
    _command("/skills", "what agents can look up", _skills),
    _command("/memory", "the files with instructions", _memory),
    _command("/to NAME|lead", "talk to a teammate", _of("slash_team", "to")),
    _command("/delegate [on|off]", "let the lead only give work out", _of("slash_team", "delegate")),
    _command("/compact [WISH]", "go on from a summary", _compact, at_once=False),
    _command("/notes [save]", "the session's own notes", _notes, at_once=False),
    _command("/cost", "spent since the session was opened", _cost),
    _command("/permissions [MODE]", "what agents may do", _of("slash_more", "permissions")),
    _command("/hooks", "the hooks there are", _hooks),
    _command("/mcp", "the MCP servers and how they stand", _mcp),
    _command("/doctor", "check the set-up", _of("slash_more", "doctor")),
    _command("/model [NAME]", "the model, or another one", _model, at_once=False),
    _command("/export [FILE]", "write the conversation down", _of("slash_more", "export"), at_once=False),
    _command("/rewind [TURN]", "go back to before a turn", _rewind, at_once=False),
    _command("/resume [ID]", "go on with another session", _of("slash_more", "resume"), at_once=False),
    _command("/clear", "start a new session", _clear, at_once=False),
    _command("/exit", "end Shoal", _exit),
)
