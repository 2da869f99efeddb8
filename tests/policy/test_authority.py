"""A child's authority: the parent's or less, unless a person says otherwise."""

from __future__ import annotations

from typing import get_args

import pytest

from shoal.core.permissions import Mode
from shoal.policy.authority import forked, narrowed

MODES: tuple[Mode, ...] = get_args(Mode)
ORDER: tuple[set[Mode], ...] = (
    {"plan"},
    {"dontAsk"},
    {"default", "bubble"},
    {"acceptEdits", "delegate"},
    {"bypassPermissions"},
)


def width(mode: Mode) -> int:
    return next(at for at, modes in enumerate(ORDER) if mode in modes)


@pytest.mark.spec("AGT-07", "USR-05")
@pytest.mark.parametrize("parent", MODES)
@pytest.mark.parametrize("wished", MODES)
def test_a_child_is_never_wider_than_its_parent(parent: Mode, wished: Mode) -> None:
    child = narrowed(parent, wished, may_skip=parent == "bypassPermissions")
    assert width(child) <= width(parent)
    if width(wished) <= width(parent):
        assert child == wished
    else:
        assert child == parent


@pytest.mark.spec("AGT-07")
@pytest.mark.parametrize("parent", MODES)
def test_a_child_without_a_mode_of_its_own_has_its_parents(parent: Mode) -> None:
    assert narrowed(parent, None, may_skip=True) == parent


@pytest.mark.spec("AGT-07", "PRM-07")
def test_a_persons_configuration_may_widen_but_not_skip_unless_skipping_is_enabled() -> None:
    assert narrowed("plan", "acceptEdits", person_configured=True) == "acceptEdits"
    assert narrowed("default", "bypassPermissions", person_configured=True) == "default"
    assert (
        narrowed("default", "bypassPermissions", person_configured=True, may_skip=True) == "bypassPermissions"
    )
    assert narrowed("acceptEdits", "bypassPermissions", may_skip=True) == "acceptEdits"


@pytest.mark.spec("AGT-07")
@pytest.mark.parametrize("parent", MODES)
def test_a_fork_bubbles_its_questions_and_is_held_as_tightly(parent: Mode) -> None:
    fork = forked(parent)
    assert fork == parent if width(parent) < width("bubble") else fork == "bubble"
