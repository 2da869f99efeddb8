"""Every item that Shoal reads from people, files and programs, listed from the code that reads it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from msgspec import Struct
from msgspec.structs import fields

import shoal
from shoal.app.options import Options
from shoal.app.settings import foreign_settings, managed_switches
from shoal.core.extensions.hooks import HOOK_EVENTS
from shoal.surfaces.cli.flags import FLAG_SECTIONS
from shoal.wire import (
    hook_codec,
    hook_output_codec,
    plugin_manifest_codec,
    skill_codec,
    team_template_codec,
)
from shoal.wire.agent_definition_codec import DEFINITION_FIELDS
from shoal.wire.settings_codec import PerFileSettingsSchema, SettingsSchema

_SOURCE = Path(shoal.__file__).parent
_ENVIRONMENT = re.compile(r"environ|\benv$|^os$|\buser\.variables$")
_VARIABLE_TABLE = re.compile(r"_?[A-Z_]*VARIABLES?")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*|container|traceparent")


def list_read_items() -> set[str]:
    return {
        *(f"settings {name}" for name in _iter_schema_keys(SettingsSchema)),
        *(f"settings {name}" for name in _iter_schema_keys(PerFileSettingsSchema)),
        *(f"foreign {name}" for name in _iter_module_keys(foreign_settings)),
        *(f"foreign {name}" for name in _iter_module_keys(managed_switches)),
        *(f"option {name}" for name in Options.__struct_fields__),
        *(f"flag {_get_flag_name(flag.opts)}" for _, flags in FLAG_SECTIONS for flag in flags),
        *(f"variable {name}" for name in _iter_variables()),
        *(f"agent {name}" for name in DEFINITION_FIELDS),
        *(f"skill {name}" for name in skill_codec._FIELDS),
        *(f"event {name}" for name in HOOK_EVENTS),
        *(f"hook {name}" for keys in hook_codec._KEYS_BY_TYPE.values() for name in keys),
        *(f"hook {name}" for name in hook_codec._COMMON_KEYS),
        "hook matcher",
        *(f"template {name}" for name in team_template_codec._TOML_KEYS),
        *(f"template roles.{name}" for name in team_template_codec._ROLE_KEYS),
        *(f"template budget.{name}" for name in team_template_codec._BUDGET_KEYS),
        *(f"plugin {name}" for name in plugin_manifest_codec._PATH_KEYS),
        *(f"plugin {name}" for name in plugin_manifest_codec._CONFIG_KEYS),
        *(f"output {name}" for name in _iter_schema_keys(hook_output_codec._HookOutputSchema)),
        *(f"output {name}" for name in hook_output_codec._ASYNC_KEYS),
    }


def _iter_schema_keys(schema: type[Struct], prefix: str = "") -> Iterator[str]:
    """Yield the keys of a schema with those of the schemas in it; a mapping of schemas has the key `*`."""
    for field in fields(schema):
        name = prefix + field.encode_name
        inner = list(_iter_inner_schemas(field.type))
        if not inner:
            yield name
        for each, part in inner:
            yield from _iter_schema_keys(each, f"{name}.{part}")


def _iter_inner_schemas(kind: Any, part: str = "") -> Iterator[tuple[type[Struct], str]]:
    if isinstance(kind, type) and issubclass(kind, Struct):
        yield kind, part
        return
    origin = getattr(kind, "__origin__", None)
    for each in get_args(kind):
        yield from _iter_inner_schemas(each, "*." if origin is dict else part)


def _iter_module_keys(module: Any) -> Iterator[str]:
    """Yield the texts in a module that can be keys of a JSON object."""
    tree = ast.parse(Path(module.__file__).read_text())
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and re.fullmatch(r"[a-z]+([A-Z][a-z]+)+|sandbox|credentials|files", node.value):  # type: ignore[attr-defined]
            yield node.value  # type: ignore[attr-defined]


def _get_flag_name(names: list[str]) -> str:
    return next((name for name in names if name.startswith("--")), names[0])


def _iter_variables() -> Iterator[str]:
    """Yield the variables that the code looks up in an environment, or lists in a table of variables."""
    for path in _SOURCE.rglob("*.py"):
        if "policy/shell" in path.as_posix():
            continue  # variables of the commands that it judges
        for node in ast.walk(ast.parse(path.read_text())):
            for text in _iter_texts(_find_variable_names(node)):
                if _VARIABLE.fullmatch(text):
                    yield text


def _find_variable_names(node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        is_lookup = node.func.attr in ("get", "getenv", "pop")
        return node.args[0] if is_lookup and _ENVIRONMENT.search(ast.unparse(node.func.value)) else None
    if isinstance(node, ast.Subscript):
        return node.slice if _ENVIRONMENT.search(ast.unparse(node.value)) else None
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.value if _VARIABLE_TABLE.fullmatch(node.targets[0].id) else None
    return None


def _iter_texts(node: ast.AST | None) -> Iterator[str]:
    for each in () if node is None else ast.walk(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.value
