"""A cluster that the tests of one module share."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from postgres_server import get_shared_server
from ray_machines import RayMachines

_database_numbers = count()


@pytest.fixture
def cluster_database() -> str:
    """Address of a new database: the lease of this process in an emptied one would be gone."""
    return get_shared_server().create_empty_database(f"cluster{next(_database_numbers)}")


@pytest.fixture(scope="module")
def machines() -> Iterator[RayMachines]:
    with TemporaryDirectory(prefix="r-", dir="/tmp") as directory:
        machines = RayMachines(Path(directory), 2)
        try:
            machines.start()
            yield machines
        finally:
            machines.stop()
