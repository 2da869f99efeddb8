"""Sandbox of macOS: a profile for `sandbox-exec`, in which the last matching rule wins."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from msgspec.structs import replace

from shoal.backends.sandbox.sandbox_driver import resolve_existing_paths
from shoal.core.permissions.sandbox import SandboxPolicy
from shoal.core.ports import ProcessLaunchSpec

SANDBOX_EXEC = "/usr/bin/sandbox-exec"
_DEVICES = (
    "/dev/null",
    "/dev/zero",
    "/dev/tty",
    "/dev/dtracehelper",
    "/dev/fd",
    "/dev/stdout",
    "/dev/stderr",
)
_PROBE_TIMEOUT = 5.0


class SeatbeltSandboxDriver:
    name = "sandbox-exec"
    limits = "sandbox-exec does not isolate processes."
    ends_all_processes = False
    blocks_sockets = True
    hides_denied_files = True
    needs_placeholders = False

    def explain_unavailable(self) -> str | None:
        return _probe_sandbox_exec()

    def find_unsupported_policy_part(self, policy: SandboxPolicy) -> str | None:
        return None

    def wrap_launch(self, launch: ProcessLaunchSpec, policy: SandboxPolicy) -> ProcessLaunchSpec:
        return replace(launch, argv=(SANDBOX_EXEC, "-p", build_seatbelt_profile(policy), *launch.argv))


def build_seatbelt_profile(policy: SandboxPolicy) -> str:
    """Build the profile, inner paths after outer ones, so that they take effect."""
    lines = [
        "(version 1)",
        "(allow default)",
        "(deny file-write*)",
        f"(allow file-write* {' '.join(f'(literal {_quote_seatbelt_text(device)})' for device in _DEVICES)})",
        '(allow file-write* (regex #"^/dev/ttys[0-9]+$"))',
        # A command may signal only its own processes, although it sees the pids of others.
        "(deny signal)",
        "(allow signal (target same-sandbox))",
    ]
    if not policy.network:
        lines += ("(deny network*)",)
    for path, rules in sorted(_build_seatbelt_rules(policy).items(), key=lambda each: len(each[0].parts)):
        lines += (f"({rule} (subpath {_quote_seatbelt_text(str(path))}))" for rule in rules)
    return "\n".join(lines)


def _build_seatbelt_rules(policy: SandboxPolicy) -> dict[Path, tuple[str, ...]]:
    """Return the rules for each path; a later list wins over an earlier one for the same path."""
    rules: dict[Path, tuple[str, ...]] = {}
    _add_seatbelt_rules(rules, policy.read_only, "deny file-write*")
    _add_seatbelt_rules(rules, policy.readable, "allow file-read*")
    _add_seatbelt_rules(rules, policy.writable, "allow file-write*", "allow file-read*")
    for path in policy.uncreatable:
        if not os.path.lexists(path):
            rules[Path(os.path.realpath(path))] = ("deny file-write*",)
    read_only = (*policy.always_read_only, *policy.sealed_repositories)
    _add_seatbelt_rules(rules, read_only, "deny file-write*")
    for hidden in (policy.hidden, policy.hidden_if_possible, policy.hidden_sockets):
        _add_seatbelt_rules(rules, hidden, "deny file-read*", "deny file-write*", "deny network-outbound")
    return rules


def _add_seatbelt_rules(rules: dict[Path, tuple[str, ...]], paths: Iterable[Path], *operations: str) -> None:
    for path in resolve_existing_paths(paths):
        rules[path] = operations


def _quote_seatbelt_text(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@cache
def _probe_sandbox_exec() -> str | None:
    if not os.access(SANDBOX_EXEC, os.X_OK):
        return f"{SANDBOX_EXEC}, which is part of macOS, does not exist"
    import subprocess

    try:
        result = subprocess.run(
            [SANDBOX_EXEC, "-p", "(version 1)(allow default)", "/usr/bin/true"],
            env={},
            capture_output=True,
            timeout=_PROBE_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"cannot test sandbox-exec: {error}"
    return (
        None
        if result.returncode == 0
        else f"sandbox-exec failed: {result.stderr.decode(errors='replace').strip()}"
    )
