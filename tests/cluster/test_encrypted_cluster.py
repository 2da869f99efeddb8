"""A cluster whose machines encrypt everything: only there do the keys of the lead reach the others."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from cluster_helpers import CREATE, has_line, open_cluster_session, read_rows, report_done, run_turns

from ray_machines import LEAD_KEY, RayMachine, RayMachines, find_host
from server_scripts import find_speaker, run_provider
from team_scripts import spawn_member
from tls_files import build_ray_variables, create_tls_files

pytestmark = [pytest.mark.exhaustive, pytest.mark.needs("ray", "postgres", "asyncpg", "openssl")]


@pytest.fixture
def encrypted_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RayMachines]:
    files = create_tls_files(tmp_path / "tls", find_host(), "127.0.0.2")
    for name, value in build_ray_variables(files).items():
        monkeypatch.setenv(name, value)
    with TemporaryDirectory(prefix="r-", dir="/tmp") as directory:
        machines = RayMachines(Path(directory), 1)
        try:
            machines.start()
            yield machines
        finally:
            machines.stop()


async def test_a_member_on_a_machine_without_a_key_uses_the_key_of_its_lead(
    tmp_path: Path,
    encrypted_machines: RayMachines,
    cluster_database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with run_provider(
        monkeypatch,
        lead=[CREATE, spawn_member("ann"), "Ann works.", "Over."],
        ann=[report_done("ann"), "Done."],
    ) as server:
        monkeypatch.delenv("ANTHROPIC_API_KEY")  # the lead's is in its settings
        settings = encrypted_machines.build_settings(send_keys=True)
        async with open_cluster_session(
            tmp_path, encrypted_machines, cluster_database, settings=settings
        ) as session:
            await run_turns(session)
        assert has_line(server, "lead", "ann is done.")
        keys = {find_speaker(each.body): each.headers["x-api-key"] for each in server.requests}
        assert keys == {"lead": LEAD_KEY, "ann": LEAD_KEY}
    places = [find_ray_directory(machine) for machine in encrypted_machines.machines]
    assert len(set(places)) == 2
    for directory in places:
        assert find_files_with(encrypted_machines.address, directory)  # the search finds something
    places += [machine.home for machine in encrypted_machines.machines]
    places += [Path(os.environ["SHOAL_HOME"]), Path(os.environ["HOME"])]  # of the lead
    assert {place: find_files_with(LEAD_KEY, place) for place in places} == {place: [] for place in places}
    tables = read_rows(cluster_database, "SELECT tablename FROM pg_tables WHERE schemaname = 'shoal'")
    for (table,) in tables:
        assert not read_rows(
            cluster_database,
            f"SELECT 1 FROM shoal.{table} AS line WHERE position('{LEAD_KEY}' IN line::text) > 0 "
            f"OR position(encode('{LEAD_KEY}', 'hex') IN line::text) > 0",
        )


def find_ray_directory(machine: RayMachine) -> Path:
    """Return the directory in which Ray stores the files of a machine."""
    commands = b"\0".join(Path(f"/proc/{pid}/cmdline").read_bytes() for pid in machine.pids).decode()
    (found,) = set(re.findall(r"/tmp/shoal-ray-\w+", commands))
    return Path(found)


def find_files_with(text: str, directory: Path) -> list[Path]:
    return [
        path
        for path in directory.rglob("*")
        if path.is_file() and not path.is_symlink() and text.encode() in path.read_bytes()
    ]
