"""Permission engine: the decision of the rules and the mode about one tool call."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from shoal.core.agents.identity import AgentIdentity
from shoal.core.agents.subagents import OTHER_SESSION_PREFIX
from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.conversation.tools import Tool
from shoal.core.errors import SettingsError, WorkspaceError
from shoal.core.permissions.permission_changes import (
    AddPermissionRulesSuggestion,
    PermissionMode,
    PermissionSuggestion,
    SetPermissionModeSuggestion,
    find_permission_suggestion,
    is_allow_rule_suggestion,
)
from shoal.core.permissions.permission_decisions import (
    AllowDecision,
    AskDecision,
    DenyDecision,
    PermissionDecision,
)
from shoal.core.permissions.questions import AllowAnswer, Answer
from shoal.core.permissions.sandbox import SandboxStatus
from shoal.core.ports import Workspace
from shoal.core.text.filenames import escape_filename
from shoal.policy import rule_suggestions
from shoal.policy.agent_restrictions import (
    DEFINITION_SOURCE,
    NO_RESTRICTIONS,
    AgentRestrictionGuard,
    AgentRestrictions,
    StoredToolRestrictions,
)
from shoal.policy.memory_directory import AgentMemoryDirectory
from shoal.policy.mode_inheritance import check_requested_permission_mode
from shoal.policy.path_resolver import PathResolver
from shoal.policy.permission_answers import SESSION_SOURCE, RememberedPermissionAnswers
from shoal.policy.permission_rules import (
    EDIT_ACCEPTING_MODES,
    FILE_TOOLS,
    READ_TOOLS,
    AgentDenialRuleProvider,
    FixedPermissionRuleProvider,
    PermissionRuleProvider,
    PermissionRuleSet,
    ToolPermissionRule,
    get_file_tool_call_path,
    parse_permission_rule,
)
from shoal.policy.policy_texts import format_policy_notice
from shoal.policy.rule_tables import FilePermissionRuleTable, PermissionRuleTables

if TYPE_CHECKING:
    from shoal.policy.rule_decisions import ShellCommandPartDecision
    from shoal.policy.shell_policy import ShellCommandPermissionDecider

HARMLESS_TOOLS = frozenset(
    {"TodoWrite", "AskUserQuestion", "EnterPlanMode", "ExitPlanMode", "BashOutput", "KillShell", "ToolSearch"}
    | {"Skill", "StructuredOutput"}
    | {"Agent", "Task", "TaskOutput", "TaskStop", "TaskCreate", "TaskGet", "TaskList", "TaskUpdate"}
    | {"SendMessage", "TeamCreate", "TeamDelete", "ListAgents", "CronCreate", "CronList", "CronDelete"}
)
"""Tools that act only inside Shoal; the calls of the agents they reach are decided one by one."""
_FETCH_TOOLS = frozenset({"WebFetch", "WebSearch"})

_HARMLESS = AllowDecision("it changes nothing outside the conversation")
_READS_INSIDE = AllowDecision("it reads inside the working directories")
_OWN_FILE = AllowDecision("it is a file that Shoal stored for this agent")
_ACCEPTED = AllowDecision("edits in the working directories are accepted")
_PLAN_FILE = AllowDecision("it writes the plan")
_MEMORY = AllowDecision("it writes to the agent's own memory")
_SKIPPED = AllowDecision("permissions are skipped")


class InheritedPermissions(Struct, frozen=True, kw_only=True):
    """Permissions of a child agent that come from its parent, and restrictions by its definition."""

    readable_directories: tuple[Path, ...] = ()
    readable_prefixes: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    restrictions: AgentRestrictions = NO_RESTRICTIONS
    denied_tools: tuple[str, ...] = ()


NOT_INHERITED = InheritedPermissions()


class PermissionEngine:
    """Decides tool calls: deny beats ask beats allow, regardless of the source; then the mode decides.

    `rules` are the rules of settings and flags, `home` is Shoal's own directory or, for a child, the paths of
    its parent; `can_bypass` is True if the user enabled bypassing permissions; `sandbox` confines the
    commands of the agent; `inherited` is what a child has from its parent and from its definition.
    """

    def __init__(  # noqa: PLR0913 - where permissions come from
        self,
        workspace: Workspace,
        *,
        mode: PermissionMode = "default",
        rules: PermissionRuleProvider | PermissionRuleSet | None = None,
        home: Path | PathResolver | None = None,
        answers: RememberedPermissionAnswers | None = None,
        can_bypass: bool = False,
        sandbox: SandboxStatus | None = None,
        inherited: InheritedPermissions = NOT_INHERITED,
    ) -> None:
        if rules is None or isinstance(rules, PermissionRuleSet):
            rules = FixedPermissionRuleProvider(rules or PermissionRuleSet())
        self._rule_source = rules
        self._rules_unchanged = False
        self._workspace = workspace
        self._readable_directories = inherited.readable_directories
        self._readable_prefixes = inherited.readable_prefixes
        self._paths = PathResolver(workspace, home)
        self._roots: tuple[str, ...] = (self._paths.root, *inherited.roots)
        self._tables: PermissionRuleTables | None = None
        self._tables_key: tuple[PermissionRuleSet | None, int] = (None, -1)
        self._turn_rules: tuple[ToolPermissionRule, ...] = ()
        self._lasting_rules: tuple[ToolPermissionRule, ...] = ()
        self._turn_denials: tuple[ToolPermissionRule, ...] = ()
        self._restrictions = inherited.restrictions
        self._denied_tools = inherited.denied_tools
        self._guard = self._create_restriction_guard()
        self.answers = answers or RememberedPermissionAnswers(user=workspace.user)
        self.can_bypass = can_bypass or mode == "bypassPermissions"
        self.mode: PermissionMode = mode
        self.is_plan_voluntary = False
        self._before_plan: PermissionMode | None = None
        self.plan_file: str | None = None
        """File that may be written in plan mode."""
        self.memory: AgentMemoryDirectory | None = None
        self._sandbox = sandbox

    @cached_property
    def _shell(self) -> ShellCommandPermissionDecider:
        # Imported for the first command: the modules about shell commands are a tenth of all code at a start.
        from shoal.policy.shell_policy import ShellCommandPermissionDecider

        return ShellCommandPermissionDecider(self._paths)

    def decide_tool_call(
        self, call: ToolUseBlock, tool: Tool | None, agent: AgentIdentity
    ) -> PermissionDecision:
        if self._guard is not None and (denial := self._guard.check_tool_call(call)) is not None:
            return denial
        if self.memory is not None and (denial := self._check_memory_only_tools(call)) is not None:
            return denial
        if call.name in FILE_TOOLS:
            decision = self._decide_file_call(call, self._load_rule_tables())
            # A call allowed without asking cannot have changed the rules: settings are protected files.
            self._rules_unchanged = type(decision) is AllowDecision
            if self._rules_unchanged:
                return decision
        else:
            decision = self._decide_by_rules(call, tool)
            is_harmless = call.name in HARMLESS_TOOLS or (tool is not None and tool.is_read_only)
            self._rules_unchanged = is_harmless and type(decision) is AllowDecision
        if self.mode == "dontAsk" and isinstance(decision, AskDecision):
            reason = format_policy_notice("nobody_asked", reason=decision.reason)
            return DenyDecision(reason, decision.rule, decision.source)
        return self._leave_out_unusable_suggestions(decision)

    def _leave_out_unusable_suggestions(self, decision: PermissionDecision) -> PermissionDecision:
        """Return the decision without allow rules if only managed files may allow calls."""
        tables = self._tables
        if not isinstance(decision, AskDecision) or tables is None or not tables.rule_set.is_closed:
            return decision
        usable = (each for each in decision.suggestions if not is_allow_rule_suggestion(each))
        return replace(decision, suggestions=tuple(usable))

    def create_child(
        self,
        workspace: Workspace,
        *,
        mode: PermissionMode,
        allowed_tools: Sequence[str] = (),
        denied_tools: Sequence[str] = (),
        main_checkout: Path | None = None,
        stored: StoredToolRestrictions | None = None,
        sandbox: SandboxStatus | None = None,
    ) -> PermissionEngine:
        """Create permissions for a child agent: same rules and answers, its own workspace and mode.

        `allowed_tools` are the tools of its definition, whose patterns restrict them; `denied_tools` are
        those it denies. `main_checkout` is set for an agent in a worktree, whose file tools then stay in its
        working directories. The restrictions of this agent apply to the child too, as do the `stored`
        restrictions of an agent that another one started. Without a `sandbox`, the child has that of this
        agent. Raises `SettingsError` for an invalid entry.
        """
        denied_tools = (*map(str, self._turn_denials), *denied_tools)
        if stored is not None:
            denied_tools = (*stored.never, *denied_tools)
        denied_rules = tuple(parse_permission_rule(entry, DEFINITION_SOURCE) for entry in denied_tools)
        restrictions = self._restrictions.add_restrictions(allowed_tools, main_checkout)
        for tools in () if stored is None else stored.only:
            restrictions = restrictions.add_restrictions(tools, None)
        return PermissionEngine(
            workspace,
            mode=mode,
            rules=AgentDenialRuleProvider(self._rule_source, denied_rules)
            if denied_rules
            else self._rule_source,
            home=self._paths,
            answers=self.answers,
            can_bypass=self.can_bypass,
            sandbox=sandbox or self._sandbox,
            inherited=InheritedPermissions(
                readable_directories=self._readable_directories,
                readable_prefixes=self._readable_prefixes,
                roots=self._roots,
                restrictions=restrictions,
                denied_tools=(*self._denied_tools, *denied_tools),
            ),
        )

    def _create_restriction_guard(self) -> AgentRestrictionGuard | None:
        if self._restrictions == NO_RESTRICTIONS:
            return None
        return AgentRestrictionGuard(self._restrictions, self._paths, self._roots, self._is_agent_own_file)

    def restrict_to_tool_patterns(self, tools: Sequence[str]) -> None:
        """Restrict this agent, and agents it starts, to the patterns of a definition's tools."""
        self._restrictions = self._restrictions.add_restrictions(tools, None)
        self._guard = self._create_restriction_guard()

    def grant_allow_rules(self, rules: Iterable[ToolPermissionRule], *, lasting: bool = False) -> None:
        """Allow this agent, but not its children, what a skill needs: until the turn ends, or permanently."""
        if lasting:
            self._lasting_rules = (*self._lasting_rules, *rules)
        else:
            self._turn_rules = (*self._turn_rules, *rules)
        self._tables = None

    @contextmanager
    def grant_allow_rules_temporarily(self, rules: Iterable[ToolPermissionRule]) -> Iterator[None]:
        """Grant the rules for the duration of the block."""
        old_rules = self._turn_rules
        self.grant_allow_rules(rules)
        try:
            yield
        finally:
            self._turn_rules, self._tables = old_rules, None

    def deny_tools_for_turn(self, rules: Iterable[ToolPermissionRule]) -> None:
        """Deny this agent, and agents it starts from now on, what a skill takes away until the turn ends."""
        self._turn_denials = (*self._turn_denials, *rules)
        self._tables = None

    def drop_turn_permissions(self) -> None:
        if self._turn_rules or self._turn_denials:
            self._turn_rules, self._turn_denials, self._tables = (), (), None

    def use_memory_directory(self, memory: AgentMemoryDirectory) -> None:
        """Allow the agent to write its own memory."""
        self.memory = memory

    def add_checkout(self, directory: Path) -> None:
        """Apply the deny and ask rules about the project to another checkout of it too."""
        root = os.path.realpath(directory)
        if root not in self._roots:
            self._roots = (*self._roots, root)
            self._tables = None

    def allow_reading(self, *directories: Path) -> None:
        """Allow this agent, and agents it starts from now on, to read below directories."""
        self._readable_directories = tuple(dict.fromkeys((*self._readable_directories, *directories)))
        self._readable_prefixes = tuple(f"{place}/" for place in self._readable_directories)

    @property
    def inherited_denials(self) -> tuple[str, ...]:
        """Tools that agents it starts now may not use, beyond the rules of the session."""
        return (*map(str, self._turn_denials), *self._denied_tools)

    @property
    def restrictions(self) -> StoredToolRestrictions:
        """Restrictions by the agent's own definition and by those of its ancestors."""
        return StoredToolRestrictions(
            only=tuple(tuple(map(str, rules)) for rules in self._restrictions.only), never=self._denied_tools
        )

    def check_agent_start(self, agent_type: str) -> DenyDecision | None:
        """Return the refusal if a rule or restriction forbids starting agents of this type."""
        return self._find_denial(ToolUseBlock(id="", name="Agent", input={"subagent_type": agent_type}))

    def check_skill_use(self, name: str) -> DenyDecision | None:
        """Return the refusal if a rule or restriction forbids agents to use this skill."""
        return self._find_denial(ToolUseBlock(id="", name="Skill", input={"skill": name}))

    def _find_denial(self, call: ToolUseBlock) -> DenyDecision | None:
        if self._guard is not None and (denial := self._guard.check_tool_call(call)) is not None:
            return denial
        tables = self._load_rule_tables()
        rule = tables.find_matching_rule(tables.rule_set.deny, call.name, call.input, forbids=True)
        rule = rule or tables.find_parameter_rule(tables.rule_set.deny, call.name, call.input)
        return None if rule is None else deny_by_rule(rule)

    def set_mode(self, mode: PermissionMode, *, return_mode: PermissionMode | None = None) -> None:
        """Set the mode. `return_mode` is restored when a plan is approved; None means the current mode.

        Raises `SettingsError` if the mode bypasses permissions and the user has not enabled that.
        """
        checked = check_requested_permission_mode(mode, can_bypass=self.can_bypass)
        if checked == "plan" != self.mode:
            self._before_plan = return_mode or self.mode
        self.mode = checked
        self.is_plan_voluntary = False

    def enter_plan_mode(self, plan_file: str) -> None:
        """Enter plan mode by choice of the agent, which leaves it without approval unless it is the lead."""
        self._before_plan, self.mode, self.is_plan_voluntary = self.mode, "plan", True
        self.allow_plan_file(plan_file)

    def allow_plan_file(self, plan_file: str) -> None:
        self.plan_file = os.path.realpath(plan_file)

    def leave_plan_mode(self, mode: PermissionMode | None = None) -> PermissionMode:
        """Return to the previous mode, or to the one given with the approval."""
        self.set_mode(mode or self._before_plan or "default")
        self.plan_file = self._before_plan = None
        return self.mode

    def get_active_rules(self) -> PermissionRuleSet:
        return self._load_rule_tables().rule_set

    def build_unreadable_file_filter(self, tool: str, top: str) -> Callable[[str], bool]:
        """Return a check for denied files, files that need a question not yet asked, and Shoal's keys."""
        table, is_key = self._load_rule_tables().get_file_table(tool), self._paths.is_shoal_secret_file
        deny, ask = table.deny.find_match, table.ask.find_match
        is_asked = ask(top) is not None
        return lambda path: bool(is_key(path) or deny(path) or (not is_asked and ask(path)))

    def list_denied_paths(self) -> tuple[Path, ...]:
        """Return the existing paths that deny rules make unreadable."""
        return tuple(map(Path, self._load_rule_tables().denied_files.iter_unreadable_paths()))

    def decide_command_parts(self, command: str) -> tuple[ShellCommandPartDecision, ...]:
        """Decide a shell command part by part, for display."""
        return self._shell.decide_command_parts(command, self._load_rule_tables(), self.mode)

    def remember_permission_answer(self, call: ToolUseBlock, answer: Answer) -> None:
        """Apply the updates of an answer; a failed one is reported to the user, the call stays allowed."""
        if not isinstance(answer, AllowAnswer):
            return
        updates = answer.updates
        if not updates and (destination := answer.destination) is not None:
            decision = self._leave_out_unusable_suggestions(self._decide_by_rules(call, None))
            suggested = decision.suggestions if isinstance(decision, AskDecision) else ()
            narrowest = find_permission_suggestion(suggested, destination)
            updates = () if narrowest is None else (narrowest,)
        for update in updates:
            try:
                self.apply_permission_update(update)
            except SettingsError as error:
                self.answers.notify(f"Part of an answer was ignored: {error}")

    def apply_permission_update(self, update: PermissionSuggestion) -> None:
        """Apply a change requested by the user, for this session or in a settings file.

        Raises `SettingsError` for an invalid rule and for a mode that the user has not enabled.
        """
        self._rules_unchanged = False
        if isinstance(update, AddPermissionRulesSuggestion):
            for rule in update.rules:
                parse_permission_rule(str(rule), SESSION_SOURCE)
        if isinstance(update, SetPermissionModeSuggestion):
            self.set_mode(update.mode)
        if update.destination != "session" and self.answers.save is not None:
            self.answers.save(update)
        else:
            self.answers.add_answer(update)

    def _is_agent_own_file(self, real: str) -> bool:
        if self.memory is not None and self.memory.is_inside(real):
            return True
        return (
            bool(self._readable_prefixes) and real.startswith(self._readable_prefixes)
        ) or real == self.plan_file

    def _check_memory_only_tools(self, call: ToolUseBlock) -> DenyDecision | None:
        assert self.memory is not None
        if call.name not in self.memory.only:
            return None
        try:
            real, _ = self._paths.resolve_path(get_file_tool_call_path(call))
        except WorkspaceError as error:
            return DenyDecision(str(error))
        return self.memory.check_memory_only_tool(call.name, real)

    def _load_rule_tables(self) -> PermissionRuleTables:
        base_rules = self._rule_source.load_rules(fresh=not self._rules_unchanged)
        cached_key = self._tables_key
        if cached_key[0] is not base_rules or cached_key[1] != self.answers.version or self._tables is None:
            answered_rules = self.answers.rules
            for directory in (*base_rules.directories, *self.answers.directories):
                if Path(os.path.realpath(directory)) not in self._workspace.granted_directories:
                    self._workspace.grant_directory(directory)
            added_rules = (*answered_rules["allow"], *self._lasting_rules, *self._turn_rules)
            rule_set = PermissionRuleSet(
                allow=(*base_rules.allow, *(() if base_rules.is_closed else added_rules)),
                ask=(*base_rules.ask, *answered_rules["ask"]),
                deny=(*base_rules.deny, *answered_rules["deny"], *self._turn_denials),
                directories=(*base_rules.directories, *self.answers.directories),
                is_closed=base_rules.is_closed,
            )
            self._tables = PermissionRuleTables(rule_set, self._roots, self._paths.user.home)
            self._tables_key = (base_rules, self.answers.version)
        return self._tables

    def _decide_by_rules(self, call: ToolUseBlock, tool: Tool | None) -> PermissionDecision:
        tables = self._load_rule_tables()
        name = call.name
        if name in FILE_TOOLS:
            return self._decide_file_call(call, tables)
        if tables.has_parameter_rules:
            if rule := tables.find_parameter_rule(tables.rule_set.deny, name, call.input):
                return deny_by_rule(rule)
            if rule := tables.find_parameter_rule(tables.rule_set.ask, name, call.input):
                return ask_by_rule(rule, ())
        if name == "Bash":
            return self._decide_shell_call(call, tables)
        return self._decide_other_tool_call(call, tool, tables)

    def _decide_file_call(self, call: ToolUseBlock, tables: PermissionRuleTables) -> PermissionDecision:
        name = call.name
        try:
            real, is_directory = self._paths.resolve_path(get_file_tool_call_path(call))
        except WorkspaceError as error:
            return DenyDecision(str(error))
        if self._paths.is_shoal_secret_file(real):
            return DenyDecision(format_policy_notice("keys"))
        table = tables.get_file_table(name)
        if not table.forbids_nothing:
            if rule := table.deny.find_rule(real):
                return deny_by_rule(rule)
            if rule := table.ask.find_rule(real):
                return ask_by_rule(rule, ())
        if self.mode == "bypassPermissions":
            return _SKIPPED
        if name in READ_TOOLS:
            return self._decide_file_read(real, table, name, is_directory=is_directory)
        if is_directory:
            return DenyDecision(format_policy_notice("directory", path=escape_filename(real)))
        return self._decide_file_edit(real, table, name)

    def _decide_file_read(
        self, real: str, table: FilePermissionRuleTable, name: str, *, is_directory: bool
    ) -> PermissionDecision:
        if self._paths.is_inside_workspace(real):
            return _READS_INSIDE
        if self._is_agent_own_file(real):
            return _OWN_FILE
        if rule := table.allow.find_match(real):
            return allow_by_rule(rule)
        return AskDecision(
            format_policy_notice("outside", path=escape_filename(real)),
            suggestions=rule_suggestions.suggest_rules_for_read(name, real, is_directory=is_directory),
        )

    def _decide_file_edit(self, real: str, table: FilePermissionRuleTable, name: str) -> PermissionDecision:
        if self.mode == "plan":
            return _PLAN_FILE if real == self.plan_file else DenyDecision(format_policy_notice("plan_mode"))
        if self.memory is not None and self.memory.is_writable(real):
            return _MEMORY
        if self._paths.is_change_guarded(real):
            return AskDecision(format_policy_notice("protected", path=escape_filename(real)))
        is_inside = self._paths.is_inside_workspace(real)
        rules = table.allow
        if rule := rules.find_match(real):
            return allow_by_rule(rule)
        if is_inside and rules.bare is not None:
            return allow_by_rule(rules.bare)
        if is_inside and self.mode in EDIT_ACCEPTING_MODES:
            return _ACCEPTED
        reason = (
            format_policy_notice("changes_file")
            if is_inside
            else format_policy_notice("outside", path=escape_filename(real))
        )
        return AskDecision(
            reason,
            suggestions=rule_suggestions.suggest_rules_for_edit(
                name, real, self._paths.root, inside=is_inside
            ),
        )

    def _decide_shell_call(self, call: ToolUseBlock, tables: PermissionRuleTables) -> PermissionDecision:
        command = call.input.get("command")
        if not isinstance(command, str):
            return DenyDecision(format_policy_notice("no_command"))
        decision = self._shell.decide_command(command, tables, self.mode)
        if not isinstance(decision, AskDecision) or decision.rule is not None or decision.needs_person:
            return decision
        if self.mode == "plan":
            return DenyDecision(format_policy_notice("plan_mode_command", reason=decision.reason))
        if self._sandbox is not None and self._sandbox.can_skip_permission_question:
            return AllowDecision("it runs in the sandbox")
        return decision

    def _decide_other_tool_call(
        self, call: ToolUseBlock, tool: Tool | None, tables: PermissionRuleTables
    ) -> PermissionDecision:
        name, arguments, rule_set = call.name, call.input, tables.rule_set
        if rule := tables.find_matching_rule(rule_set.deny, name, arguments, forbids=True):
            return deny_by_rule(rule)
        if rule := tables.find_matching_rule(rule_set.ask, name, arguments, forbids=True):
            return ask_by_rule(rule, ())
        other_session = _get_recipient_session(call)
        if (name in HARMLESS_TOOLS or _is_harmless_worktree_call(call)) and not other_session:
            return _HARMLESS
        if self.mode == "bypassPermissions":
            return _SKIPPED
        if self.mode == "plan" and not (name in _FETCH_TOOLS if tool is None else tool.is_read_only):
            return DenyDecision(format_policy_notice("plan_mode"))
        if rule := tables.find_matching_rule(rule_set.allow, name, arguments, forbids=False):
            return allow_by_rule(rule)
        reason = (
            format_policy_notice("other_session", session=other_session)
            if other_session
            else format_policy_notice("unknown_tool")
        )
        return AskDecision(reason, suggestions=rule_suggestions.suggest_rules_for_other_tool(name, arguments))


def _is_harmless_worktree_call(call: ToolUseBlock) -> bool:
    """Return True for a move into a new worktree in the checkout, or out of one without losing work."""
    if call.name == "EnterWorktree":
        return not call.input.get("path")
    return call.name == "ExitWorktree" and not call.input.get("discard_changes")


def _get_recipient_session(call: ToolUseBlock) -> str:
    """Return the other session that a message is addressed to, or an empty text."""
    to = call.input.get("to") if call.name == "SendMessage" else None
    return (
        to.removeprefix(OTHER_SESSION_PREFIX)
        if isinstance(to, str) and to.startswith(OTHER_SESSION_PREFIX)
        else ""
    )


def deny_by_rule(rule: ToolPermissionRule) -> DenyDecision:
    return DenyDecision(
        format_policy_notice("rule_forbids", rule=rule, source=rule.source), str(rule), rule.source
    )


def ask_by_rule(rule: ToolPermissionRule, suggested: tuple[PermissionSuggestion, ...]) -> AskDecision:
    return AskDecision(
        format_policy_notice("rule_asks", rule=rule, source=rule.source), str(rule), rule.source, suggested
    )


def allow_by_rule(rule: ToolPermissionRule) -> AllowDecision:
    text = str(rule)
    return AllowDecision(f"the rule {text} ({rule.source})", text, rule.source)
