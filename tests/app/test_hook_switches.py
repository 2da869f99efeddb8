"""Which sources of hooks each switch turns off."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec.structs import replace

from shoal.app.hooks.hook_sources import are_settings_hooks_disabled
from shoal.app.settings.settings import load_settings
from shoal.wire.settings_codec import SettingsDocument, SettingsSourceKind

KINDS = frozenset(get_args(SettingsSourceKind))
PROJECT_KINDS = frozenset({"local", "project", "mcp", "agent", "plugin", "workflow"})
PLUGIN_ONLY = {"strictPluginOnlyCustomization": ["hooks"]}


def make_document(kind: Any, raw: dict[str, Any] | None = None) -> SettingsDocument:
    return SettingsDocument(name=kind, kind=kind, path=None, text="{}", raw=raw or {})


def list_disabled(tmp_path: Path, *documents: SettingsDocument) -> frozenset[str]:
    settings = replace(load_settings(cwd=tmp_path, environ={}, managed=()), documents=documents)
    return frozenset(kind for kind in KINDS if are_settings_hooks_disabled(make_document(kind), settings))


@pytest.mark.parametrize(
    ("raw", "disabled"),
    [
        ({}, frozenset()),
        ({"disableAllHooks": False}, frozenset()),
        ({"disableAllHooks": True}, KINDS),
        ({"allowManagedHooksOnly": True}, KINDS - {"managed"}),
        ({"allowManagedHooksOnly": False}, frozenset()),
        (PLUGIN_ONLY, KINDS - {"managed", "plugin"}),
        ({"strictPluginOnlyCustomization": True}, KINDS - {"managed", "plugin"}),
        ({"strictPluginOnlyCustomization": ["skills"]}, frozenset()),
    ],
)
def test_a_managed_file_turns_off_the_hooks_of_other_sources(
    tmp_path: Path, raw: dict[str, Any], disabled: frozenset[str]
) -> None:
    assert list_disabled(tmp_path, make_document("managed", raw)) == disabled


@pytest.mark.parametrize("kind", sorted(KINDS - {"managed"}))
def test_only_a_persons_own_settings_turn_off_all_but_managed_hooks(tmp_path: Path, kind: str) -> None:
    expected = frozenset() if kind in PROJECT_KINDS else KINDS - {"managed"}
    assert list_disabled(tmp_path, make_document(kind, {"disableAllHooks": True})) == expected
    for switch in ({"allowManagedHooksOnly": True}, PLUGIN_ONLY):
        assert list_disabled(tmp_path, make_document(kind, switch)) == frozenset()
