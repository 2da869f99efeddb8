"""Measures one permission decision, for a file tool and for a shell command that is not cached."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import tree_sitter_bash
from msgspec import Struct
from tree_sitter import Language, Parser

from bench.figures import Figure, Section
from bench.subject import empty_home
from bench.timing import Spent, Stopwatch
from shoal.core.decisions import Allow, Ask
from shoal.core.identity import Identity
from shoal.core.ids import SessionId
from shoal.core.messages import ToolUse
from shoal.policy.permissions import RulePermissions
from shoal.policy.rules import Standing, parse_rule
from shoal.workspaces.local import LocalWorkspace

_ME = Identity(session=SessionId("bench"))
_RULES = Standing(
    allow=tuple(
        map(parse_rule, ("Bash(git commit:*)", "Bash(npm run test:*)", "Edit(/docs/**)", "Read(~/x/**)"))
    ),
    ask=tuple(map(parse_rule, ("Bash(git push:*)",))),
    deny=tuple(map(parse_rule, ("Bash(curl:*)", "Read(./.env)", "Edit(/vendor/**)"))),
)


class Size(Struct, frozen=True, kw_only=True):
    calls: int = 2_000
    repeats: int = 9


def measure(size: Size) -> Section:
    with empty_home() as home:
        project = home / "project" / "src" / "package"
        project.mkdir(parents=True)
        (project / "module.py").touch()
        root = home / "project"
        pipeline = _commands("cat a{n} | grep -n x | sort > o")
        quoted = _commands('grep -rn "a {n}" src | head -20')
        parsed = _commands('for f in a{n} b; do cat "$f" | wc -l; done')
        figures = [
            _figure("Read of a file in the project", 5.0, size, root, _reads),
            _figure("Edit of a file in the project, edits accepted", 5.0, size, root, _edits),
            _figure("a simple command, uncached", 60.0, size, root, _commands("git log -{n} --oneline")),
            _figure("a pipeline of three into a file, uncached", 60.0, size, root, pipeline),
            _figure("a pipeline with a quoted word, uncached", 60.0, size, root, quoted),
            _figure("a loop with a variable, uncached", 60.0, size, root, parsed),
        ]
    return Section(
        name="Permission decisions",
        unit="µs per decision, with eight rules",
        other="realpath of the file; the parse of the command alone",
        figures=figures,
    )


def _reads(number: int) -> ToolUse:
    return ToolUse(id="c", name="Read", input={"file_path": "src/package/module.py"})


def _edits(number: int) -> ToolUse:
    return ToolUse(id="c", name="Edit", input={"file_path": "src/package/module.py"})


def _commands(form: str) -> Callable[[int], ToolUse]:
    return lambda number: ToolUse(id="c", name="Bash", input={"command": form.format(n=number)})


def _figure(
    name: str, target: float | None, size: Size, root: Path, call: Callable[[int], ToolUse]
) -> Figure:
    permissions = RulePermissions(LocalWorkspace(root), mode="acceptEdits", standing=_RULES)
    numbers = count(1)
    ours: list[Spent] = []
    bare: list[Spent] = []
    for repeat in range(size.repeats + 1):
        calls = [call(next(numbers)) for _ in range(size.calls)]
        watch = Stopwatch()
        for each in calls:
            decision = permissions.decide(each, None, _ME)
        spent = watch.read()
        assert isinstance(decision, Allow | Ask), decision
        if repeat:  # the first one warms up
            ours.append(spent.per(size.calls))
            bare.append(_bare(calls, root).per(size.calls))
    return Figure(name=name, ours=_least(ours), bare=_least(bare), target=target)


def _bare(calls: Sequence[ToolUse], root: Path) -> Spent:
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
    return watch.read()


def _least(samples: Sequence[Spent]) -> Spent:
    """Return the minimum in microseconds; other load only adds."""
    least = min(samples, key=lambda spent: spent.cpu)
    return Spent(least.cpu * 1e6, least.wall * 1e6)
