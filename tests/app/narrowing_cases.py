"""Calls that must not be run, each with the item that forbids it; without the item, the call is run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from hook_helpers import build_answer_command, build_specific_answer, make_command_hook

Call: TypeAlias = tuple[str, dict[str, Any]]
_NO_DEFINITION = {"lead": "a session's lead has no agent definition"}
_ONLY_LEAD = dict.fromkeys(("sub-agent", "teammate", "teammate in a process"), "it is about the lead only")
_NO_OTHER_PROCESS = {"teammate in a process": "not available in other processes"}
_DEPTHS = {"lead": 0, "sub-agent": 1, "teammate": 1, "teammate in a process": 1}


class NarrowingItem(Struct, frozen=True, kw_only=True):
    """An item and calls of which the last must not be run with it, or what they do must not happen."""

    proves: tuple[str, ...] = ()
    """Items of `read_items.py` that it is about, besides its own name."""
    settings: dict[str, Any] | Callable[[int], dict[str, Any]] = {}
    """Settings with the item, or a function of the worker's depth."""
    calls: tuple[Call, ...] = ()
    mode: str = "bypassPermissions"
    options: dict[str, Any] = {}
    environ: dict[str, str] = {}
    definition: dict[str, Any] | None = None
    """Fields of the worker's agent definition; None if it has none."""
    skills: Mapping[str, str] = {}
    """Front matter of skills by name; the text of each says INNER."""
    project_servers: Mapping[str, Any] = {}
    """Servers of a trusted `.mcp.json`."""
    lead_first: tuple[Call, ...] = ()
    """Calls of the lead before it starts the worker."""
    inner: tuple[Call, ...] = ()
    """Calls of the agent that the worker starts."""
    refusals: Sequence[str] = ("was not run", "not allowed", "There is no tool named")
    """Texts of which the last result has one; nothing is expected if empty."""
    starts: bool = True
    """False if the worker must not be started at all."""
    skipped: Mapping[str, str] = {}
    """Positions in which the item cannot apply, with the reason."""
    not_started: Mapping[str, str] = {}
    """Positions in which the worker is not started, with a part of the reason that its lead gets."""
    without: dict[str, Any] | None = {}
    """Fields of this item in the run without it; None if no such run is possible."""
    needs: tuple[str, ...] = ()

    def build_settings(self, position: str) -> dict[str, Any]:
        return self.settings if isinstance(self.settings, dict) else self.settings(_DEPTHS[position])


def make_hook(entry: dict[str, Any], *actions: dict[str, Any], event: str = "PreToolUse") -> dict[str, Any]:
    return {"hooks": {event: [{**entry, "hooks": list(actions)}]}}


def make_rules(**rules: Any) -> dict[str, Any]:
    return {"permissions": rules}


def make_answer(event: str = "PreToolUse", **fields: Any) -> dict[str, Any]:
    return make_command_hook(build_specific_answer(hookEventName=event, **fields))


def deny_with_python(_: dict[str, Any]) -> dict[str, Any]:
    return {"decision": "block", "reason": "the program forbids it"}


WRITE: Call = ("Write", {"file_path": "made", "content": "x"})
TOUCH: Call = ("Bash", {"command": "touch made"})
# The last call waits for the command: commands in the background end with their agent.
TOUCH_IN_BACKGROUND: tuple[Call, ...] = (
    ("Bash", {"command": "mkfifo end"}),
    ("Bash", {"command": "touch made; echo >end", "run_in_background": True}),
    ("Bash", {"command": "cat end"}),
)
READ: Call = ("Read", {"file_path": "lib/secrets/key"})
INNER: Call = ("Agent", {"description": "x", "prompt": "INNER: begin", "subagent_type": "general-purpose"})
CAT: Call = ("Bash", {"command": "cat lib/secrets/key"})
CONNECT: Call = (
    "Bash", {"command": "(exec 3<>/dev/tcp/127.0.0.1/${ANTHROPIC_BASE_URL##*:}) && touch made"}
)  # fmt: skip
SHOW_ADDRESS: Call = ("Bash", {"command": 'test -n "$ANTHROPIC_BASE_URL" && touch made'})
ESCAPE: Call = ("Bash", {"command": "touch .git/hooks/made"})
USE_SHARED_TEMP: Call = (
    "Bash", {"command": "file=$(mktemp /tmp/shoal-narrowing-XXXXXX) && rm $file && touch made"}
)  # fmt: skip
IDLE: Call = ("Bash", {"command": "true"})
_ALLOW = make_answer(permissionDecision="allow")
_BLOCK = make_command_hook("exit 2")
_SERVER = {"srv": {"command": "sh", "args": ["-c", "touch made"]}}
_WAIT = {"shoal": {"mcp_wait": 30}}
"""Without it, the first request does not wait for servers."""
_SERVER_SETTINGS = {**_WAIT, "mcpServers": _SERVER}
_ANSWER_NO = {"decision": {"behavior": "deny", "message": "no"}}
_ANSWER_YES = {"decision": {"behavior": "allow"}}
_DENIAL = {
    "type": "addRules",
    "behavior": "deny",
    "rules": [{"toolName": "Bash", "ruleContent": "touch:*"}],
    "destination": "session",
}
_ANSWER_WITH_DENIAL = {"decision": {"behavior": "allow", "updatedPermissions": [_DENIAL]}}
_NARROW_SKILL = "disallowed-tools: Bash(touch:*), Write"
_SKILL: Call = ("Skill", {"skill": "narrow"})
_TASK: Call = ("TaskCreate", {"subject": "s", "description": "d"})
_TEAM_TOOLS = ["Agent", "TeamCreate", "Read"]


def _make_own_sandbox(**sandbox: Any) -> dict[str, Any]:
    return {"shoal": {"sandbox": {"enabled": True, **sandbox}}}


def _make_sandbox_key(**sandbox: Any) -> dict[str, Any]:
    return {"sandbox": {"enabled": True, **sandbox}}


def _sandbox_item(settings: dict[str, Any], call: Call, *proves: str) -> NarrowingItem:
    return NarrowingItem(
        proves=proves,
        settings=settings,
        calls=(call,),
        refusals=(),
        # By default, a sandbox is used where there is one.
        without={"settings": {"shoal": {"sandbox": {"enabled": False}}}},
        needs=("bwrap",),
    )


def _make_lead_definition(**fields: Any) -> dict[str, Any]:
    return {"agents": {"boss": {"description": "d", "prompt": "p", **fields}}, "agent": "boss"}


ITEMS = {
    # Permission rules and modes
    "CMP-016": NarrowingItem(settings=make_rules(allow=["*"]), calls=(WRITE,), mode="default", without=None),
    "CMP-014": NarrowingItem(
        settings={"permissions": {"defaultMode": "auto", "allow": ["B*"]}},
        calls=(TOUCH,),
        mode="auto",
        without=None,
    ),
    "CMP-015": NarrowingItem(
        settings=make_rules(allow=["B*", "mcp__*"]), calls=(TOUCH,), mode="default", without=None
    ),
    "CMP-018": NarrowingItem(settings=make_rules(deny=["B*", "mcp__*"]), calls=(TOUCH,)),
    "CMP-019": NarrowingItem(
        settings=make_rules(deny=["Bash(run_in_background:true)"]),
        calls=(("Bash", {"command": "touch made", "run_in_background": True}),),
        without={"calls": TOUCH_IN_BACKGROUND},
    ),
    "CMP-020": NarrowingItem(settings=make_rules(deny=["Read(secrets/**)"]), calls=(READ,)),
    "CMP-021": NarrowingItem(settings=make_rules(deny=["Read(made)"]), calls=(WRITE,)),
    "CMP-023": NarrowingItem(
        settings=make_hook({}, _ALLOW), calls=(("Bash", {"command": "rmdir /"}),), without=None
    ),
    "CMP-024": NarrowingItem(
        calls=(("Write", {"file_path": ".husky/pre-commit", "content": "x"}),),
        mode="acceptEdits",
        without=None,
    ),
    "permissions.deny": NarrowingItem(
        proves=("settings permissions.deny",), settings=make_rules(deny=["Write"]), calls=(WRITE,)
    ),
    "permissions.ask": NarrowingItem(
        proves=("settings permissions.ask",), settings=make_rules(ask=["Bash(touch:*)"]), calls=(TOUCH,)
    ),
    "permissions.defaultMode plan": NarrowingItem(
        proves=("settings permissions.defaultMode", "option mode", "flag --permission-mode"),
        settings=make_rules(defaultMode="plan"),
        calls=(TOUCH,),
        mode="plan",
        without={"mode": "bypassPermissions"},
    ),
    "permissions.defaultMode dontAsk": NarrowingItem(
        settings=make_rules(defaultMode="dontAsk"),
        calls=(TOUCH,),
        mode="dontAsk",
        without={"mode": "bypassPermissions"},
    ),
    "plan mode that the lead entered later": NarrowingItem(
        lead_first=(("EnterPlanMode", {}),),
        calls=(WRITE,),
        skipped={"lead": "the case is about the agents it starts"},
        without={"lead_first": ()},
    ),
    "permissions.disableBypassPermissionsMode": NarrowingItem(
        proves=(
            "foreign disableBypassPermissionsMode",
            "agent permissionMode",
        ),
        settings=make_rules(disableBypassPermissionsMode="disable"),
        definition={"permissionMode": "bypassPermissions"},
        calls=(WRITE,),
        mode="default",
        without={"settings": {}, "mode": "bypassPermissions"},
    ),
    "--disallowedTools": NarrowingItem(
        proves=("option disallowed_tools", "flag --disallowedTools"),
        options={"disallowed_tools": ["Bash(touch:*)"]},
        calls=(TOUCH,),
    ),
    "--tools": NarrowingItem(
        proves=("option available_tools", "flag --tools"),
        options={"available_tools": _TEAM_TOOLS},
        calls=(TOUCH,),
    ),
    "--tools, in an agent of the agent": NarrowingItem(
        options={"available_tools": _TEAM_TOOLS}, calls=(INNER,), inner=(TOUCH,), refusals=()
    ),
    "coordinator": NarrowingItem(
        proves=("settings shoal.coordinator", "flag --coordinator"),
        settings={"shoal": {"coordinator": True}},
        calls=(TOUCH,),
        skipped=_ONLY_LEAD,
    ),
    "coordinator in Python": NarrowingItem(
        proves=("option coordinator",), options={"coordinator": True}, calls=(TOUCH,), skipped=_ONLY_LEAD
    ),
    "coordinator in the environment": NarrowingItem(
        proves=("variable SHOAL_COORDINATOR_MODE", "variable CLAUDE_CODE_COORDINATOR_MODE"),
        environ={"CLAUDE_CODE_COORDINATOR_MODE": "1"},
        calls=(TOUCH,),
        skipped=_ONLY_LEAD,
    ),
    # Number of agents
    "shoal.max_depth": NarrowingItem(
        proves=("settings shoal.max_depth",),
        settings=lambda depth: {"shoal": {"max_depth": depth}},
        calls=(INNER,),
        inner=(TOUCH,),
        refusals=("was not started", "limit"),
    ),
    "shoal.max_agents": NarrowingItem(
        proves=("settings shoal.max_agents", "option max_agents", "flag --max-agents"),
        settings={"shoal": {"max_agents": 1}},
        calls=(INNER, INNER),
        refusals=("was not started", "limit"),
        without=None,
    ),
    "shoal.agent_limits": NarrowingItem(
        proves=("settings shoal.agent_limits.requests",),
        settings={"shoal": {"agent_limits": {"requests": 1}}},
        calls=(IDLE, TOUCH),
        refusals=(),
        skipped={"lead": "it is about the agents besides the lead"},
    ),
    "shoal.agent_type_limits": NarrowingItem(
        proves=("settings shoal.agent_type_limits.*.requests",),
        settings={
            "shoal": {"agent_type_limits": {"lead": {"requests": 3}, "general-purpose": {"requests": 1}}}
        },
        calls=(IDLE, IDLE, IDLE, TOUCH),
        refusals=(),
    ),
    "maxTurns of a definition": NarrowingItem(
        proves=("agent maxTurns",),
        definition={"maxTurns": 1},
        calls=(IDLE, TOUCH),
        refusals=(),
        skipped=_NO_DEFINITION,
    ),
    "maxBudgetUsd of a definition": NarrowingItem(
        proves=("agent maxBudgetUsd",),
        definition={"maxBudgetUsd": 0.0001},
        calls=(IDLE, TOUCH),
        refusals=(),
        skipped=_NO_DEFINITION,
    ),
    "--max-turns": NarrowingItem(
        proves=("settings shoal.max_turns", "option max_turns", "flag --max-turns"),
        options={"max_turns": 1},
        calls=(IDLE, TOUCH),
        refusals=(),
        skipped=_ONLY_LEAD,
    ),
    # Sandbox
    "shoal.sandbox.enabled": _sandbox_item(_make_own_sandbox(), ESCAPE, "settings shoal.sandbox.enabled"),
    "shoal.sandbox.network": _sandbox_item(
        _make_own_sandbox(network=False), CONNECT, "settings shoal.sandbox.network"
    ),
    "shoal.sandbox.hidden": _sandbox_item(
        _make_own_sandbox(hidden=["lib/secrets"]), CAT, "settings shoal.sandbox.hidden"
    ),
    "CMP-027": _sandbox_item(
        _make_sandbox_key(filesystem={"denyRead": ["lib/secrets"]}), CAT, "foreign denyRead"
    ),
    "shoal.sandbox.readOnly": _sandbox_item(
        _make_own_sandbox(readOnly=["mad*", "made"]), TOUCH, "settings shoal.sandbox.readOnly"
    ),
    "shoal.sandbox.withheldVariables": _sandbox_item(
        _make_own_sandbox(withheldVariables=["ANTHROPIC_BASE_URL"]),
        SHOW_ADDRESS,
        "settings shoal.sandbox.withheldVariables",
    ),
    "sandbox.filesystem.denyWrite": _sandbox_item(
        _make_sandbox_key(filesystem={"denyWrite": ["made"]}), TOUCH, "foreign denyWrite"
    ),
    "sandbox.credentials.envVars": _sandbox_item(
        _make_sandbox_key(credentials={"envVars": ["ANTHROPIC_BASE_URL"]}), SHOW_ADDRESS, "foreign envVars"
    ),
    "sandbox.credentials.files": _sandbox_item(
        _make_sandbox_key(credentials={"files": ["lib/secrets"]}), CAT, "foreign credentials", "foreign files"
    ),
    "sandbox.network.allowedDomains": _sandbox_item(
        _make_sandbox_key(network={"allowedDomains": ["example.org"]}), CONNECT, "foreign allowedDomains"
    ),
    "sandbox.network.deniedDomains": _sandbox_item(
        _make_sandbox_key(network={"deniedDomains": ["example.org"]}), CONNECT, "foreign deniedDomains"
    ),
    "sandbox.network.strictAllowlist": _sandbox_item(
        _make_sandbox_key(network={"strictAllowlist": True}), CONNECT, "foreign strictAllowlist"
    ),
    "sandbox.failIfUnavailable": _sandbox_item(
        _make_sandbox_key(failIfUnavailable=True), ESCAPE, "foreign failIfUnavailable", "foreign sandbox"
    ),
    "sandbox.enabled, for the network": _sandbox_item(_make_sandbox_key(), CONNECT),
    "sandbox.enabled, for temporary files": _sandbox_item(_make_sandbox_key(), USE_SHARED_TEMP),
    "shoal.sandbox.privateTemp": _sandbox_item(
        _make_own_sandbox(privateTemp=True), USE_SHARED_TEMP, "settings shoal.sandbox.privateTemp"
    ),
    # MCP servers
    "CMP-088": NarrowingItem(
        proves=("foreign deniedMcpServers",),
        settings={**_SERVER_SETTINGS, "deniedMcpServers": [{"serverName": "srv"}]},
        calls=(IDLE,),
        refusals=(),
        without={"settings": _SERVER_SETTINGS},
    ),
    "allowedMcpServers": NarrowingItem(
        proves=("foreign allowedMcpServers",),
        settings={**_SERVER_SETTINGS, "allowedMcpServers": [{"serverUrl": "*"}]},
        calls=(IDLE,),
        refusals=(),
        without={"settings": _SERVER_SETTINGS},
    ),
    "deniedMcpServers, for a server of a definition": NarrowingItem(
        proves=("agent mcpServers",),
        settings={"deniedMcpServers": [{"serverCommand": ["sh", "-c", "touch made"]}]},
        definition={"mcpServers": _SERVER},
        calls=(IDLE,),
        starts=False,
        refusals=("does not permit",),
        skipped=_NO_DEFINITION,
        without={"settings": {}},
    ),
    "allowedMcpServers, for a server of a definition": NarrowingItem(
        settings={"allowedMcpServers": []},
        definition={"mcpServers": _SERVER},
        calls=(IDLE,),
        starts=False,
        refusals=("does not permit",),
        skipped=_NO_DEFINITION,
        without={"settings": {}},
    ),
    "disabledMcpjsonServers": NarrowingItem(
        proves=("settings disabledMcpjsonServers",),
        settings={**_WAIT, "disabledMcpjsonServers": ["srv"]},
        project_servers=_SERVER,
        calls=(IDLE,),
        refusals=(),
        without={"settings": _WAIT},
    ),
    "--strict-mcp-config": NarrowingItem(
        proves=("option strict_mcp_config", "flag --strict-mcp-config"),
        settings=_SERVER_SETTINGS,
        options={"strict_mcp_config": True},
        calls=(IDLE,),
        refusals=(),
        without={"settings": _SERVER_SETTINGS},
    ),
    # Agent definitions
    "tools of a definition": NarrowingItem(
        proves=("agent tools",), definition={"tools": ["Read"]}, calls=(TOUCH,), skipped=_NO_DEFINITION
    ),
    "a pattern in tools of a definition": NarrowingItem(
        definition={"tools": ["Bash(git:*)"]}, calls=(TOUCH,), skipped=_NO_DEFINITION
    ),
    "a pattern in disallowedTools": NarrowingItem(
        proves=("agent disallowedTools",),
        definition={"disallowedTools": ["Bash(touch:*)"]},
        calls=(TOUCH,),
        skipped=_NO_DEFINITION,
    ),
    "a tool in disallowedTools": NarrowingItem(
        definition={"disallowedTools": ["Bash"]}, calls=(TOUCH,), skipped=_NO_DEFINITION
    ),
    "a pattern in disallowedTools, inherited": NarrowingItem(
        definition={"disallowedTools": ["Bash(touch:*)"]},
        calls=(INNER,),
        inner=(TOUCH,),
        refusals=(),
        skipped=_NO_DEFINITION,
    ),
    "a tool in disallowedTools, inherited": NarrowingItem(
        definition={"disallowedTools": ["Bash"]},
        calls=(INNER,),
        inner=(TOUCH,),
        refusals=(),
        skipped=_NO_DEFINITION,
    ),
    "a pattern for a tool that the agent lacks, inherited": NarrowingItem(
        definition={"tools": ["Agent"], "disallowedTools": ["Bash(touch:*)"]},
        calls=(INNER,),
        inner=(TOUCH,),
        refusals=(),
        skipped=_NO_DEFINITION,
    ),
    "a pattern in tools, inherited": NarrowingItem(
        definition={"tools": ["Agent", "Bash(git:*)"]},
        calls=(INNER,),
        inner=(TOUCH,),
        refusals=(),
        skipped=_NO_DEFINITION,
    ),
    "an unknown tool in disallowedTools": NarrowingItem(
        definition={"disallowedTools": ["Bahs"]},
        calls=(TOUCH,),
        starts=False,
        refusals=("Did you mean Bash?",),
        skipped=_NO_DEFINITION,
    ),
    "permissionMode of a definition": NarrowingItem(
        definition={"permissionMode": "plan"}, calls=(TOUCH,), skipped=_NO_DEFINITION
    ),
    "isolation of a definition": NarrowingItem(
        proves=("agent isolation",),
        definition={"isolation": "worktree"},
        calls=(WRITE,),
        skipped=_NO_DEFINITION,
        needs=("bwrap",),
    ),
    "requiredMcpServers": NarrowingItem(
        proves=("agent requiredMcpServers",),
        definition={"requiredMcpServers": ["missing"]},
        calls=(TOUCH,),
        starts=False,
        refusals=("missing",),
        skipped=_NO_DEFINITION,
    ),
    "hooks of a definition": NarrowingItem(
        proves=("agent hooks",),
        definition=make_hook({}, _BLOCK),
        calls=(TOUCH,),
        skipped=_NO_DEFINITION,
    ),
    # Skills
    "CMP-073": NarrowingItem(
        proves=("skill disallowed-tools",), skills={"narrow": _NARROW_SKILL}, calls=(_SKILL, TOUCH)
    ),
    "disallowed-tools, inherited": NarrowingItem(
        skills={"narrow": _NARROW_SKILL}, calls=(_SKILL, INNER), inner=(TOUCH,), refusals=()
    ),
    "disallowed-tools of the lead": NarrowingItem(
        skills={"narrow": _NARROW_SKILL},
        lead_first=(_SKILL,),
        calls=(TOUCH,),
        skipped={"lead": "the case is about the agents it starts"},
    ),
    "disallowedTools of the lead's definition": NarrowingItem(
        options=_make_lead_definition(disallowedTools=["Bash(touch:*)"]), calls=(TOUCH,)
    ),
    "a pattern in tools of the lead's definition": NarrowingItem(
        options=_make_lead_definition(tools=["Agent", "TeamCreate", "TaskList", "Bash(ls:*)"]), calls=(TOUCH,)
    ),
    "disallowed-tools that names no tool": NarrowingItem(
        skills={"narrow": "disallowed-tools: Bahs"},
        calls=(_SKILL,),
        refusals=("Did you mean Bash?",),
        without=None,
    ),
    "a misspelled disallowed-tools": NarrowingItem(
        skills={"narrow": "context: fork\ndisallowedTools: Bash"},
        calls=(_SKILL,),
        inner=(TOUCH,),
        refusals=("write disallowed-tools",),
        without={"skills": {"narrow": "context: fork"}},
    ),
    "disable-model-invocation": NarrowingItem(
        proves=("skill disable-model-invocation",),
        skills={"narrow": "context: fork\ndisable-model-invocation: true"},
        calls=(_SKILL,),
        inner=(TOUCH,),
        refusals=("Only the user can run the skill",),
        without={"skills": {"narrow": "context: fork"}},
    ),
    # Hooks
    "CMP-036": NarrowingItem(
        proves=("hook if",),
        settings=make_hook(
            {"matcher": "Bash"}, make_command_hook(_ALLOW["command"], **{"if": "Bash(git status)"})
        ),
        calls=(("Bash", {"command": "git status; touch made"}),),
        mode="default",
        without={"settings": make_hook({"matcher": "Bash"}, _ALLOW)},
    ),
    "CMP-037": NarrowingItem(
        settings=make_hook({"matcher": "Task"}, make_command_hook("! grep -q INNER || exit 2")),
        calls=(INNER,),
        inner=(TOUCH,),
    ),
    "CMP-038": NarrowingItem(
        proves=("hook matcher",), settings=make_hook({"matcher": "Edit, Write"}, _BLOCK), calls=(WRITE,)
    ),
    "CMP-041": NarrowingItem(
        proves=("hook type",),
        settings=make_hook({"matcher": "Write"}, {"type": "prompt", "prompt": "WORKER: is $ARGUMENTS safe?"}),
        calls=(WRITE,),
    ),
    "CMP-050": NarrowingItem(
        settings=make_hook({"matcher": "Write"}, make_answer(permissionDecision="defer")), calls=(WRITE,)
    ),
    "a hook that says no": NarrowingItem(
        proves=("settings hooks", "event PreToolUse", "output decision"),
        settings=make_hook(
            {"matcher": "Write"}, make_command_hook(build_answer_command({"decision": "block"}))
        ),
        calls=(WRITE,),
    ),
    "a hook that denies": NarrowingItem(
        proves=("output hookSpecificOutput.permissionDecision",),
        settings=make_hook({"matcher": "Bash"}, make_answer(permissionDecision="deny")),
        calls=(TOUCH,),
    ),
    "a hook that asks": NarrowingItem(
        settings=make_hook({"matcher": "Bash"}, make_answer(permissionDecision="ask")), calls=(TOUCH,)
    ),
    "a hook that ends the turn": NarrowingItem(
        proves=("output continue",),
        settings=make_hook({"matcher": "Bash"}, make_command_hook(build_answer_command({"continue": False}))),
        calls=(TOUCH,),
        refusals=(),
    ),
    "a hook that changes the input": NarrowingItem(
        proves=("output hookSpecificOutput.updatedInput",),
        settings=make_hook({"matcher": "Bash"}, make_answer(updatedInput={"command": "true"})),
        calls=(TOUCH,),
        refusals=(),
    ),
    "a hook that changes the result": NarrowingItem(
        proves=("event PostToolUse", "output hookSpecificOutput.updatedToolOutput"),
        settings=make_hook({}, make_answer("PostToolUse", updatedToolOutput="gone"), event="PostToolUse"),
        calls=(READ,),
        refusals=("gone",),
    ),
    "a hook that fails": NarrowingItem(
        proves=("hook onFailure",),
        settings=make_hook({"matcher": "Bash"}, make_command_hook("exit 1", onFailure="block")),
        calls=(TOUCH,),
        without={"settings": make_hook({"matcher": "Bash"}, make_command_hook("exit 1"))},
    ),
    "a hook that answers a question": NarrowingItem(
        proves=(
            "event PermissionRequest",
            "output hookSpecificOutput.decision.behavior",
        ),
        settings=make_hook(
            {},
            make_answer("PermissionRequest", **_ANSWER_YES),
            make_answer("PermissionRequest", **_ANSWER_NO),
            event="PermissionRequest",
        ),
        calls=(WRITE,),
        mode="default",
        without={
            "settings": make_hook(
                {}, make_answer("PermissionRequest", **_ANSWER_YES), event="PermissionRequest"
            )
        },
    ),
    "a hook that denies later calls": NarrowingItem(
        proves=("output hookSpecificOutput.decision.updatedPermissions",),
        settings=make_hook(
            {}, make_answer("PermissionRequest", **_ANSWER_WITH_DENIAL), event="PermissionRequest"
        ),
        calls=(("Bash", {"command": "mkdir other"}), TOUCH),
        mode="default",
        without={
            "settings": make_hook(
                {}, make_answer("PermissionRequest", **_ANSWER_YES), event="PermissionRequest"
            )
        },
    ),
    "a hook that interrupts": NarrowingItem(
        proves=("output hookSpecificOutput.decision.interrupt",),
        settings=make_hook(
            {},
            make_answer("PermissionRequest", decision={"behavior": "deny", "interrupt": True}),
            event="PermissionRequest",
        ),
        calls=(WRITE, ("Bash", {"command": "ls"})),
        mode="default",
        refusals=(),
        without=None,
    ),
    "a hook about a new task": NarrowingItem(
        proves=("event TaskCreated",),
        settings=make_hook({}, _BLOCK, event="TaskCreated"),
        calls=(_TASK,),
        refusals=("was not created", "hook"),
        without=None,
    ),
    "a hook about a completed task": NarrowingItem(
        proves=("event TaskCompleted",),
        settings=make_hook({}, _BLOCK, event="TaskCompleted"),
        calls=(_TASK, ("TaskUpdate", {"taskId": "1", "status": "completed"})),
        refusals=("not completed", "hook"),
        without=None,
    ),
    "a hook about a prompt": NarrowingItem(
        proves=("event UserPromptSubmit",),
        settings=make_hook({}, _BLOCK, event="UserPromptSubmit"),
        calls=(TOUCH,),
        starts=False,
        refusals=(),
        skipped=dict.fromkeys(_ONLY_LEAD, "only the lead gets prompts of a person"),
    ),
    "a hook about a new worktree": NarrowingItem(
        proves=("event WorktreeCreate",),
        settings=make_hook({}, _BLOCK, event="WorktreeCreate"),
        definition={"isolation": "worktree"},
        calls=(TOUCH,),
        starts=False,
        refusals=("worktree",),
        skipped=_NO_DEFINITION,
        without=None,
    ),
    "a hook in Python": NarrowingItem(
        proves=("option hooks",),
        options={"hooks": {"PreToolUse": [("Bash", deny_with_python)]}},
        calls=(TOUCH,),
        not_started=_NO_OTHER_PROCESS,
    ),
}
