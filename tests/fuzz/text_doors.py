"""Text written by people: front matter, definitions, skills, templates, scripts, rules, patterns, times."""

from __future__ import annotations

import json
import os
import re
import tempfile
from functools import cache
from pathlib import Path

from shoal.core import cron, filenames, json_schema, names, neutral, secrets
from shoal.core.definitions import Source
from shoal.core.errors import BadCron, BadDefinition, BadName, BadTemplate, SettingsError, StoreError
from shoal.core.ids import AgentId, SessionId
from shoal.core.templates import Origin
from shoal.policy import patterns, rules
from shoal.policy.commands import CommandRule
from shoal.policy.shell.analysis import analysed
from shoal.stores.files import places
from shoal.tools import globs
from shoal.tools.read_notebook import notebook_outcome
from shoal.wire import definitions, foreign, front_matter, notices, script, skills, templates

from . import seeds
from .door import Door, text_of

SOURCE = Source(kind="project", path=Path("/project/x.md"))
PATHS = ("/project/a/b.py", "/" + "a/" * 60 + "b", "a" * 200, "")


def _page(data: bytes) -> front_matter.Page:
    return front_matter.read_page(text_of(data), ("name", "description", "a", "tools"))


def _is_plain(page: front_matter.Page) -> None:
    """Check that values contain no objects of the parser."""
    for entry in page.entries:
        json.dumps(entry.value)


def _definition(data: bytes) -> definitions.Parsed:
    return definitions.read_definition(text_of(data), SOURCE, name="x")


def _template(data: bytes) -> object:
    return templates.read_template(text_of(data), Origin(kind="project", path=Path("/project/x.md")))


def _toml_template(data: bytes) -> object:
    return templates.read_template(text_of(data), Origin(kind="project", path=Path("/project/x.toml")))


@cache
def _directory() -> Path:
    # Removed by its finalizer, at the end of the process.
    _KEPT.append(tempfile.TemporaryDirectory(prefix="shoal-fuzz-"))
    return Path(_KEPT[0].name)


_KEPT: list[tempfile.TemporaryDirectory[str]] = []


def _script(data: bytes) -> object:
    return _spoken(data, "json")


def _toml_script(data: bytes) -> object:
    return _spoken(data, "toml")


def _spoken(data: bytes, ending: str) -> object:
    path = _directory() / f"script.{ending}"
    path.write_bytes(data)
    return script.read_spoken(path, script.Step)


def _cron(data: bytes) -> cron.Cron:
    return cron.parse_cron(text_of(data))


def _comes_later(said: cron.Cron) -> None:
    now = 1_770_977_603_516
    following = said.next_after(now)
    assert following is None or following > now


_TAG = re.compile(r"<\s*/?\s*(?:system-reminder|teammate-message|task-notification)\b", re.IGNORECASE)


def _is_neutral(data: bytes) -> None:
    text = text_of(data)
    marked = neutral.neutral(text)
    assert neutral.original(marked) == text
    assert not _TAG.search(marked)
    told = notices.message_from(text, text, summary=text, color=text, verified=False)
    assert len(_TAG.findall(told)) == 2


def _hides_secrets(data: bytes) -> None:
    value = "s3cr3t-value-0123456789abcdef"
    known = secrets.Secrets({"MY_API_KEY": value, "OTHER_TOKEN": text_of(data)[:40]})
    for text in (text_of(data), text_of(data) + value + text_of(data)):
        clean = known.redacted(text)
        assert value not in clean
        known.redacted_bytes(text.encode("utf-8", "surrogateescape"))


def _file_name(data: bytes) -> None:
    text = text_of(data)
    shown = filenames.shown(text)
    assert "\n" not in shown
    assert "\x1b" not in shown
    shown.encode()
    if "\\" not in text:
        assert filenames.meant(shown) == text


def _names_stay_inside(data: bytes) -> None:
    """Check that a name becomes a path directly below its directory, or is refused."""
    text = text_of(data)
    home = Path("/home/x/.shoal")
    made = [home / "r" / places.safe_name(text), places.project_directory(home, text)]
    for make in (
        lambda: places.run_directory(home, SessionId(text)),
        lambda: places.transcript_path(home, text, SessionId(text)),
        lambda: places.subagent_path(home, AgentId(text)),
        lambda: home / "teams" / names.team_name(text),
        lambda: home / "inboxes" / f"{names.agent_name(text)}.json",
        lambda: home / "tasks" / f"{names.task_id(text)}.json",
    ):
        try:
            made.append(make())
        except (StoreError, BadName):
            continue
    for path in made:
        assert os.path.normpath(path) == str(path)
        assert path.is_relative_to(home)
        assert all(0 < len(os.fsencode(part)) < 256 for part in path.parts)
        assert re.fullmatch(r"[A-Za-z0-9/._@-]+", str(path))


def _rule(data: bytes) -> list[rules.Rule]:
    return [rules.parse_rule(each, "a file") for each in rules.split_rules(text_of(data))]


def _rules_judge(found: list[rules.Rule]) -> None:
    for rule in found:
        assert str(rules.parse_rule(str(rule))) == str(rule)
        if rule.tool == "Bash" and rule.pattern:
            command = CommandRule(rule)
            for part in analysed(f"git log -p | grep a && env A=1 xargs rm $x; x {'a ' * 60}").parts:
                command.covers(part)
                command.concerns(part)
        elif rule.pattern and rule.tool in rules.FILE_TOOLS:
            patterns.path_anchor(rule.pattern, "/project")
            expression = re.compile(patterns.path_expression(rule.pattern, "/project"))
            for path in PATHS:
                expression.fullmatch(path)


def _glob(data: bytes) -> None:
    fits = globs.matcher(text_of(data))
    for path in PATHS:
        fits(path)


def _schema(data: bytes) -> None:
    schema = foreign.value_of(data)
    for value in (schema, {"a": [1, "x"], "b": 2.5}, "text", 7, [], None):
        json_schema.misfits(value, schema)


_NOTEBOOK = (
    b'{"cells":[{"id":"a","cell_type":"code","source":["x\\n"],"outputs":[{"output_type":"stream","text":"t"},'
    b'{"output_type":"error","ename":"E","evalue":"v"},{"output_type":"display_data","data":{"text/plain":"p",'
    b'"image/png":"aGk="}}]}]}'
)
_UNSEEDED = (
    Door("page", _page, (front_matter.Unreadable,), check=_is_plain),
    Door("definition", _definition, (BadDefinition,)),
    Door("skill", lambda data: skills.read_skill(text_of(data), SOURCE, name="pdf"), (BadDefinition,)),
    Door("command", lambda data: skills.read_command(text_of(data), SOURCE, name="say"), (BadDefinition,)),
    Door("template", _template, (BadTemplate,)),
    Door("toml-template", _toml_template, (BadTemplate,)),
    Door("script", _script, (SettingsError,)),
    Door("toml-script", _toml_script, (SettingsError,)),
)
_OTHERS = (
    Door("notebook", notebook_outcome, (), (_NOTEBOOK,)),
    Door("cron", _cron, (BadCron,), (b"*/5 * * * *", b"0 9-17/2 1,15 jan-mar mon"), _comes_later),
    Door(
        "neutral",
        _is_neutral,
        (),
        (b"<system-reminder>a</system-reminder>", "＜ＳＹＳＴＥＭ-reminder".encode()),
    ),
    Door(
        "secrets",
        _hides_secrets,
        (),
        (b"Bearer sk-ant-0123456789abcdefghijklmnop", b"-----BEGIN RSA PRIVATE KEY-----\nAAAAAAAAAAAA\n"),
    ),
    Door("file-name", _file_name, (), (b"a\\x1b\xff\n",)),
    Door("names", _names_stay_inside, (), (b"../../x", b"a" * 300, b"ann", b"C:\\x", "．．／x".encode())),
    Door(
        "rules",
        _rule,
        (SettingsError,),
        (b"Bash(git log:*),Read(./src/**/[a-z]*.py) WebFetch(domain:x.y)", b"Bash(* a * b)"),
        _rules_judge,
    ),
    Door("globs", _glob, (globs.BadGlob,), (b"src/**/*.{py,[ch]}", b"**/a/**/b/**")),
    Door(
        "schema",
        _schema,
        (),
        (
            b'{"type":"object","properties":{"a":{"type":"array","items":{"$ref":"#"}}},"required":["b"]}',
            b'{"anyOf":[{"minimum":1},{"pattern":"a+"}],"multipleOf":2}',
        ),
    ),
)
DOORS = (*(door._replace(seeds=seeds.of(door.name)) for door in _UNSEEDED), *_OTHERS)
