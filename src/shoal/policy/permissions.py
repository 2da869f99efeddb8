"""Permission engine: the decision of the rules and the mode about one tool call."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from shoal.core.agents import OTHER_SESSION
from shoal.core.decisions import Allow, Ask, Decision, Deny
from shoal.core.errors import SettingsError, WorkspaceError
from shoal.core.filenames import shown
from shoal.core.identity import Identity
from shoal.core.messages import ToolUse
from shoal.core.permissions import AddRules, Destination, Mode, SetMode, Suggestion, lasting
from shoal.core.ports import Workspace
from shoal.core.questions import Allowed, Answer
from shoal.core.tools import Tool
from shoal.policy import suggestions
from shoal.policy.answers import SOURCE, SessionAnswers
from shoal.policy.authority import checked_mode
from shoal.policy.memory import Memory
from shoal.policy.paths import Reach
from shoal.policy.restriction import SOURCE as DEFINITION
from shoal.policy.restriction import Guard, Narrowed, Narrowing
from shoal.policy.rules import (
    ACCEPTING,
    FILE_TOOLS,
    READ_TOOLS,
    AlsoDenied,
    Fixed,
    Rule,
    Standing,
    StandingRules,
    parse_rule,
    path_of,
)
from shoal.policy.shell_calls import KEYS, PartJudged, ShellJudge
from shoal.policy.tables import FileTable, Tables

HARMLESS = frozenset(
    {"TodoWrite", "AskUserQuestion", "EnterPlanMode", "ExitPlanMode", "BashOutput", "KillShell", "ToolSearch"}
    | {"Skill", "StructuredOutput"}
    | {"Agent", "Task", "TaskOutput", "TaskStop", "TaskCreate", "TaskGet", "TaskList", "TaskUpdate"}
    | {"SendMessage", "TeamCreate", "TeamDelete", "ListAgents", "CronCreate", "CronList", "CronDelete"}
)
"""Tools that act only inside Shoal; the calls of the agents they reach are decided one by one."""
_FETCHING = frozenset({"WebFetch", "WebSearch"})

_HARMLESS = Allow("it changes nothing outside the conversation")
_READS_INSIDE = Allow("it reads inside the working directories")
_OWN_FILE = Allow("it was kept for this agent")
_ACCEPTED = Allow("edits in the working directories are accepted")
_PLAN_FILE = Allow("it writes the plan")
_MEMORY = Allow("it writes to the agent's own memory")
_SKIPPED = Allow("permissions are skipped")
_ONLY_READS = "in plan mode nothing is changed: read, and present a plan with ExitPlanMode."


class RulePermissions:
    """Decides tool calls: deny beats ask beats allow, regardless of the source; then the mode decides.

    `rules` are the rules of settings and flags, `readable` are directories outside the project that belong to
    the agent, `home` is Shoal's own directory, `can_bypass` is True if the user enabled bypassing
    permissions.
    """

    def __init__(
        self,
        workspace: Workspace,
        *,
        mode: Mode = "default",
        standing: StandingRules | Standing | None = None,
        readable: Iterable[Path] = (),
        home: Path | None = None,
        answers: SessionAnswers | None = None,
        may_skip: bool = False,
    ) -> None:
        if standing is None or isinstance(standing, Standing):
            standing = Fixed(standing or Standing())
        self._standing = standing
        self._settled = False
        self._workspace = workspace
        self._places = tuple(readable)
        self._readable = tuple(f"{place}/" for place in self._places)
        self._home = home
        self._reach = Reach(workspace, home)
        self._roots: tuple[str, ...] = (self._reach.root,)
        self._tables: Tables | None = None
        self._known: tuple[Standing | None, int] = (None, -1)
        self._lent: tuple[Rule, ...] = ()
        self._kept_rules: tuple[Rule, ...] = ()
        self._shell = ShellJudge(self._reach)
        self._narrowing = Narrowing()
        self._never: tuple[str, ...] = ()
        self._guard: Guard | None = None
        self.answers = answers or SessionAnswers()
        self.may_skip = may_skip or mode == "bypassPermissions"
        self.mode: Mode = mode
        self.plan_by_choice = False
        self._before_plan: Mode | None = None
        self.plan_file: str | None = None
        """File that may be written in plan mode."""
        self.memory: Memory | None = None
        self.sandboxed: Callable[[ToolUse], bool] | None = None
        """Returns True if a command runs in a sandbox, so that no question is needed."""

    def decide(self, call: ToolUse, tool: Tool | None, agent: Identity) -> Decision:
        if self._guard is not None and (refused := self._guard.refusal(call)) is not None:
            return refused
        if self.memory is not None and (refused := self._not_for_memory(call)) is not None:
            return refused
        if call.name in FILE_TOOLS:
            decision = self._file(call, self._current())
            # A call allowed without asking cannot have changed the rules: settings are protected files.
            self._settled = type(decision) is Allow
            if self._settled:
                return decision
        else:
            decision = self._decided(call, tool)
            harmless = call.name in HARMLESS or (tool is not None and tool.reads_only)
            self._settled = harmless and type(decision) is Allow
        if isinstance(decision, Ask) and self.mode == "dontAsk":
            told = f"{decision.reason}, and this session does not ask."
            return Deny(told, decision.rule, decision.source)
        return decision

    def child(
        self,
        workspace: Workspace,
        *,
        mode: Mode,
        only: Sequence[str] = (),
        never: Sequence[str] = (),
        confined: Path | None = None,
        before: Narrowed | None = None,
    ) -> RulePermissions:
        """Create permissions for a child agent: same rules and answers, its own workspace and mode.

        `allowed_tools` are the tools of its definition, whose patterns restrict them; `denied_tools` are
        those it denies. `main_checkout` is set for an agent in a worktree, whose file tools then stay in its
        working directories. The restrictions of this agent apply to the child too, as do the `stored`
        restrictions of an agent that another one started. Raises `SettingsError` for an invalid entry.
        """
        if before is not None:
            never = (*before.never, *never)
        denied = tuple(parse_rule(entry, DEFINITION) for entry in never)
        child = RulePermissions(
            workspace,
            mode=mode,
            standing=AlsoDenied(self._standing, denied) if denied else self._standing,
            readable=self._places,
            home=self._home,
            answers=self.answers,
            may_skip=self.may_skip,
        )
        child._roots = (*child._roots, *self._roots)
        child.sandboxed = self.sandboxed
        child._narrowing = self._narrowing.further(only, confined)
        for tools in () if before is None else before.only:
            child._narrowing = child._narrowing.further(tools, None)
        child._never = (*self._never, *never)
        if child._narrowing != Narrowing():
            child._guard = Guard(child._narrowing, child._reach, child._roots, child._is_kept)
        return child

    def lend(self, rules: Iterable[Rule], *, lasting: bool = False) -> None:
        """Allow this agent, but not its children, what a skill needs: until the turn ends, or permanently."""
        if lasting:
            self._kept_rules = (*self._kept_rules, *rules)
        else:
            self._lent = (*self._lent, *rules)
        self._tables = None

    @contextmanager
    def lending(self, rules: Iterable[Rule]) -> Iterator[None]:
        """Grant the rules for the duration of the block."""
        before = self._lent
        self.lend(rules)
        try:
            yield
        finally:
            self._lent, self._tables = before, None

    def turn_over(self) -> None:
        if self._lent:
            self._lent, self._tables = (), None

    def open_for_reading(self, directory: Path) -> None:
        """Allow this agent, and agents it starts from now on, to read below a directory."""
        if directory not in self._places:
            self._places = (*self._places, directory)
            self._readable = tuple(f"{place}/" for place in self._places)

    @property
    def narrowed(self) -> Narrowed:
        """Restrictions by the agent's own definition and by those of its ancestors."""
        return Narrowed(
            only=tuple(tuple(map(str, rules)) for rules in self._narrowing.only), never=self._never
        )

    def refusal_to_start(self, agent_type: str) -> Deny | None:
        """Return the refusal if a rule or restriction forbids starting agents of this type."""
        call = ToolUse(id="", name="Agent", input={"subagent_type": agent_type})
        if self._guard is not None and (refused := self._guard.refusal(call)) is not None:
            return refused
        tables = self._current()
        rule = tables.other(tables.standing.deny, call.name, call.input, forbids=True)
        return None if rule is None else forbidden(rule)

    def set_mode(self, mode: Mode, *, before: Mode | None = None) -> None:
        """Set the mode. `return_mode` is restored when a plan is approved; None means the current mode.

        Raises `SettingsError` if the mode bypasses permissions and the user has not enabled that.
        """
        checked = checked_mode(mode, may_skip=self.may_skip)
        if checked == "plan" != self.mode:
            self._before_plan = before or self.mode
        self.mode = checked
        self.plan_by_choice = False

    def enter_plan(self, plan_file: str) -> None:
        """Enter plan mode by choice of the agent, which may then leave it without approval."""
        self._before_plan, self.mode, self.plan_by_choice = self.mode, "plan", True
        self.name_plan(plan_file)

    def name_plan(self, plan_file: str) -> None:
        self.plan_file = os.path.realpath(plan_file)

    def leave_plan(self, mode: Mode | None = None) -> Mode:
        """Return to the previous mode, or to the one given with the approval."""
        self.set_mode(mode or self._before_plan or "default")
        self.plan_file = self._before_plan = None
        return self.mode

    def rules_in_force(self) -> Standing:
        return self._current().standing

    def unreadable(self, tool: str, top: str) -> Callable[[str], bool]:
        """Return a check for denied files, files that need a question not yet asked, and Shoal's keys."""
        table, is_key = self._current().file(tool), self._reach.is_key
        deny, ask = table.deny.named, table.ask.named
        asked_for = ask(top) is not None
        return lambda path: bool(is_key(path) or deny(path) or (not asked_for and ask(path)))

    def denied_paths(self) -> tuple[Path, ...]:
        """Return the existing paths that deny rules make unreadable."""
        return tuple(map(Path, self._current().denied.paths()))

    def judged_parts(self, command: str) -> tuple[PartJudged, ...]:
        """Decide a shell command part by part, for display."""
        return self._shell.parts(command, self._current(), self.mode)

    def remember(self, call: ToolUse, answer: Answer) -> None:
        """Apply the updates of an answer; a failed one is reported to the user, the call stays allowed."""
        if not isinstance(answer, Allowed):
            return
        updates = answer.updates
        if not updates and answer.remember != "once":
            decision = self._decided(call, None)
            suggested = decision.suggestions if isinstance(decision, Ask) else ()
            wanted: Destination = "session" if answer.remember == "session" else "localSettings"
            narrowest = lasting(suggested, wanted)
            updates = () if narrowest is None else (narrowest,)
        for update in updates:
            try:
                self.apply(update)
            except SettingsError as error:
                self.answers.note(f"A part of an answer is left out: {error}")

    def apply(self, update: Suggestion) -> None:
        """Apply a change requested by the user, for this session or in a settings file.

        Raises `SettingsError` for an invalid rule and for a mode that the user has not enabled.
        """
        self._settled = False
        if isinstance(update, AddRules):
            for rule in update.rules:
                parse_rule(str(rule), SOURCE)
        if isinstance(update, SetMode):
            self.set_mode(update.mode)
        if update.destination != "session" and self.answers.keep is not None:
            self.answers.keep(update)
        else:
            self.answers.add(update)

    def _is_kept(self, real: str) -> bool:
        if self.memory is not None and self.memory.holds(real):
            return True
        return (bool(self._readable) and real.startswith(self._readable)) or real == self.plan_file

    def _not_for_memory(self, call: ToolUse) -> Deny | None:
        assert self.memory is not None
        if call.name not in self.memory.only:
            return None
        try:
            real, _ = self._reach.real(path_of(call))
        except WorkspaceError as refusal:
            return Deny(str(refusal))
        return self.memory.refusal(call.name, real)

    def _current(self) -> Tables:
        standing = self._standing.current(fresh=not self._settled)
        known = self._known
        if known[0] is not standing or known[1] != self.answers.version or self._tables is None:
            said = self.answers.rules
            for directory in (*standing.directories, *self.answers.directories):
                if Path(os.path.realpath(directory)) not in self._workspace.granted:
                    self._workspace.grant(directory)
            whole = Standing(
                allow=(*standing.allow, *said["allow"], *self._kept_rules, *self._lent),
                ask=(*standing.ask, *said["ask"]),
                deny=(*standing.deny, *said["deny"]),
                directories=(*standing.directories, *self.answers.directories),
            )
            self._tables = Tables(whole, self._roots)
            self._known = (standing, self.answers.version)
        return self._tables

    def _decided(self, call: ToolUse, tool: Tool | None) -> Decision:
        tables = self._current()
        name = call.name
        if name in FILE_TOOLS:
            return self._file(call, tables)
        if name == "Bash":
            return self._command(call, tables)
        return self._other(call, tool, tables)

    def _file(self, call: ToolUse, tables: Tables) -> Decision:
        name = call.name
        try:
            real, is_directory = self._reach.real(path_of(call))
        except WorkspaceError as refusal:
            return Deny(str(refusal))
        if self._reach.is_key(real):
            return Deny(KEYS)
        table = tables.file(name)
        if not table.forbids_nothing:
            if rule := table.deny.first(real):
                return forbidden(rule)
            if rule := table.ask.first(real):
                return asked(rule, ())
        if self.mode == "bypassPermissions":
            return _SKIPPED
        if name in READ_TOOLS:
            return self._read(real, table, name, is_directory=is_directory)
        if is_directory:
            return Deny(f"{shown(real)} is a directory; give the path of a file.")
        return self._edit(real, table, name)

    def _read(self, real: str, table: FileTable, name: str, *, is_directory: bool) -> Decision:
        if self._reach.holds(real):
            return _READS_INSIDE
        if self._is_kept(real):
            return _OWN_FILE
        if rule := table.allow.named(real):
            return allowed(rule)
        return Ask(
            f"{shown(real)} is outside the working directories",
            suggestions=suggestions.for_read(name, real, is_directory=is_directory),
        )

    def _edit(self, real: str, table: FileTable, name: str) -> Decision:
        if self.mode == "plan":
            return _PLAN_FILE if real == self.plan_file else Deny(_ONLY_READS)
        if self.memory is not None and self.memory.is_writable(real):
            return _MEMORY
        if self._reach.is_guarded(real):
            return Ask(f"{shown(real)} is protected: it decides what programs do, or holds keys")
        inside = self._reach.holds(real)
        rules = table.allow
        if rule := rules.named(real):
            return allowed(rule)
        if inside and rules.bare is not None:
            return allowed(rules.bare)
        if inside and self.mode in ACCEPTING:
            return _ACCEPTED
        why = "it changes a file" if inside else f"{shown(real)} is outside the working directories"
        return Ask(why, suggestions=suggestions.for_edit(name, real, self._reach.root, inside=inside))

    def _command(self, call: ToolUse, tables: Tables) -> Decision:
        command = call.input.get("command")
        if not isinstance(command, str):
            return Deny("it names no command: give it as text in `command`.")
        decision = self._shell.judge(command, tables, self.mode)
        if not isinstance(decision, Ask) or decision.rule is not None:
            return decision
        if self.mode == "plan":
            return Deny(f"{decision.reason}, and {_ONLY_READS}")
        if self.sandboxed is not None and self.sandboxed(call):
            return Allow("it runs in the sandbox")
        return decision

    def _other(self, call: ToolUse, tool: Tool | None, tables: Tables) -> Decision:
        name, given, standing = call.name, call.input, tables.standing
        if rule := tables.other(standing.deny, name, given, forbids=True):
            return forbidden(rule)
        if rule := tables.other(standing.ask, name, given, forbids=True):
            return asked(rule, ())
        abroad = _other_session(call)
        if name in HARMLESS and not abroad:
            return _HARMLESS
        if self.mode == "bypassPermissions":
            return _SKIPPED
        if self.mode == "plan" and not (name in _FETCHING if tool is None else tool.reads_only):
            return Deny(_ONLY_READS)
        if rule := tables.other(standing.allow, name, given, forbids=False):
            return allowed(rule)
        why = f"it speaks to another session, {abroad}" if abroad else "it is not known to be safe"
        return Ask(why, suggestions=suggestions.for_other(name, given))


def _other_session(call: ToolUse) -> str:
    """Return the other session that a message is addressed to, or an empty text."""
    to = call.input.get("to") if call.name == "SendMessage" else None
    return to.removeprefix(OTHER_SESSION) if isinstance(to, str) and to.startswith(OTHER_SESSION) else ""


def forbidden(rule: Rule) -> Deny:
    return Deny(f"the rule {rule} ({rule.source}) forbids it.", str(rule), rule.source)


def asked(rule: Rule, suggested: tuple[Suggestion, ...]) -> Ask:
    return Ask(f"the rule {rule} ({rule.source}) asks first", str(rule), rule.source, suggested)


def allowed(rule: Rule) -> Allow:
    return Allow(f"the rule {rule} ({rule.source})", str(rule), rule.source)
