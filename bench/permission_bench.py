"""Measures one permission decision, for a file tool and for a shell command that is not cached."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import tree_sitter_bash
from msgspec import Struct
from tree_sitter import Language, Parser

from bench.bench_session import use_empty_home
from bench.figures import Figure, Section
from bench.stopwatch import Stopwatch, TimeSpent
from shoal.core.agents.identity import AgentIdentity
from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.ids import SessionId
from shoal.core.permissions.permission_decisions import AllowDecision, AskDecision
from shoal.policy.permission_engine import PermissionEngine
from shoal.policy.permission_rules import PermissionRuleSet, parse_permission_rule
from shoal.workspaces.local_workspace import LocalWorkspace

_AGENT = AgentIdentity(session=SessionId("bench"))
_RULES = PermissionRuleSet(
    allow=tuple(
        map(
            parse_permission_rule,
            ("Bash(git commit:*)", "Bash(npm run test:*)", "Edit(/docs/**)", "Read(~/x/**)"),
        )
    ),
    ask=tuple(map(parse_permission_rule, ("Bash(git push:*)",))),
    deny=tuple(map(parse_permission_rule, ("Bash(curl:*)", "Read(./.env)", "Edit(/vendor/**)"))),
)


class PermissionBenchSize(Struct, frozen=True, kw_only=True):
    calls: int = 2_000
    repeats: int = 9


def measure_permissions(size: PermissionBenchSize) -> Section:
    with use_empty_home() as home:
        project = home / "project" / "src" / "package"
        project.mkdir(parents=True)
        (project / "module.py").touch()
        root = home / "project"
        pipeline = _make_command_calls("cat a{n} | grep -n x | sort > o")
        quoted = _make_command_calls('grep -rn "a {n}" src | head -20')
        parsed = _make_command_calls('for f in a{n} b; do cat "$f" | wc -l; done')
        figures = [
            _measure_figure("Read of a file in the project", 5.0, size, root, _make_read_call),
            _measure_figure(
                "Edit of a file in the project, edits accepted", 5.0, size, root, _make_edit_call
            ),
            _measure_figure(
                "a simple command, uncached", 60.0, size, root, _make_command_calls("git log -{n} --oneline")
            ),
            _measure_figure("a pipeline of three into a file, uncached", 60.0, size, root, pipeline),
            _measure_figure("a pipeline with a quoted word, uncached", 60.0, size, root, quoted),
            _measure_figure("a loop with a variable, uncached", 60.0, size, root, parsed),
        ]
    return Section(
        name="Permission decisions",
        unit="µs per decision, with eight rules",
        other="realpath of the file; the parse of the command alone",
        figures=figures,
    )


def _make_read_call(number: int) -> ToolUseBlock:
    return ToolUseBlock(id="c", name="Read", input={"file_path": "src/package/module.py"})


def _make_edit_call(number: int) -> ToolUseBlock:
    return ToolUseBlock(id="c", name="Edit", input={"file_path": "src/package/module.py"})


def _make_command_calls(template: str) -> Callable[[int], ToolUseBlock]:
    return lambda number: ToolUseBlock(id="c", name="Bash", input={"command": template.format(n=number)})


def _measure_figure(
    name: str,
    target: float | None,
    size: PermissionBenchSize,
    root: Path,
    call: Callable[[int], ToolUseBlock],
) -> Figure:
    permissions = PermissionEngine(LocalWorkspace(root), mode="acceptEdits", rules=_RULES)
    numbers = count(1)
    ours: list[TimeSpent] = []
    bare: list[TimeSpent] = []
    for repeat in range(size.repeats + 1):
        calls = [call(next(numbers)) for _ in range(size.calls)]
        watch = Stopwatch()
        for each in calls:
            decision = permissions.decide_tool_call(each, None, _AGENT)
        spent = watch.read_time()
        assert isinstance(decision, AllowDecision | AskDecision), decision
        if repeat:  # the first one warms up
            ours.append(spent.divide_by(size.calls))
            bare.append(_time_bare(calls, root).divide_by(size.calls))
    return Figure(name=name, ours=_find_least(ours), bare=_find_least(bare), target=target)


def _time_bare(calls: Sequence[ToolUseBlock], root: Path) -> TimeSpent:
    """Time the minimum that anybody would have to do: resolve a path, parse a command."""
    parser = Parser(Language(tree_sitter_bash.language()))
    place = f"{root}/"
    watch = Stopwatch()
    for each in calls:
        command = each.input.get("command")
        if command is not None:
            parser.parse(command.encode())
        else:
            os.path.realpath(place + each.input["file_path"]).startswith(place)
    return watch.read_time()


def _find_least(samples: Sequence[TimeSpent]) -> TimeSpent:
    """Return the minimum in microseconds; other load only adds."""
    least = min(samples, key=lambda spent: spent.cpu)
    return TimeSpent(least.cpu * 1e6, least.wall * 1e6)
