"""The permission mode of a child: that of its parent or a stricter one, unless user settings allow more."""

from __future__ import annotations

from typing import get_args

import pytest

from shoal.core.permissions.permission_changes import PermissionMode
from shoal.policy.mode_inheritance import get_fork_permission_mode, narrow_child_permission_mode

MODES: tuple[PermissionMode, ...] = get_args(PermissionMode)
ORDER: tuple[set[PermissionMode], ...] = (
    {"plan"},
    {"dontAsk"},
    {"default", "bubble"},
    {"acceptEdits", "delegate"},
    {"bypassPermissions"},
)


def get_rank(mode: PermissionMode) -> int:
    return next(at for at, modes in enumerate(ORDER) if mode in modes)


@pytest.mark.spec("AGT-07", "USR-05")
@pytest.mark.parametrize("parent", MODES)
@pytest.mark.parametrize("requested", MODES)
def test_a_child_never_has_more_permissions_than_its_parent(
    parent: PermissionMode, requested: PermissionMode
) -> None:
    child = narrow_child_permission_mode(parent, requested, can_bypass=parent == "bypassPermissions")
    assert get_rank(child) <= get_rank(parent)
    if get_rank(requested) <= get_rank(parent):
        assert child == requested
    else:
        assert child == parent


@pytest.mark.spec("AGT-07")
@pytest.mark.parametrize("parent", MODES)
def test_a_child_without_a_mode_has_the_mode_of_its_parent(parent: PermissionMode) -> None:
    assert narrow_child_permission_mode(parent, None, can_bypass=True) == parent


@pytest.mark.spec("AGT-07", "PRM-07")
def test_user_settings_may_allow_more_but_bypass_only_if_enabled() -> None:
    assert narrow_child_permission_mode("plan", "acceptEdits", person_configured=True) == "acceptEdits"
    assert narrow_child_permission_mode("default", "bypassPermissions", person_configured=True) == "default"
    assert (
        narrow_child_permission_mode("default", "bypassPermissions", person_configured=True, can_bypass=True)
        == "bypassPermissions"
    )
    assert narrow_child_permission_mode("acceptEdits", "bypassPermissions", can_bypass=True) == "acceptEdits"


@pytest.mark.spec("AGT-07")
@pytest.mark.parametrize("parent", MODES)
def test_a_fork_passes_questions_up_and_never_has_more_permissions(parent: PermissionMode) -> None:
    fork = get_fork_permission_mode(parent)
    assert fork == parent if get_rank(parent) < get_rank("bubble") else fork == "bubble"
