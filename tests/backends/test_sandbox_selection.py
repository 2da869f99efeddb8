"""Selection of a sandbox driver, and behaviour without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.backends.sandbox.bubblewrap import BubblewrapSandboxDriver, explain_bubblewrap_error
from shoal.backends.sandbox.landlock import LandlockSandboxDriver
from shoal.backends.sandbox.sandbox_driver import SandboxDriver
from shoal.backends.sandbox.sandbox_selection import (
    DriverSelectingSandbox,
    SandboxPreferences,
    SandboxSelection,
    detect_sandbox_driver,
)
from shoal.backends.sandbox.seatbelt import SeatbeltSandboxDriver, build_seatbelt_profile
from shoal.core.errors import ProcessError
from shoal.core.permissions.sandbox import Sandbox, SandboxPolicy
from shoal.core.ports import ProcessLaunchSpec


def write_failing_bwrap(directory: Path, said: str) -> BubblewrapSandboxDriver:
    """Write a bubblewrap that fails as on machines that forbid it."""
    program = directory / "bwrap"
    program.write_text(f"#!/bin/sh\necho 'bwrap: {said}' >&2\nexit 1\n")
    program.chmod(0o755)
    return BubblewrapSandboxDriver(f"{directory}:/usr/bin:/bin")


def select_sandbox(
    *kinds: SandboxDriver, policy: SandboxPolicy, notes: list[str], **wish: bool
) -> DriverSelectingSandbox:
    selection = SandboxSelection(
        SandboxPreferences(**wish), build_policy=lambda _: policy, drivers=kinds, note=notes.append
    )
    return DriverSelectingSandbox(selection)


@pytest.fixture
def launch(tmp_path: Path) -> ProcessLaunchSpec:
    return ProcessLaunchSpec(argv=("/bin/true",), cwd=tmp_path, env={}, stdout=1, stderr=2)


@pytest.fixture
def policy(tmp_path: Path) -> SandboxPolicy:
    return SandboxPolicy(writable=(tmp_path,))


async def test_without_a_working_sandbox_one_note_gives_the_reason_and_commands_run_unconfined(
    tmp_path: Path, launch: ProcessLaunchSpec, policy: SandboxPolicy
) -> None:
    notes: list[str] = []
    box: Sandbox = select_sandbox(
        write_failing_bwrap(tmp_path, "Creating new namespace failed: Operation not permitted"),
        policy=policy,
        notes=notes,
    )
    assert not box.is_active
    assert [await box.wrap_launch(launch), await box.wrap_launch(launch)] == [launch, launch]
    (note,) = notes
    assert "without a sandbox" in note
    assert "Creating new namespace failed" in note
    assert "userns" in note


async def test_a_required_sandbox_that_is_missing_is_refused_with_advice(
    tmp_path: Path, launch: ProcessLaunchSpec, policy: SandboxPolicy
) -> None:
    box = select_sandbox(BubblewrapSandboxDriver(str(tmp_path)), policy=policy, notes=[], insists=True)
    with pytest.raises(
        ProcessError, match=r"bwrap is not installed \(package bubblewrap\).*\"enabled\": false"
    ):
        await box.wrap_launch(launch)


async def test_a_policy_without_network_is_refused_if_it_cannot_be_enforced(
    launch: ProcessLaunchSpec, tmp_path: Path
) -> None:
    if trouble := LandlockSandboxDriver().explain_unavailable():
        pytest.skip(trouble)
    cut = SandboxPolicy(writable=(tmp_path,), network=False)
    box = select_sandbox(
        BubblewrapSandboxDriver(str(tmp_path)), LandlockSandboxDriver(), policy=cut, notes=[], insists=True
    )
    assert not box.is_active
    with pytest.raises(ProcessError, match=r"Landlock cannot block .* bwrap is not installed"):
        await box.wrap_launch(launch)


async def test_a_fallback_sandbox_notes_its_gaps_and_does_not_skip_questions(
    tmp_path: Path, launch: ProcessLaunchSpec, policy: SandboxPolicy
) -> None:
    if trouble := LandlockSandboxDriver().explain_unavailable():
        pytest.skip(trouble)
    notes: list[str] = []
    box = select_sandbox(
        BubblewrapSandboxDriver(str(tmp_path)),
        LandlockSandboxDriver(),
        policy=policy,
        notes=notes,
        auto_allow=True,
    )
    assert box.is_active
    assert not box.can_skip_permission_question
    assert await box.wrap_launch(launch) != launch
    await box.wrap_launch(launch)
    (note,) = notes
    assert "Commands run in Landlock because the program bwrap is not installed" in note
    assert ".git/hooks" in note


@pytest.mark.needs("bwrap")
def test_a_sandbox_skips_questions_only_with_auto_allow(policy: SandboxPolicy) -> None:
    kind = BubblewrapSandboxDriver("/usr/bin:/bin")
    assert not select_sandbox(kind, policy=policy, notes=[]).can_skip_permission_question
    assert select_sandbox(kind, policy=policy, notes=[], auto_allow=True).can_skip_permission_question
    assert not select_sandbox(
        kind, policy=policy, notes=[], auto_allow=True, enabled=False
    ).can_skip_permission_question


async def test_a_disabled_sandbox_is_neither_probed_nor_noted(
    tmp_path: Path, launch: ProcessLaunchSpec, policy: SandboxPolicy
) -> None:
    tried = tmp_path / "tried"
    kind = write_failing_bwrap(tmp_path, f"' > {tried}; echo '")
    notes: list[str] = []
    box = select_sandbox(kind, policy=policy, notes=notes, enabled=False)
    assert await box.wrap_launch(launch) is launch
    assert not box.is_active
    assert notes == []
    assert not tried.exists()


def test_a_driver_is_probed_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = tmp_path / "bwrap"
    program.write_text(f"#!/bin/sh\necho tried >> {log}\nexit 0\n")
    program.chmod(0o755)
    for _ in range(3):
        assert detect_sandbox_driver([BubblewrapSandboxDriver(f"{tmp_path}:/usr/bin:/bin")]).problems == ()
    assert log.read_text() == "tried\n"


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("bwrap: setting up uid map: Permission denied", "userns"),
        ("bwrap: No permissions to create a new namespace, likely because …", "userns"),
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", "/proc"),
        ("", "without a message"),
    ],
)
def test_errors_of_bubblewrap_are_explained(said: str, meant: str) -> None:
    assert meant in explain_bubblewrap_error(said)


def test_the_macos_profile_lists_inner_paths_after_outer_ones(tmp_path: Path) -> None:
    project, secret = tmp_path / 'a "quoted" project', tmp_path / "home/.ssh"
    hooks, shown = project / ".git/hooks", secret / "known_hosts"
    for path in (hooks, secret):
        path.mkdir(parents=True)
    shown.touch()
    text = build_seatbelt_profile(
        SandboxPolicy(
            writable=(project,),
            read_only=(hooks,),
            hidden=(secret, tmp_path / "absent"),
            readable=(shown,),
            network=False,
        )
    )
    lines = text.splitlines()
    assert lines[:3] == ["(version 1)", "(allow default)", "(deny file-write*)"]
    assert "(deny network*)" in lines
    quoted = str(project).replace('"', '\\"')
    order = [
        lines.index(f'(allow file-write* (subpath "{quoted}"))'),
        lines.index(f'(deny file-write* (subpath "{quoted}/.git/hooks"))'),
    ]
    assert order == sorted(order)
    assert lines.index(f'(deny file-read* (subpath "{secret}"))') < lines.index(
        f'(allow file-read* (subpath "{shown}"))'
    )
    assert "absent" not in text
    assert text.count("(") == text.count(")")
    wrapped = SeatbeltSandboxDriver().wrap_launch(
        ProcessLaunchSpec(argv=("sh", "-c", "x"), cwd=project, env={}, stdout=1, stderr=2),
        SandboxPolicy(writable=()),
    )
    assert wrapped.argv[:2] == ("/usr/bin/sandbox-exec", "-p")
    assert wrapped.argv[3:] == ("sh", "-c", "x")
