"""Flags of `shoal cluster` that Ray would refuse."""

from __future__ import annotations

import pytest
from shoal_process import ShoalProgram

from shoal.surfaces.cli.cluster_commands import describe_running_head


@pytest.mark.parametrize(
    "label", ["disk", "disk=", "=fast", "di sk=fast", "disk=fa st", "disk=a,b", "disk=-a"]
)
@pytest.mark.parametrize("command", [("head",), ("join", "127.0.0.1:1")])
async def test_a_label_that_ray_would_refuse_is_refused_at_once(
    shoal: ShoalProgram, command: tuple[str, ...], label: str
) -> None:
    ran = await shoal("cluster", *command, "--label", label)
    assert ran.code == 2
    assert f"{label!r} is not a valid label. Use NAME=VALUE." in ran.err


@pytest.mark.parametrize("command", [("head",), ("join", "127.0.0.1:1")])
async def test_memory_without_a_unit_is_refused(shoal: ShoalProgram, command: tuple[str, ...]) -> None:
    ran = await shoal("cluster", *command, "--memory", "8")
    assert ran.code == 2
    assert "--memory: 8 is 8 bytes. Add a unit, for example 8GB." in ran.err


def test_a_head_that_other_machines_cannot_reach_does_not_ask_them_to_join() -> None:
    """Without a route to the internet, Ray finds no address but that of loopback."""
    assert describe_running_head("192.0.2.10", 6379).endswith("run: shoal cluster join 192.0.2.10:6379")
    for address in ("127.0.0.1", "::1"):
        told = describe_running_head(address, 6379)
        assert "other machines cannot reach" in told
        assert "--host" in told
        assert "cluster join" not in told
