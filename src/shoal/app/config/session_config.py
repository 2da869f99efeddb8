"""Configuration of a session from its options, its settings and its history."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

import shoal
from shoal.agent.forks import FORK_KIND
from shoal.app.config.assistant_mode import is_assistant_mode
from shoal.app.config.coordinator_mode import is_coordinator_mode
from shoal.app.config.lead_agent import apply_lead_agent
from shoal.app.config.option_checks import check_options
from shoal.app.config.session_history import (
    SessionHistory,
    choose_session_store,
    open_member_history,
    open_session_history,
)
from shoal.app.config.system_prompt import format_date_line
from shoal.app.definitions.agent_catalog import AgentCatalog, load_agent_catalog, parse_agents_option
from shoal.app.definitions.plugin_set import PluginSet, load_plugins
from shoal.app.isolation.sandbox_policies import check_sandbox_settings
from shoal.app.model_notices import format_session_notice
from shoal.app.models.model_choice import (
    choose_model_with_fallback,
    find_plan_mode_names,
    find_unavailable_reason,
)
from shoal.app.options import Options
from shoal.app.settings.managed_switches import is_plugin_only, refuse_sideload_options
from shoal.app.settings.settings import Settings, load_settings
from shoal.core.agents.agent_definitions import AgentDefinition
from shoal.core.errors import SettingsError, UnknownModel
from shoal.core.ids import LEAD_ID, IdGenerator, JitterSource, LazyJitter
from shoal.core.permissions.permission_changes import AUTO_MODE, AUTO_MODE_NOTE, resolve_permission_mode
from shoal.core.plan_mode_model import PlanModeModel
from shoal.core.ports import Journal, Model, ResultStore, Transcript
from shoal.core.store import QuestionStore, Store
from shoal.core.tool_names import find_duplicate_tool_name
from shoal.core.user_environment import UserEnvironment, get_user_environment
from shoal.models.placeholders import RecordingPlaceholderReplacer
from shoal.tools.structured_output_tool import STRUCTURED_OUTPUT, StructuredOutputTool
from shoal.wire.settings_codec import SettingsDocument
from shoal.workspaces.checkpoints import CheckpointStore

_HOME_VARIABLES = ("SHOAL_HOME", "CLAUDE_CONFIG_DIR")
ModelChooser: TypeAlias = Callable[[str | Model | None], Awaitable[Model]]
"""Returns the model with the given name, or the configured one."""


def add_structured_output_tool(options: Options) -> tuple[Options, StructuredOutputTool | None]:
    """Return the options with the structured output tool added, and the tool; None if there is no schema."""
    output = options.output
    schema = options.output_schema if output is None else output.schema
    if schema is None:
        return options, None
    if any(tool.schema.name == STRUCTURED_OUTPUT for tool in options.tools):
        raise SettingsError(f"One of your tools is named {STRUCTURED_OUTPUT}, which is reserved. Rename it.")
    tool = StructuredOutputTool(schema, output)
    available = options.available_tools
    instruction = format_session_notice("output_instruction", tool=STRUCTURED_OUTPUT)
    appended_prompt = (
        f"{options.append_system_prompt}\n\n{instruction}" if options.append_system_prompt else instruction
    )
    options = replace(
        options,
        tools=(*options.tools, tool),
        available_tools=None if available is None else (*available, STRUCTURED_OUTPUT),
        append_system_prompt=appended_prompt,
    )
    return options, tool


def _add_relayed_tools(options: Options, deadline: float | None) -> Options:
    """Return the options with the tools of the driving program's MCP servers."""
    tools = tuple(tool for server in options.relayed_servers for tool in server.create_tools(deadline))
    if (name := find_duplicate_tool_name(tools)) is not None:
        raise SettingsError(f"Two tools of the driving program have the name {name!r}. Rename one of them.")
    available = options.available_tools
    if available is not None:
        # `available_tools` restricts the tools of Shoal; the tools of the program are always included.
        available = (*available, *(tool.schema.name for tool in tools))
    return replace(options, tools=(*tools, *options.tools), available_tools=available)


class SessionConfig(Struct, frozen=True, kw_only=True):
    started_at: float
    options: Options
    cwd: Path
    """Project directory, with symlinks resolved."""
    settings: Settings
    plugins: PluginSet
    definitions: AgentCatalog
    store: Store
    history: SessionHistory
    ids: IdGenerator
    jitter: JitterSource
    structured_output: StructuredOutputTool | None
    """Tool that receives the structured answer, if one is required."""
    coordinator: bool
    assistant: bool
    lead_agent: AgentDefinition | None = None
    """Agent that the lead is; None if it has no definition."""
    notes: tuple[str, ...]
    """Notes for the user about the configuration."""

    def list_agent_types(self) -> list[str]:
        """Return the types that agents of the session can have, without agents that a program adds later."""
        defined = (each.name for each in self.definitions.all())
        return [*defined, FORK_KIND, *self.settings.own.teammate_programs]


def load_session_config(options: Options, exit_stack: AsyncExitStack) -> SessionConfig:
    """Load the configuration and lock the session until `exit_stack` closes. Raises `ShoalError`."""
    check_options(options)
    started_at = options.clock.monotonic()
    user = get_user_environment(options.environ)
    (options, output_tool), cwd = add_structured_output_tool(options), _resolve_project(options.cwd, user)
    _check_added_directories(options.add_dirs, cwd, user)
    settings = load_settings(
        cwd=cwd,
        environ=resolve_environment(options, cwd),
        given=options.settings,
        sources=options.setting_sources,
    )
    if options.betas:
        settings = replace(settings, models=replace(settings.models, betas=tuple(options.betas)))
    if options.bare:
        settings = _remove_extensions(settings)
        options = replace(options, strict_mcp_config=True)
    if options.relayed_servers:
        options = _add_relayed_tools(options, settings.own.mcp_deadline)
    if options.teammate_mode is not None:
        settings = replace(settings, own=replace(settings.own, teammate_mode=options.teammate_mode))
    options, mode_notes = _resolve_requested_mode(options)
    sandbox_notes = check_sandbox_settings(settings, cwd)
    coordinator, assistant = is_coordinator_mode(options, settings), is_assistant_mode(options, settings)
    refuse_sideload_options(
        settings.documents,
        plugin_dirs=bool(options.plugin_dirs),
        agents=bool(options.agents),
        mcp_config=options.mcp_config,
    )
    given_agents = parse_agents_option(options.agents, cwd, settings.user)
    plugins = load_plugins(settings, cwd, options.plugin_dirs, installed=not options.bare)
    definitions = load_agent_catalog(
        cwd=cwd,
        home=settings.home,
        given=given_agents,
        plugins=plugins.list_agent_dirs(),
        complete=plugins.fill_agent_plugin_root,
        sources=()
        if options.bare or is_plugin_only(settings.documents, "agents")
        else options.setting_sources,
    )
    lead_choice = apply_lead_agent(options, settings, definitions)
    options = lead_choice.options
    ids = IdGenerator(options.seed)
    # Always drawn: a session's random numbers must not depend on its model or on earlier draws.
    jitter = LazyJitter(ids.derive_generator())
    store = choose_session_store(options, settings, exit_stack)
    history = (
        open_session_history(options, store, settings, str(cwd), ids)
        if (membership := options.membership) is None or membership.channel is None
        else open_member_history(membership, store, settings)
    )
    # Only for a new session is it certain that nobody else uses its directory.
    exit_stack.callback(history.store.release_lock, unused=not history.turns)
    return SessionConfig(
        started_at=started_at,
        options=options,
        cwd=cwd,
        settings=settings,
        plugins=plugins,
        definitions=definitions,
        store=store,
        history=history,
        ids=ids if history.last is None else ids.derive_for_resumed_session(history.last),
        jitter=jitter,
        structured_output=output_tool,
        coordinator=coordinator,
        assistant=assistant,
        lead_agent=lead_choice.definition,
        notes=(
            *mode_notes,
            *sandbox_notes,
            *lead_choice.notes,
            *(warning for parsed in given_agents for warning in parsed.warnings),
        ),
    )


def resolve_environment(options: Options, cwd: Path) -> dict[str, str] | None:
    """Return the variables for a session that names its own home or environment; None for the process's."""
    if options.environ is None and options.home is None:
        return None
    environ = dict(os.environ if options.environ is None else options.environ)
    user = get_user_environment(environ)
    if options.home is not None:
        environ["SHOAL_HOME"] = str(cwd / user.expand_home(str(options.home)))
    elif not any(environ.get(name) for name in (*_HOME_VARIABLES, "HOME")):
        raise SettingsError(
            "shoal.open: environ does not set a home directory. Pass home=DIRECTORY, or add SHOAL_HOME or "
            "HOME to environ."
        )
    if options.environ is not None and not user.home.startswith("/"):
        raise SettingsError(
            f"shoal.open: environ: HOME must be an absolute path, got {user.home!r}; otherwise, permission "
            f"rules and commands could mean different files with `~`."
        )
    # Commands and permission rules then mean the same directory with `~`.
    return {"HOME": user.home, **environ}


def _resolve_requested_mode(options: Options) -> tuple[Options, tuple[str, ...]]:
    """Return the options with a mode that Shoal has, and a note if the requested one is not available."""
    if options.mode is None:
        return options, ()
    notes = (AUTO_MODE_NOTE,) if options.mode == AUTO_MODE else ()
    return replace(options, mode=resolve_permission_mode(options.mode)), notes


def create_model_chooser(
    config: SessionConfig, exit_stack: AsyncExitStack, note: Callable[[str], None]
) -> ModelChooser:
    """Create a model chooser; `exit_stack` closes each model. It notes each unusable fallback once."""
    options, settings = config.options, config.settings
    placeholders = _build_recording_placeholders(config)
    noted: set[str] = set()

    def note_once(text: str) -> None:
        if text not in noted:
            noted.add(text)
            note(text)

    async def choose_model(name: str | Model | None) -> Model:
        text = name if name is None or isinstance(name, str) else ""
        if text != "" and (pair := find_plan_mode_names(text, settings)):
            try:
                other = await choose_model(pair.other)
            except UnknownModel as error:
                error.args = (f"{pair.name}: {error}", *error.args[1:])
                raise
            if reason := find_unavailable_reason(pair.planning, settings):
                note_once(f"{pair.name} also uses {pair.other} in plan mode. {reason}")
                return other
            planning = await choose_model(pair.planning)
            return PlanModeModel(pair.name, planning=planning, other=other)
        chosen = await choose_model_with_fallback(
            name,
            options.fallback_model,
            settings,
            options.clock,
            config.jitter,
            placeholders=placeholders,
            note=note_once,
        )
        model = _wrap_model_with_recorder(chosen, options.record, placeholders)
        exit_stack.push_async_callback(model.aclose)
        return model

    return choose_model


def _resolve_project(cwd: Path | None, user: UserEnvironment) -> Path:
    project = Path(user.expand_home(str(cwd or Path.cwd()))).resolve()
    if not project.is_dir():
        raise SettingsError(f"{project} is not a directory.", path=project)
    return project


def _check_added_directories(directories: Sequence[Path], cwd: Path, user: UserEnvironment) -> None:
    for each in directories:
        if not (path := cwd / user.expand_home(str(each))).is_dir():
            raise SettingsError(f"--add-dir: {path} is not a directory.", path=path)


def _build_recording_placeholders(config: SessionConfig) -> RecordingPlaceholderReplacer:
    """Build placeholders for the request parts that differ between a recording and its replay."""
    return RecordingPlaceholderReplacer(
        {
            "cwd": str(config.cwd),
            "home": str(config.settings.home),
            "session": config.history.session,
            "date": format_date_line(config.options.clock),
        },
        config.settings.secret_redactor,
    )


def _wrap_model_with_recorder(
    model: Model, path: Path | None, placeholders: RecordingPlaceholderReplacer
) -> Model:
    if path is None:
        return model
    from shoal.models.replay_model import RecordingModel

    return RecordingModel(model, path, placeholders)


class OpenedSessionStore(Struct, frozen=True, kw_only=True):
    directory: Path
    """Directory for working files of the run."""
    transcript: Transcript
    """Transcript of the lead."""
    journal: Journal
    results: ResultStore
    questions: QuestionStore
    checkpoints: CheckpointStore


def open_session_store(config: SessionConfig, exit_stack: AsyncExitStack) -> OpenedSessionStore:
    settings, store = config.settings, config.history.store
    transcript = store.open_transcript(
        LEAD_ID,
        cwd=str(config.cwd),
        version=shoal.__version__,
        title=config.options.title or "",
    )
    exit_stack.callback(transcript.close)
    journal = store.open_journal(config.options.clock, secrets=settings.secret_redactor)
    exit_stack.callback(journal.close)
    return OpenedSessionStore(
        directory=store.directory,
        transcript=transcript,
        journal=journal,
        results=store.open_results(),
        questions=store.open_questions(),
        checkpoints=CheckpointStore(store.directory / "checkpoints"),
    )


def _remove_extensions(settings: Settings) -> Settings:
    """Return the settings without hooks, servers, plug-ins, styles and instructions, except what is managed.

    A style that `--settings` chooses stays.
    """

    def remove_from_document(document: SettingsDocument) -> SettingsDocument:
        if document.kind == "managed":
            return document
        removed_keys = ("hooks", "mcpServers", *(() if document.kind == "command line" else ("outputStyle",)))
        return replace(
            document,
            raw={key: value for key, value in document.raw.items() if key not in removed_keys},
        )

    documents = tuple(map(remove_from_document, settings.documents))
    own = replace(settings.own, plugins=(), channels=(), instructions=False, session_memory=False)
    return replace(settings, documents=documents, own=own)
