from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from shoal.backends.ray_probe import read_cluster_nodes

STORE = "postgresql://shoal:password@db/shoal"


@pytest.mark.needs("ray")
@pytest.mark.fresh_interpreter
def test_the_password_of_a_store_is_not_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "python"
    records = f'echo "$@" > {tmp_path}/arguments\ncat > {tmp_path}/input'
    program.write_text(f"#!/bin/sh\n{records}\necho '{{\"nodes\": []}}'\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    with socket.create_server(("127.0.0.1", 0)) as head:
        address = f"127.0.0.1:{head.getsockname()[1]}"
        assert read_cluster_nodes(address, check="check_node", argument=STORE) == []
    assert "password" not in (tmp_path / "arguments").read_text()
    assert STORE in (tmp_path / "input").read_text()
