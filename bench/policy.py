"""What one permission decision costs, for a file tool and for a shell command that was never seen before."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

from msgspec import Struct

from bench.figures import Figure, Section
from bench.subject import empty_home
from bench.timing import Spent, Stopwatch, middle
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
        other="none",
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
    samples: list[Spent] = []
    for repeat in range(size.repeats + 1):
        calls = [call(next(numbers)) for _ in range(size.calls)]
        watch = Stopwatch()
        for each in calls:
            decision = permissions.decide(each, None, _ME)
        if repeat:  # the first one warms up
            samples.append(watch.read().per(size.calls))
        assert isinstance(decision, Allow | Ask), decision
    spent = middle(samples)
    return Figure(name=name, ours=Spent(spent.cpu * 1e6, spent.wall * 1e6), target=target)
