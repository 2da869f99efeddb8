"""Wrong arguments of the Python API: each gets a sentence that names the argument, before anything starts."""

from __future__ import annotations

import asyncio
import json
import pydoc
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.core.errors import BadRequest
from shoal.core.extensions.hook_events import HOOK_EVENT_DESCRIPTIONS
from shoal.core.extensions.hooks import MATCHER_FIELDS, MATCHER_VALUES
from shoal.testing import make_tool_call


class IncompleteModel:
    card = shoal.ModelCard(id="incomplete", provider="own")

    async def aclose(self) -> None: ...


class OwnModel(IncompleteModel):
    reply: Any = "not a reply"

    async def generate_reply(self, request: shoal.ModelRequest, on_delta: shoal.DeltaListener) -> Any:
        await on_delta(shoal.ModelAttemptStartedDelta())
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply


class PlainModel(IncompleteModel):
    def generate_reply(self, request: shoal.ModelRequest, on_delta: shoal.DeltaListener) -> Any: ...


def guard(event: Any) -> None: ...


COMMAND = {"type": "command", "command": "exit 2"}
WRONG_OPTIONS: list[tuple[str, Any, str]] = [
    ("output_schema", {"items": {"type": "strng"}}, "output_schema: items.type: 'strng' is not one of"),
    ("output_schema", {"type": {}}, "output_schema.type: unknown value {}"),
    ("fallback_model", "a,b,c,d", "fallback_model: name at most 3 models"),
    ("model", IncompleteModel(), "model: .* has no generate_reply. Pass a name, or an object with card"),
    ("model", OwnModel, r"got the class OwnModel. Write model=OwnModel\("),
    ("model", PlainModel(), "its generate_reply must be an async function"),
    ("model", 5, "model: 5 has no card"),
    ("clock", 3, "clock: expected a shoal.Clock, but 3 has no now"),
    ("seed", "x", "seed: expected an integer of at least 0"),
    ("seed", 1.5, "seed: expected an integer of at least 0"),
    ("output_schema", "x", "output_schema: expected a JSON Schema as a mapping, got 'x'. .*use output="),
    ("output_schema", {"type": "strnig"}, "output_schema.type: unknown value 'strnig'. Did you mean string"),
    ("settings", "", "settings is empty"),
    ("settings", {}, r"settings=\{\} sets nothing. Leave it out, or pass setting_sources=\[\]"),
    ("model", "", "model is empty. Name a model, or leave it out"),
    ("fallback_model", " ", "fallback_model is empty. Name a model, or leave it out"),
    ("system_prompt", "\ud800", r"system_prompt contains a character that UTF-8 cannot encode: '\\ud800'"),
    ("store", "", "store is empty. Pass a store or its address, or leave it out"),
    ("store", shoal.MemoryStore, r"got the class MemoryStore. Write store=MemoryStore\("),
    ("settings", {"permissionns": {"deny": ["Bash"]}}, "'permissionns'. Did you mean permissions"),
    ("settings", {1: 2}, "settings: expected strings as keys, got 1"),
    ("fork", True, "fork: it needs a session to copy. Add resume=ID or continue_last=True"),
    ("trace", "x", "trace: expected a traceparent"),
    ("name", "", "name is empty"),
    ("team", "no/pe", "team: 'no/pe' is not a valid name"),
    ("allowed_tools", [""], "allowed_tools: an entry is empty"),
    ("disallowed_tools", [" "], "disallowed_tools: an entry is empty"),
    ("add_dirs", ["nowhere"], r"add_dirs=: .*nowhere is not a directory"),
    ("mcp_config", [{"servers": {}}], 'mcp_config=: it has no "mcpServers"'),
    (
        "hooks",
        {"PreToolUse": [("Bsh", guard)]},
        "hooks.PreToolUse: there is no tool named 'Bsh'. Did you mean",
    ),
    ("hooks", {"PreToolUse": [("Bash|Wrrite", guard)]}, "no tool named 'Wrrite'. Did you mean Write"),
    ("hooks", {"PreToolUse": [("[", guard)]}, r"the matcher '\[' is not a valid regular expression"),
    ("hooks", {"Stop": [("Bash", guard)]}, "Stop does not use a matcher; pass the function alone"),
    (
        "hooks",
        {"PreToolUse": [{"matcher": "Bsh", "hooks": [COMMAND]}]},
        "named 'Bsh'. Did you mean Bash",
    ),
    (
        "hooks",
        {"SessionStart": [("statup", guard)]},
        "hooks.SessionStart: the source is never 'statup'. Did you mean startup",
    ),
    ("hooks", {"SessionEnd": [("clear|zz", guard)]}, "the reason is never 'zz'. Allowed values: clear, "),
    ("hooks", {"PreCompact": [("mannual", guard)]}, "the trigger is never 'mannual'. Did you mean manual"),
    ("hooks", {"ConfigChange": [("zz", guard)]}, "the source is never 'zz'. Allowed values: user_settings"),
    ("hooks", {"Setup": [("inti", guard)]}, "the trigger is never 'inti'. Did you mean init"),
    (
        "hooks",
        {"SubagentStart": [("generl-purpose", guard)]},
        "no agent named 'generl-purpose'. Did you",
    ),
    ("hooks", {"SubagentStop": [("Explorer", guard)]}, "no agent named 'Explorer'. Did you mean Explore"),
    ("hooks", {"SubagentStart": [("auditor", guard)]}, "'auditor'. Known agents: .*Explore.* in agents="),
    (
        "disallowed_tools",
        ["Agent(Explroe)"],
        r"disallowed_tools: the rule Agent\(Explroe\): .*'Explroe'. Did you mean Explore",
    ),
    ("allowed_tools", ["Task(Explroe)"], "'Explroe'. Did you mean Explore"),
    ("allowed_tools", ["Raed"], r"allowed_tools: the rule Raed names an unknown tool. Did you mean Read\?"),
    ("allowed_tools", ["Bash(ls:*), Zzz(x)"], r"the rule Zzz\(x\) names an unknown tool. A tool of your"),
    ("allowed_tools", ["mcp_x"], "allowed_tools: the rule mcp_x names an unknown tool"),
    ("allowed_tools", ["Zz*"], r"allowed_tools: the rule Zz\* names an unknown tool"),
    ("mode", "Permissions", "mode: unknown value 'Permissions'. Allowed values: default, "),
    ("mode", "edits", "mode: unknown value 'edits'. Allowed values: default, "),
    ("mode", "bypassPermission", r"'bypassPermission'. Did you mean bypassPermissions\?"),
    ("mode", "acceptEdit", r"'acceptEdit'. Did you mean acceptEdits\?"),
    ("home", "", "home is empty. Pass a path, or leave it out"),
    ("cwd", "", "cwd is empty"),
    ("cwd", "/nowhere", "shoal.open: cwd: /nowhere is not a directory"),
    ("skills", ["nosuch"], "skills: there is no skill named 'nosuch'"),
    ("tools", "Read", r"tools: expected a list of tools, got 'Read'. Write tools=\['Read'\]"),
]
WRONG_SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"hoks": {}}, r"settings: unknown key 'hoks'. Did you mean hooks\?"),
    (
        {"hooks": {"PreToolUze": [{"hooks": [COMMAND]}]}},
        "hooks.PreToolUze: unknown event; did you mean Pre",
    ),
    ({"hooks": {"Nonsense": []}}, "settings: hooks.Nonsense: unknown event"),
    ({"hooks": {"PreToolUse": [{"matcher": "Bsh", "hooks": [COMMAND]}]}}, "'Bsh'. Did you mean Bash"),
    (
        {"hooks": {"PostCompact": [{"matcher": "atuo", "hooks": [COMMAND]}]}},
        "settings: hooks.PostCompact: the trigger is never 'atuo'. Did you mean auto",
    ),
    (
        {"hooks": {"SubagentStop": [{"matcher": "Explroe", "hooks": [COMMAND]}]}},
        r"settings: hooks.SubagentStop: there is no agent named 'Explroe'. Did you mean Explore\?",
    ),
    (
        {"hooks": {"SubagentStart": [{"matcher": "Plan|auditor", "hooks": [COMMAND]}]}},
        "settings: hooks.SubagentStart: there is no agent named 'auditor'. Known agents: .*agents=",
    ),
    ({"permissions": {"deny": ["Agent(Explroe)"]}}, "permissions.deny: .*'Explroe'. Did you mean Explore"),
    (
        {"shoal": {"agent_type_limits": {"Explroe": {"usd": 1}}}},
        "shoal.agent_type_limits: there is no agent named 'Explroe'. Did you mean Explore",
    ),
    ({"permissions": {"defaultMode": "permision"}}, "unknown value 'permision'. Allowed values: default"),
    ({"hooks": {"PreToolUse": [{"mather": "Bash", "hooks": [COMMAND]}]}}, "mather: unknown field"),
    ({"hooks": {"PreToolUse": [{"hooks": [{"type": "comand"}]}]}}, "unknown hook type 'comand'; use command"),
    ({"shoal": {"max_requets": 3}}, r"settings: shoal.max_requets: unknown key. Did you mean max_requests\?"),
    (
        {"shoal": {"sandbox": {"enabeld": True}}},
        r"sandbox.enabeld: unknown key. Did you mean enabled\?",
    ),
    ({"shoal": {"notify": "bel"}}, r"shoal.notify: unknown value 'bel'. Did you mean bell\?"),
    ({"shoal": {"agent_type_limits": {"a": {"usdd": 1}}}}, "agent_type_limits.a.usdd: unknown key. Did you"),
    ({"permissions": {"dney": ["Bash"]}}, r"permissions.dney: unknown key. Did you mean deny\?"),
    ({"permissions": {"defaultMode": "plann"}}, r"defaultMode: unknown value 'plann'. Did you mean plan\?"),
    ({"permissions": {"deny": ["Bsh(rm:*)"]}}, r"permissions.deny: .*unknown tool. Did you mean Bash\?"),
    ({"permissions": {"allow": ["Raed"]}}, r"permissions.allow: .*unknown tool. Did you mean Read\?"),
    ({"sandbox": {"enabledd": True}}, r"sandbox.enabledd: unknown key. Did you mean enabled\?"),
    (
        {"sandbox": {"filesystem": {"denyRaed": []}}},
        r"filesystem.denyRaed: .*Did you mean denyRead\?",
    ),
]


@pytest.mark.spec("API-07")
@pytest.mark.parametrize(("option", "value", "problem"), WRONG_OPTIONS)
async def test_a_wrong_option_is_refused_before_anything_starts(
    tmp_path: Path, option: str, value: Any, problem: str
) -> None:
    options: dict[str, Any] = {"cwd": tmp_path, "model": shoal.ScriptedModel(["ok"]), option: value}
    with pytest.raises(shoal.SettingsError, match=problem):
        async with shoal.open(**options):
            pytest.fail("The session opened.")


@pytest.mark.spec("API-07")
@pytest.mark.parametrize(("settings", "problem"), WRONG_SETTINGS)
async def test_a_misspelling_in_settings_that_a_program_passes_is_refused(
    tmp_path: Path, settings: dict[str, Any], problem: str
) -> None:
    for given in (settings, json.dumps(settings)):
        with pytest.raises(shoal.SettingsError, match=problem):
            async with shoal.open(cwd=tmp_path, model=shoal.ScriptedModel(["ok"]), settings=given):
                pytest.fail("The session opened.")


@pytest.mark.spec("API-07")
async def test_a_misspelling_in_a_settings_file_is_a_note(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text('{"shoal": {"max_requets": 3}, "hoks": {}}')
    options: Any = {"cwd": tmp_path, "model": shoal.ScriptedModel(["ok"]), "settings": "settings.json"}
    async with shoal.open(**options) as session:
        assert "shoal.max_requets is not a setting and is ignored. Did you mean max_requests?" in str(
            session.notes
        )


@pytest.mark.spec("API-07")
async def test_settings_with_keys_of_all_kinds_are_accepted(tmp_path: Path) -> None:
    @shoal.tool
    def weigh(ship: str) -> str:
        """Weigh a ship."""
        return ship

    settings: Any = {
        "$schema": "x",
        "permissions": {"deny": ["weigh", "mcp__crane", "MultiEdit"], "defaultMode": "manual"},
        "hooks": {"PreToolUse": [{"matcher": "weigh|Bash|mcp__.*", "hooks": [COMMAND]}]},
        "spinnerTipsEnabled": False,
        "sandbox": {"network": {"allowedDomains": []}},
        "shoal": {"models": {"openai:x": {"window": 1000}}, "theme": "dark"},
    }
    options: Any = {"cwd": tmp_path, "model": shoal.ScriptedModel(["ok"]), "tools": [weigh]}
    async with shoal.open(**options, settings=settings) as session:
        assert (await session.run("hi")).text == "ok"


@pytest.mark.spec("API-07")
async def test_a_fallback_is_used_after_a_model_of_the_program(tmp_path: Path) -> None:
    class Failing(IncompleteModel):
        async def generate_reply(self, request: shoal.ModelRequest, on_delta: shoal.DeltaListener) -> Any:
            raise shoal.errors.TransientModelError("overloaded")

    (tmp_path / "script.json").write_text('[{"text": "from the fallback"}]')
    options: Any = {"cwd": tmp_path, "model": Failing()}
    result = await shoal.run("hi", **options, fallback_model=f"scripted:{tmp_path / 'script.json'}")
    assert result.text == "from the fallback"


@pytest.mark.spec("API-07")
async def test_matchers_of_mcp_tools_of_own_tools_and_of_expressions_are_accepted(tmp_path: Path) -> None:
    @shoal.tool
    def weigh(ship: str) -> str:
        """Weigh a ship."""
        return ship

    entries: Any = [(matcher, guard) for matcher in ("mcp__crane__lift", "weigh|Bash", "Task", "*", "^Ed.*")]
    options: Any = {"cwd": tmp_path, "model": shoal.ScriptedModel(["ok"]), "tools": [weigh]}
    async with shoal.open(**options, hooks={"PreToolUse": entries}) as session:
        assert (await session.run("hi")).text == "ok"


@pytest.mark.spec("API-07")
async def test_matchers_of_events_and_of_known_agents_are_accepted(tmp_path: Path) -> None:
    weigher = shoal.Agent("weigher", prompt="You weigh.", tools=[])
    entries = [
        {"matcher": "weigher|Plan|fork", "hooks": [COMMAND]},
        {"matcher": "ship.*", "hooks": [COMMAND]},
    ]
    settings: Any = {
        "hooks": {"SubagentStop": entries},
        "permissions": {"deny": ["Agent(weigher)", "Agent(model:opus)", "Agent(ship*)"]},
        "shoal": {"agent_type_limits": {"weigher": {"usd": 1}}},
    }
    hooks: Any = {
        "SubagentStart": [("weigher|Explore", guard)],
        "SessionStart": [("startup|resume", guard), (".*", guard)],
        "StopFailure": [("rate_limit", guard)],
    }
    options: Any = {"cwd": tmp_path, "agents": [weigher], "settings": settings}
    async with shoal.open(**options, model=shoal.ScriptedModel(["ok"]), hooks=hooks) as session:
        assert (await session.run("hi")).text == "ok"


@pytest.mark.spec("API-07")
async def test_unknown_agents_in_settings_files_are_accepted(tmp_path: Path) -> None:
    hooks = {"SubagentStop": [{"matcher": "Explroe", "hooks": [COMMAND]}]}
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"hooks": hooks, "permissions": {"deny": ["Agent(auditor)"]}}))
    model = shoal.ScriptedModel(["ok"])
    async with shoal.open(cwd=tmp_path, model=model, settings=str(path)) as session:
        assert (await session.run("hi")).text == "ok"


@pytest.mark.spec("API-07")
@pytest.mark.parametrize("variable", ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY"])
async def test_a_misspelled_alias_is_refused_although_a_provider_is_configured(
    tmp_path: Path, variable: str
) -> None:
    options: Any = {"cwd": tmp_path, "home": tmp_path / "home", "environ": {variable: "key"}}
    for name in ("sonet", "Sonet", "opuss", "haiqu", "fabel", "opusplna", "sonet[1m]"):
        agent = shoal.Agent("a", prompt="p", model=name)
        with pytest.raises(shoal.SettingsError, match=r"model: There is no model .* Did you mean .+\?"):
            async with shoal.open(**options, model=shoal.ScriptedModel(["ok"]), agents=[agent]):
                pytest.fail("The session opened.")
        with pytest.raises(shoal.errors.UnknownModel, match=r"There is no model .* Did you mean .+\?"):
            async with shoal.open(**options, model=name):
                pytest.fail("The session opened.")
    for name in ("my-deployment", "mistral", "llama", "test", "sonet2", "sonet-prod", "openai:sonet"):
        agent = shoal.Agent("a", prompt="p", model=name)
        async with shoal.open(**options, model=shoal.ScriptedModel(["ok"]), agents=[agent]):
            pass


def test_the_values_that_a_matcher_can_name_are_those_in_the_reference() -> None:
    for event, values in MATCHER_VALUES.items():
        text = HOOK_EVENT_DESCRIPTIONS[event].fields[MATCHER_FIELDS[event]]
        assert re.findall("`(.+?)`", text) == [*values]


@pytest.mark.spec("API-07")
async def test_a_hook_object_belongs_under_its_own_event(tmp_path: Path) -> None:
    from shoal.core.extensions.hooks import PythonCallbackHookAction

    hook = shoal.Hook(event="PostToolUse", action=PythonCallbackHookAction(function=guard), origin="test")
    with pytest.raises(shoal.SettingsError, match="this Hook is for PostToolUse"):
        async with shoal.open(cwd=tmp_path, model=shoal.ScriptedModel(["ok"]), hooks={"PreToolUse": [hook]}):
            pytest.fail("The session opened.")


@pytest.mark.spec("API-07")
@pytest.mark.parametrize(
    ("reply", "expected", "problem"),
    [
        ("text", TypeError, "The model incomplete returned 'text' instead of a shoal.ModelReply"),
        (
            shoal.ModelReply(message="hello", usage=shoal.Usage(), stop_reason="end_turn", model="own"),  # type: ignore[arg-type]
            TypeError,
            "whose message is not a shoal.Message",
        ),
        (
            shoal.ModelReply(
                message=shoal.messages.user_message("hi"),
                usage=shoal.Usage(),
                stop_reason="endturn",  # type: ignore[arg-type]
                model="own",
            ),
            TypeError,
            "the unknown stop_reason 'endturn'. Did you mean end_turn",
        ),
        (KeyError("broken"), KeyError, "broken"),
    ],
)
async def test_the_mistake_of_an_own_model_is_raised_and_its_request_is_closed(
    tmp_path: Path, reply: Any, expected: type[Exception], problem: str
) -> None:
    model, seen = OwnModel(), list[shoal.Event]()
    model.reply = reply
    with pytest.raises(expected, match=problem):
        await shoal.run("hi", cwd=tmp_path, model=model, on_event=seen.append)
    assert [event.billed for event in seen if isinstance(event, shoal.events.ModelRequestFailed)] == [True]


@pytest.mark.spec("API-07")
@pytest.mark.parametrize(
    ("use", "problem"),
    [
        (
            lambda session: session.run(3),
            r"session.run\(\): prompt: expected a string or a shoal.Message, got 3",
        ),
        (lambda session: session.run(" "), r"session.run\(\): the prompt is empty"),
        (lambda session: session.map("x", 3), r"session.map\(\): prompts: expected a list of strings, got 3"),
        (lambda session: session.map("Plan", [3]), "prompt: expected a string, got 3"),
        (lambda session: session.map("Plan", ["x"], at_onec=3), "'at_onec'. Did you mean at_once"),
        (
            lambda session: session.spawn("Plan", "x", isolation="wt"),
            "unknown value 'wt'. Use 'worktree' or 'remote'",
        ),
        (
            lambda session: session.spawn("Plan", "x", name=3),
            "name: expected a non-empty string, got 3",
        ),
        (lambda session: session.subscribe(3), "callback: expected a function, got 3"),
        (lambda session: session.send("lead", 3), r"session.send\(\): text: expected a string, got 3"),
    ],
)
async def test_a_wrong_argument_of_a_session_is_named(
    tmp_path: Path, use: Callable[[Any], Awaitable[Any] | None], problem: str
) -> None:
    async def use_and_wait() -> None:
        waiting = use(session)
        if waiting is not None:
            await waiting

    async with shoal.open(cwd=tmp_path, model=shoal.ScriptedModel(["ok"])) as session:
        with pytest.raises((TypeError, ValueError), match=problem):
            await use_and_wait()


@pytest.mark.spec("API-07")
@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        (
            {"disallowed_tools": "Bash"},
            r"disallowed_tools: expected a list, got 'Bash'. Write disallowed_tools=\[",
        ),
        ({"skills": "x"}, "skills: expected a list, got 'x'"),
        ({"mcp_servers": "x"}, "mcp_servers: expected a list"),
        ({"max_turns": "1"}, "max_turns: expected an integer greater than 0, got '1'"),
        ({"prompt": 3}, "prompt: expected a string, got 3"),
        ({"name": 3}, "name: expected a string, got 3"),
    ],
)
def test_a_wrong_field_of_an_agent_is_named(fields: dict[str, Any], problem: str) -> None:
    given = {"name": "a", "prompt": "p", **fields}
    with pytest.raises(shoal.SettingsError, match=problem):
        shoal.Agent(given.pop("name"), **given)


WRONG_NAMES: list[tuple[str, Any, str]] = [
    ("tools", ["Bash", "Raed"], "tools: there is no tool named 'Raed'. Did you mean Read"),
    ("disallowed_tools", ["Bsh"], "disallowed_?[tT]ools: there is no tool named 'Bsh'. Did you mean Bash"),
    ("model", "sonet", "model: There is no model 'sonet'. Did you mean sonnet"),
    ("skills", ["nope"], "skills: .*nope"),
    ("mcp_servers", ["nope"], "mcp_?[sS]ervers: there is no MCP server named 'nope'. Did you mean nopes"),
]


@pytest.mark.spec("API-07")
@pytest.mark.parametrize(("field", "value", "problem"), WRONG_NAMES)
async def test_an_unknown_name_in_an_agent_is_refused_at_open(
    tmp_path: Path, field: str, value: Any, problem: str
) -> None:
    fields: Any = {"prompt": "p", field: value}
    in_files = {"disallowed_tools": "disallowedTools", "mcp_servers": "mcpServers"}.get(field, field)
    mapping = {"a": {"prompt": "p", "description": "d", in_files: value}}
    server = {"mcpServers": {"nopes": {"command": "true"}}}
    for agents in ([shoal.Agent("a", **fields)], mapping, json.dumps(mapping)):
        options: Any = {"cwd": tmp_path, "model": shoal.ScriptedModel(["ok"]), "mcp_config": [server]}
        with pytest.raises(shoal.SettingsError, match=problem):
            async with shoal.open(**options, agents=agents):
                pytest.fail("The session opened.")


@pytest.mark.spec("API-07")
async def test_known_names_in_an_agent_are_accepted_and_files_are_not_checked(tmp_path: Path) -> None:
    skill = tmp_path / ".claude" / "skills" / "paint" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: paint\ndescription: d\n---\nPaint.\n")
    fields = {"prompt": "p", "description": "d", "model": "haiku", "skills": ["paint"], "mcpServers": ["np*"]}
    server = {"mcpServers": {"npe": {"command": "true"}}}
    options: Any = {"cwd": tmp_path, "mcp_config": [server]}
    mapping = {"a": {**fields, "tools": ["Read", "Task", "MultiEdit", "mcp__x__y"]}}
    async with shoal.open(**options, model=shoal.ScriptedModel(["ok"]), agents=mapping) as session:
        assert (await session.run("hi")).text == "ok"
    (tmp_path / "agents.json").write_text(json.dumps({"a": {**fields, "tools": ["Raed"]}}))
    async with shoal.open(**options, model=shoal.ScriptedModel(["ok"]), agents="agents.json") as session:
        assert (await session.run("hi")).text == "ok"


@pytest.mark.spec("API-07")
async def test_rules_may_name_tools_of_mcp_servers_of_other_programs_and_of_agents(tmp_path: Path) -> None:
    @shoal.tool
    def sound(place: str) -> str:
        """Measures a depth."""
        return f"{place}: 12 m"

    pilot = shoal.Agent("pilot", prompt="p", tools=[sound])
    rules: list[Any]
    for rules in (["mcp__x__y", "mcp__x", "MultiEdit"], [sound], ["sound"]):
        for option in ("allowed_tools", "disallowed_tools"):
            options: Any = {"cwd": tmp_path, "model": shoal.ScriptedModel(["ok"]), option: rules}
            async with shoal.open(**options, agents=[pilot]) as session:
                assert [note for note in session.notes if "MultiEdit" not in note] == []
    later: Any = {"cwd": tmp_path, "model": shoal.ScriptedModel(["ok"]), "allowed_tools": [sound]}
    async with shoal.open(**later) as session:
        assert (await (await session.spawn(pilot, "go"))).text == "ok"


@pytest.mark.spec("API-04")
@pytest.mark.parametrize("prompts", [["a", "b"], []])
async def test_map_refuses_an_unknown_agent_like_spawn(tmp_path: Path, prompts: list[str]) -> None:
    async with shoal.open(cwd=tmp_path, model=shoal.ScriptedModel([])) as session:
        problem = "There is no agent 'Explroe'. Did you mean Explore"
        with pytest.raises(shoal.errors.AgentRequestRefused, match=problem):
            await session.spawn("Explroe", "a")
        with pytest.raises(shoal.errors.AgentRequestRefused, match=problem):
            await session.map("Explroe", prompts)
        wrong: Any = 3
        with pytest.raises(TypeError, match=r"session.map\(\): agent: expected an Agent or a name, got 3"):
            await session.map(wrong, prompts)


@pytest.mark.spec("API-07")
@pytest.mark.parametrize(
    ("use", "problem"),
    [
        (lambda team: team.add_task(3), "subject: expected a string, got 3"),
        (lambda team: team.add_task("x", accept=""), "accept is empty. Write a shell command"),
        (lambda team: team.add_task("x", accept=["a"]), r"accept: expected a string, got \['a'\]"),
        (lambda team: team.add_task("x", owner=shoal.Agent("ana", prompt="p")), "Write owner='ana'"),
        (lambda team: team.add_task("x", blocked_by="1"), "blocked_by: expected a list of tasks, got '1'"),
        (lambda team: team.add_task("x", blocked_by=[3]), "blocked_by: expected tasks or their ids, got 3"),
        (lambda team: team.send("bob", "x"), "to: there is no member 'bob'. Allowed values: ana"),
        (lambda team: team.send("ana", ""), "text is empty"),
        (lambda team: team.send("lead", "x"), "the program leads this team"),
        (lambda team: team.open(), "The team was already opened"),
    ],
)
async def test_a_wrong_argument_of_a_team_is_named_and_starts_nobody(
    tmp_path: Path, use: Callable[[shoal.Team], Awaitable[Any]], problem: str
) -> None:
    ana = shoal.Agent("ana", prompt="You work.")
    async with shoal.Team("crew", members=[ana], cwd=tmp_path, model=shoal.ScriptedModel(["ok"])) as team:
        with pytest.raises((TypeError, ValueError, RuntimeError, shoal.ShoalError), match=problem):
            await use(team)
        assert (team.members, await team.list_tasks()) == ((), ())


@pytest.mark.spec("API-07")
@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        (3, {}, "expected a string as the name of the team, got 3"),
        ("crew", {"members": [shoal.Agent("lead", prompt="p")]}, "'lead' is reserved for the lead"),
        ("crew", {"mode": "plann"}, r"shoal.Team\('crew'\): mode: unknown value 'plann'. Did you mean plan"),
        ("crew", {"cwd": 3}, r"shoal.Team\('crew'\): cwd: expected a path, got 3"),
    ],
)
async def test_a_wrong_option_of_a_team_names_the_team(
    tmp_path: Path, name: Any, options: dict[str, Any], problem: str
) -> None:
    given = {
        "members": [shoal.Agent("ana", prompt="p")],
        "cwd": tmp_path,
        "model": shoal.ScriptedModel(["ok"]),
        **options,
    }
    with pytest.raises(shoal.SettingsError, match=problem):
        async with shoal.Team(name, **given):
            pytest.fail("The team opened.")


@pytest.mark.spec("API-06")
async def test_a_second_open_leaves_the_open_session_as_it_is(tmp_path: Path) -> None:
    session = await shoal.open(cwd=tmp_path, model=shoal.ScriptedModel(lambda _: "ok")).open()
    with pytest.raises(RuntimeError, match="already opened"):
        await session.open()
    assert (await session.run("hi")).text == "ok"
    await session.close()
    with pytest.raises(RuntimeError, match="The session is closed"):
        session.run("hi")


@pytest.mark.spec("API-09")
async def test_a_relative_home_starts_at_the_directory_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for a resumed team: its project directory must not be added twice."""
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path)
    ana = shoal.Agent("ana", prompt="You work.")
    options: Any = {"cwd": "project", "home": "state", "model": shoal.ScriptedModel(lambda _: "ok")}
    async with shoal.Team("crew", members=[ana], **options) as team:
        await team.add_task("Paint the hull")
    assert (tmp_path / "state" / "teams" / "crew").is_dir()
    async with asyncio.timeout(30), shoal.Team.resume("crew", **options) as team:
        assert [task.subject for task in await team.list_tasks()] == ["Paint the hull"]


@pytest.mark.slow
@pytest.mark.spec("API-01")
def test_help_works_for_every_public_name() -> None:
    assert pydoc.render_doc(shoal)
    for name in shoal.__all__:
        assert pydoc.render_doc(getattr(shoal, name)), name


def test_an_input_field_of_a_scripted_call_may_have_any_name() -> None:
    assert make_tool_call("Skill", name="review").input == {"name": "review"}


@pytest.mark.spec("API-07")
async def test_late_errors_name_options_and_not_flags(tmp_path: Path) -> None:
    """Also the detail of a result, and of an agent that the program starts."""
    advice = "Free some space on that disk, then resume with --resume, or use SHOAL_HOME=DIRECTORY."
    expected = "Free some space on that disk, then resume with resume=, or use home=DIRECTORY."

    def fail(_: shoal.ModelRequest) -> str:
        raise BadRequest(advice)

    async with shoal.open(cwd=tmp_path, model=shoal.ScriptedModel(fail)) as session:
        result = await session.run("hi").wait()
        started = await session.map("Plan", ["hi"])
    assert result.detail == expected
    assert expected in started[0].detail


STEPS: dict[str, tuple[Callable[[shoal.Workflow], Any], str]] = {
    "misspelled option": (lambda flow: flow.agent("Plan", "x", modelx="y"), "'modelx'. Did you mean model"),  # type: ignore[call-overload]
    "prompt": (lambda flow: flow.agent("Plan", 3), "prompt: expected a string, got 3"),  # type: ignore[call-overload]
    "agent": (lambda flow: flow.agent(3, "x"), "agent: expected an Agent or a name, got 3"),  # type: ignore[call-overload]
    "prompts": (lambda flow: flow.map("Plan", "abc"), "prompts: expected a list of strings, got 'abc'"),
    "at_once": (
        lambda flow: flow.map("Plan", ["x"], at_once=0),
        "at_once: expected an integer of at least 1",
    ),
    "options": (lambda flow: flow.ask("Continue?", "yes"), "options: expected a list of strings, got 'yes'"),
    "command": (lambda flow: flow.shell(""), r"flow.shell\(\): command"),
    "seconds": (
        lambda flow: flow.sleep(-1),
        "seconds: expected a number of seconds from 0 to .*, got -1",
    ),
    "stage": (lambda flow: flow.pipeline([1], "x"), "stages: expected a function, got 'x'"),  # type: ignore[arg-type]
}


@pytest.mark.spec("API-07")
@pytest.mark.parametrize("name", STEPS)
async def test_a_wrong_argument_of_a_step_is_named_and_starts_nothing(tmp_path: Path, name: str) -> None:
    take_step, problem = STEPS[name]
    requests: list[shoal.ModelRequest] = []

    @shoal.workflow
    async def plan(flow: shoal.Workflow) -> None:
        await take_step(flow)

    model = shoal.ScriptedModel(lambda request: requests.append(request) or "ok")  # type: ignore[func-returns-value]
    async with shoal.open(cwd=tmp_path, model=model) as session:
        with pytest.raises((TypeError, ValueError), match=problem):
            await plan.run(session)
    assert requests == []


async def test_the_mistake_of_a_stage_is_raised_itself(tmp_path: Path) -> None:
    async def fail(item: int) -> int:
        raise KeyError(item)

    @shoal.workflow
    async def plan(flow: shoal.Workflow) -> list[int]:
        return await flow.pipeline([1], fail)

    async with shoal.open(cwd=tmp_path, model=shoal.ScriptedModel(["ok"])) as session:
        with pytest.raises(KeyError):
            await plan.run(session)
        with pytest.raises(TypeError, match="expected an open session, got 3"):
            await plan.run(3)  # type: ignore[arg-type]


@pytest.mark.spec("API-07")
def test_a_workflow_is_made_from_a_function() -> None:
    with pytest.raises(TypeError, match=r"@shoal.workflow makes workflows from functions, not from 3"):
        shoal.workflow(3)  # type: ignore[arg-type]


async def test_the_error_for_a_killed_command_does_not_say_that_it_did_not_run(tmp_path: Path) -> None:
    @shoal.workflow
    async def wait(flow: shoal.Workflow) -> None:
        await flow.shell("sleep 30", timeout=0.2)

    options: Any = {"cwd": tmp_path, "model": shoal.ScriptedModel([]), "mode": "bypassPermissions"}
    async with shoal.open(**options) as session:
        with pytest.raises(shoal.errors.WorkflowError, match="killed after its time limit") as caught:
            await wait.run(session)
    assert "The command 'sleep 30' has no exit status: " in str(caught.value)
