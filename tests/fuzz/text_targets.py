"""Text written by people: front matter, definitions, skills, templates, scripts, rules, patterns, times."""

from __future__ import annotations

import json
import os
import re
import tempfile
from functools import cache
from pathlib import Path

from shoal.core import names
from shoal.core.agents import cron
from shoal.core.agents.agent_definitions import DefinitionSource
from shoal.core.errors import (
    InvalidAgentDefinition,
    InvalidCronExpression,
    InvalidName,
    InvalidTeamTemplate,
    SettingsError,
    StateFileError,
)
from shoal.core.ids import AgentId, SessionId
from shoal.core.teams.team_templates import TeamTemplateSource
from shoal.core.text import control_tags, filenames, json_schema, redaction
from shoal.policy import path_patterns, permission_rules
from shoal.policy.command_rules import ShellCommandRule
from shoal.policy.shell.command_analysis import analyze_shell_command
from shoal.stores.files.home import home_paths
from shoal.tools import glob_patterns
from shoal.tools.notebook_reader import format_notebook
from shoal.wire import (
    agent_definition_codec,
    foreign_json,
    front_matter,
    model_script_codec,
    notification_text,
    skill_codec,
    team_template_codec,
)

from . import seed_documents
from .fuzz_target import FuzzTarget, decode_text

SOURCE = DefinitionSource(kind="project", path=Path("/project/x.md"))
PATHS = ("/project/a/b.py", "/" + "a/" * 60 + "b", "a" * 200, "")


def _read_page(data: bytes) -> front_matter.FrontMatterDocument:
    return front_matter.parse_front_matter(decode_text(data), ("name", "description", "a", "tools"))


def _check_plain(page: front_matter.FrontMatterDocument) -> None:
    """Check that values contain no objects of the parser."""
    for entry in page.entries:
        json.dumps(entry.value)


def _read_definition(data: bytes) -> agent_definition_codec.ParsedAgentDefinition:
    return agent_definition_codec.parse_agent_definition(decode_text(data), SOURCE, name="x")


def _read_template(data: bytes) -> object:
    return team_template_codec.parse_team_template(
        decode_text(data), TeamTemplateSource(kind="project", path=Path("/project/x.md"))
    )


def _read_toml_template(data: bytes) -> object:
    return team_template_codec.parse_team_template(
        decode_text(data), TeamTemplateSource(kind="project", path=Path("/project/x.toml"))
    )


@cache
def _create_directory() -> Path:
    # Removed by its finalizer, at the end of the process.
    _DIRECTORIES.append(tempfile.TemporaryDirectory(prefix="shoal-fuzz-"))
    return Path(_DIRECTORIES[0].name)


_DIRECTORIES: list[tempfile.TemporaryDirectory[str]] = []


def _read_json_script(data: bytes) -> object:
    return _read_script(data, "json")


def _read_toml_script(data: bytes) -> object:
    return _read_script(data, "toml")


def _read_script(data: bytes, ending: str) -> object:
    path = _create_directory() / f"script.{ending}"
    path.write_bytes(data)
    return model_script_codec.read_model_script_with_options(path, model_script_codec.ModelScriptStep)


def _parse_cron(data: bytes) -> cron.CronExpression:
    return cron.parse_cron(decode_text(data))


def _check_next_time(cron_expression: cron.CronExpression) -> None:
    now = 1_770_977_603_516
    following = cron_expression.next_time_after(now)
    assert following is None or following > now


_TAG = re.compile(r"<\s*/?\s*(?:system-reminder|teammate-message|task-notification)\b", re.IGNORECASE)


def _check_tag_escaping(data: bytes) -> None:
    text = decode_text(data)
    marked = control_tags.escape_control_tags(text)
    assert control_tags.unescape_control_tags(marked) == text
    assert not _TAG.search(marked)
    told = notification_text.format_mail_message(text, text, summary=text, color=text, verified=False)
    assert len(_TAG.findall(told)) == 2


def _check_redaction(data: bytes) -> None:
    value = "s3cr3t-value-0123456789abcdef"
    known = redaction.SecretRedactor({"MY_API_KEY": value, "OTHER_TOKEN": decode_text(data)[:40]})
    for text in (decode_text(data), decode_text(data) + value + decode_text(data)):
        clean = known.redact_text(text)
        assert value not in clean
        known.redact_bytes(text.encode("utf-8", "surrogateescape"))


def _check_file_name(data: bytes) -> None:
    text = decode_text(data)
    shown = filenames.escape_filename(text)
    assert "\n" not in shown
    assert "\x1b" not in shown
    shown.encode()
    if "\\" not in text:
        assert filenames.unescape_filename(shown) == text


def _check_path_names(data: bytes) -> None:
    """Check that a name becomes a path directly below its directory, or is refused."""
    text = decode_text(data)
    home = Path("/home/x/.shoal")
    made = [
        home / "r" / home_paths.to_safe_file_name(text),
        home_paths.get_project_state_directory(home, text),
    ]
    for make in (
        lambda: home_paths.get_run_directory(home, SessionId(text)),
        lambda: home_paths.get_transcript_path(home, text, SessionId(text)),
        lambda: home_paths.get_subagent_transcript_path(home, AgentId(text)),
        lambda: home / "teams" / names.parse_team_name(text),
        lambda: home / "inboxes" / f"{names.parse_agent_name(text)}.json",
        lambda: home / "tasks" / f"{names.parse_task_id(text)}.json",
    ):
        try:
            made.append(make())
        except (StateFileError, InvalidName):
            continue
    for path in made:
        assert os.path.normpath(path) == str(path)
        assert path.is_relative_to(home)
        assert all(0 < len(os.fsencode(part)) < 256 for part in path.parts)
        assert re.fullmatch(r"[A-Za-z0-9/._@-]+", str(path))


def _parse_rules(data: bytes) -> list[permission_rules.ToolPermissionRule]:
    return [
        permission_rules.parse_permission_rule(each, "a file")
        for each in permission_rules.split_permission_rule_list(decode_text(data))
    ]


def _check_rules(found: list[permission_rules.ToolPermissionRule]) -> None:
    for rule in found:
        assert str(permission_rules.parse_permission_rule(str(rule))) == str(rule)
        if rule.tool == "Bash" and rule.pattern:
            command = ShellCommandRule(rule)
            for part in analyze_shell_command(
                f"git log -p | grep a && env A=1 xargs rm $x; x {'a ' * 60}"
            ).parts:
                command.covers_command(part)
                command.match_as_forbidding_rule(part)
        elif rule.pattern and rule.tool in permission_rules.FILE_TOOLS:
            path_patterns.find_path_pattern_anchor(rule.pattern, "/project", "/home/x")
            expression = re.compile(
                path_patterns.convert_path_pattern_to_regex(rule.pattern, "/project", "/home/x")
            )
            for path in PATHS:
                expression.fullmatch(path)


def _check_glob(data: bytes) -> None:
    fits = glob_patterns.compile_glob(decode_text(data))
    for path in PATHS:
        fits(path)


def _check_schema(data: bytes) -> None:
    schema = foreign_json.parse_foreign_json(data)
    for value in (schema, {"a": [1, "x"], "b": 2.5}, "text", 7, [], None):
        json_schema.find_schema_violations(value, schema)


_NOTEBOOK = (
    b'{"cells":[{"id":"a","cell_type":"code","source":["x\\n"],"outputs":[{"output_type":"stream","text":"t"},'
    b'{"output_type":"error","ename":"E","evalue":"v"},{"output_type":"display_data","data":{"text/plain":"p",'
    b'"image/png":"aGk="}}]}]}'
)
_UNSEEDED = (
    FuzzTarget("page", _read_page, (front_matter.InvalidFrontMatterError,), check_value=_check_plain),
    FuzzTarget("definition", _read_definition, (InvalidAgentDefinition,)),
    FuzzTarget(
        "skill",
        lambda data: skill_codec.parse_skill(decode_text(data), SOURCE, name="pdf"),
        (InvalidAgentDefinition,),
    ),
    FuzzTarget(
        "command",
        lambda data: skill_codec.parse_slash_command_file(decode_text(data), SOURCE, name="say"),
        (InvalidAgentDefinition,),
    ),
    FuzzTarget("template", _read_template, (InvalidTeamTemplate,)),
    FuzzTarget("toml-template", _read_toml_template, (InvalidTeamTemplate,)),
    FuzzTarget("script", _read_json_script, (SettingsError,)),
    FuzzTarget("toml-script", _read_toml_script, (SettingsError,)),
)
_OTHERS = (
    FuzzTarget("notebook", format_notebook, (), (_NOTEBOOK,)),
    FuzzTarget(
        "cron",
        _parse_cron,
        (InvalidCronExpression,),
        (b"*/5 * * * *", b"0 9-17/2 1,15 jan-mar mon"),
        _check_next_time,
    ),
    FuzzTarget(
        "neutral",
        _check_tag_escaping,
        (),
        (b"<system-reminder>a</system-reminder>", "＜ＳＹＳＴＥＭ-reminder".encode()),
    ),
    FuzzTarget(
        "secrets",
        _check_redaction,
        (),
        (b"Bearer sk-ant-0123456789abcdefghijklmnop", b"-----BEGIN RSA PRIVATE KEY-----\nAAAAAAAAAAAA\n"),
    ),
    FuzzTarget("file-name", _check_file_name, (), (b"a\\x1b\xff\n",)),
    FuzzTarget(
        "names", _check_path_names, (), (b"../../x", b"a" * 300, b"ann", b"C:\\x", "．．／x".encode())
    ),
    FuzzTarget(
        "rules",
        _parse_rules,
        (SettingsError,),
        (b"Bash(git log:*),Read(./src/**/[a-z]*.py) WebFetch(domain:x.y)", b"Bash(* a * b)"),
        _check_rules,
    ),
    FuzzTarget(
        "globs", _check_glob, (glob_patterns.InvalidGlobError,), (b"src/**/*.{py,[ch]}", b"**/a/**/b/**")
    ),
    FuzzTarget(
        "schema",
        _check_schema,
        (),
        (
            b'{"type":"object","properties":{"a":{"type":"array","items":{"$ref":"#"}}},"required":["b"]}',
            b'{"anyOf":[{"minimum":1},{"pattern":"a+"}],"multipleOf":2}',
        ),
    ),
)
TARGETS = (*(door._replace(seeds=seed_documents.get_seeds(door.name)) for door in _UNSEEDED), *_OTHERS)
