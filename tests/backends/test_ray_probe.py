from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from shoal.backends.ray_probe import read_cluster_id, read_cluster_nodes, require_local_node
from shoal.core.errors import ProcessError

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


@pytest.mark.needs("ray")
@pytest.mark.fresh_interpreter
def test_a_machine_that_is_not_in_the_cluster_is_told_at_once_how_to_join(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ray._private.services.find_node_ids", list)  # another test may run Ray here
    with pytest.raises(
        ProcessError, match=r"not part .* Run on this machine: shoal cluster join 192.0.2.10:9"
    ):
        require_local_node("192.0.2.10:9")


@pytest.mark.needs("ray")
def test_ray_is_not_asked_for_a_head_where_nothing_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\ntouch {tmp_path}/started\necho \'{{"id": "c"}}\'\n')
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    assert read_cluster_id("127.0.0.1:1") == ""
    assert not (tmp_path / "started").exists()
