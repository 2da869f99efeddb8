"""Machines of a cluster, and what each of them needs to run teammates."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from shoal.app.settings.provider_credentials import ACCESS_VARIABLES, PROVIDER_KEYS
from shoal.app.settings.settings import Settings
from shoal.backends.ray_probe import read_cluster_nodes
from shoal.core.errors import SettingsError
from shoal.stores.store_choice import is_postgres_address

CHECK_ENTRY_POINT = "shoal.app.clusters.cluster_report:check_this_machine"
CONFIGURE_CLUSTER = (
    "No Ray cluster is configured. Specify its address in your own settings "
    '({"shoal": {"cluster": {"address": "HOST:PORT"}}}), or pass --address.'
)
_MAX_PORT = 65535
_INSTALLS = {"git": "install git", "rg": "install ripgrep"}


class ClusterMachine(Struct, frozen=True, kw_only=True):
    address: str
    hostname: str
    state: str
    """`alive` or `dead`."""
    is_head: bool
    cpus: float
    gpus: float
    memory: int
    labels: Mapping[str, str]
    members: tuple[str, ...]
    """Teammates that run there, as `NAME@TEAM`."""
    shoal: str = ""
    python: str = ""
    problems: tuple[str, ...] = ()
    """Problems of the machine, each with its fix."""


def choose_cluster_address(settings: Settings, address: str | None) -> str:
    """Return the address of the cluster to look at. Raises `SettingsError`."""
    chosen = address or settings.own.cluster.address
    if chosen is None:
        raise SettingsError(CONFIGURE_CLUSTER)
    return check_head_address(chosen)


def check_head_address(address: str) -> str:
    """Return the address if it has a host and a port. Raises `SettingsError`."""
    host, _, port = address.rpartition(":")
    if not host.strip("[]:") or not (port.isascii() and port.isdigit() and 0 < int(port) <= _MAX_PORT):
        raise SettingsError(
            f"{address!r} is not the address of a head. Use HOST:PORT, such as 192.0.2.10:6379."
        )
    return address


def list_cluster_machines(settings: Settings, address: str, *, check: bool) -> list[ClusterMachine]:
    """Return the machines, the head first; with `check`, each one reports what is missing.

    Raises `ProcessError` if the cluster cannot be reached from here.
    """
    store = settings.own.store or ""
    nodes = read_cluster_nodes(
        address,
        check=CHECK_ENTRY_POINT if check else "",
        argument=store if is_postgres_address(store) else "",
    )
    machines = [_build_machine(node) for node in nodes]
    return sorted(machines, key=lambda machine: (not machine.is_head, machine.state, machine.address))


def _build_machine(node: Mapping[str, Any]) -> ClusterMachine:
    check = node.get("check")
    return ClusterMachine(
        address=node["address"],
        hostname=node["hostname"],
        state="alive" if node["is_alive"] else "dead",
        is_head=node["is_head"],
        cpus=node["cpus"],
        gpus=node["gpus"],
        memory=node["memory"],
        labels=node["labels"],
        members=tuple(node["members"]),
        shoal="" if check is None else check.get("shoal", ""),
        python="" if check is None else check.get("python", ""),
        problems=() if check is None else tuple(_find_problems(check)),
    )


def _find_problems(check: Mapping[str, Any]) -> Iterator[str]:
    import shoal

    if problem := check.get("problem"):
        yield f"Shoal does not work on that machine ({problem}). Run there: pip install 'shoal[ray,postgres]'"
        return
    if check["shoal"] != shoal.__version__:
        yield f"Shoal {check['shoal']}, but this machine has {shoal.__version__}: install the same version"
    if check["python"] != _get_python_version():
        yield (
            f"Python {check['python']}, but this machine has {_get_python_version()}: "
            "Ray needs the same version of Python on all machines"
        )
    for program, advice in _INSTALLS.items():
        if program not in check["programs"]:
            yield f"no {program}: {advice}"
    if problem := check.get("sandbox"):
        yield (
            f"no sandbox ({problem}), so teammates with a checkout do not start: install bubblewrap and let "
            "it create namespaces, use a kernel with Landlock, or accept the weak guard "
            '({"shoal": {"worktree_guard": "weak"}} in the settings of that machine)'
        )
    if not check["keys"]:
        yield "no model key: run `shoal setup` there, or set a key before the machine joins the cluster"
    if store := check.get("store"):
        yield f"it cannot use the store: {store}"


def check_this_machine(store: str) -> dict[str, Any]:
    """Return what teammates find on this machine. Names of keys only, never their values."""
    import shoal
    from shoal.app.settings.settings import load_settings

    settings = load_settings(cwd=Path("/"))
    fields = [field for fields in PROVIDER_KEYS.values() for field in fields]
    keys = [ACCESS_VARIABLES[field] for field in fields if getattr(settings.access, field)]
    if settings.foreign.access.key_helper is not None:
        keys.append("apiKeyHelper")
    return {
        "shoal": shoal.__version__,
        "python": _get_python_version(),
        "programs": [program for program in _INSTALLS if shutil.which(program)],
        "sandbox": "" if settings.own.worktree_guard == "weak" else _find_sandbox_problem(settings),
        "keys": [*keys, *settings.stored],
        "store": _find_store_problem(store) if store else "",
    }


def _find_sandbox_problem(settings: Settings) -> str:
    """Return why no sandbox works here; empty if one does."""
    from shoal.backends.sandbox.sandbox_selection import detect_sandbox_driver, list_sandbox_drivers

    path = settings.environ.get("PATH", os.defpath)
    detected = detect_sandbox_driver(list_sandbox_drivers(path))
    return "" if detected.driver is not None else "; ".join(detected.problems) or "none for this system"


def _find_store_problem(store: str) -> str:
    from shoal.core.errors import ShoalError
    from shoal.stores.postgres.store_admin import read_store_status
    from shoal.stores.store_choice import check_postgres_extra

    try:
        check_postgres_extra()
        read_store_status(store)
    except (ShoalError, OSError) as error:
        return str(error)
    return ""


def _get_python_version() -> str:
    return ".".join(map(str, sys.version_info[:2]))
