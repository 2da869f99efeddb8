"""Program that asks a Ray cluster about its machines, and prints the answer as JSON.

Usage: python -m shoal.backends.ray_probe id ADDRESS | nodes ADDRESS [CHECK]

CHECK is `module:function`, called on every machine; its result is a part of the answer.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from shoal.backends.backend_texts import format_backend_notice
from shoal.backends.ray_actor import MemberHostActor
from shoal.backends.ray_driver import connect_driver, describe_node, parse_member_name, shorten_error
from shoal.backends.ray_settings import RAY_ENVIRONMENT, explain_missing_ray
from shoal.core.errors import ProcessError

CHECK_TIMEOUT = 30.0
PROBE_TIMEOUT = 90.0
CONNECT_TIMEOUT = 5.0


def read_cluster_id(address: str) -> str:
    """Return the id of the cluster at an address; empty if no head answers."""
    try:
        _require_head(address)
        return str(_run_probe("id", address, timeout=20.0)["id"])
    except ProcessError:
        return ""


def read_cluster_nodes(address: str, *, check: str = "", argument: str = "") -> list[dict[str, Any]]:
    """Return the machines of a cluster, with the result of the check on each. Raises `ProcessError`."""
    _require_head(address)
    arguments = (check, argument) if check else ()
    nodes: list[dict[str, Any]] = _run_probe("nodes", address, *arguments, timeout=PROBE_TIMEOUT)["nodes"]
    return nodes


def _require_head(address: str) -> None:
    """Raise `ProcessError` at once if nothing listens at the address: Ray would try for a minute."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_TIMEOUT):
            return
    except (OSError, ValueError, OverflowError) as error:
        raise ProcessError(
            format_backend_notice("no_head", address=address, error=error, port=port or "PORT")
        ) from error


def require_local_node(address: str) -> None:
    """Raise `ProcessError` at once if no Ray runs on this machine: Ray would wait for a minute."""
    services: Any = importlib.import_module("ray._private.services")
    find_node_ids = getattr(services, "find_node_ids", None)  # older versions of Ray do not have it
    if find_node_ids is not None and not find_node_ids():
        raise ProcessError(format_backend_notice("not_in_cluster", address=address))


def _run_probe(*arguments: str, timeout: float) -> dict[str, Any]:
    if reason := explain_missing_ray():
        raise ProcessError(reason)
    path = os.pathsep.join(place for place in sys.path if Path(place).is_absolute())
    try:
        result = subprocess.run(
            [sys.executable, "-P", "-m", "shoal.backends.ray_probe"],
            env={**os.environ, **RAY_ENVIRONMENT, "PYTHONPATH": path},
            # Not on the command line, which all users see: the address of a store has its password.
            input=json.dumps(arguments).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=timeout,
            check=False,
        )
        answer: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        raise ProcessError(format_backend_notice("cluster_silent", seconds=f"{timeout:g}")) from None
    except (OSError, ValueError, IndexError) as error:
        raise ProcessError(format_backend_notice("cluster_query_failed", error=error)) from error
    if "failed" in answer:
        raise ProcessError(str(answer["failed"]))
    return answer


def main() -> None:
    try:
        answer = _answer(json.load(sys.stdin))
    except Exception as error:  # noqa: BLE001 - the answer of this program
        answer = {"failed": shorten_error(error)}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    os._exit(0)


def _answer(arguments: list[str]) -> dict[str, Any]:
    match arguments:
        case ["id", address]:
            return {"id": _read_id(address)}
        case ["nodes", address, *rest]:
            require_local_node(address)
            connect_driver(address)
            return {"nodes": _list_nodes(*rest)}
        case _:
            raise ValueError(f"unknown arguments {arguments}")


def _read_id(address: str) -> str:
    raylet: Any = importlib.import_module("ray._raylet")
    return str(raylet.GcsClient(address=address).cluster_id.hex())


def _list_nodes(check: str = "", argument: str = "") -> list[dict[str, Any]]:
    import ray

    nodes = [describe_node(node) for node in ray.nodes()]
    members = _list_members()
    results = (
        _check_nodes([node["id"] for node in nodes if node["is_alive"]], check, argument) if check else {}
    )
    for node in nodes:
        node["members"] = sorted(members.get(node["id"], ()))
        node["check"] = results.get(node["id"])
    return nodes


def _list_members() -> dict[str, list[str]]:
    """Return the ids of the members with a living process, by machine."""
    import ray._private.state

    members: dict[str, list[str]] = {}
    for actor in ray._private.state.actors().values():
        if actor["ActorClassName"] == MemberHostActor.__name__ and actor["State"] == "ALIVE":
            members.setdefault(actor["Address"]["NodeID"], []).append(parse_member_name(actor["Name"]))
    return members


def _check_nodes(nodes: list[str], check: str, argument: str) -> dict[str, Any]:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task = ray.remote(call_check)
    references = {
        task.options(
            num_cpus=0, max_retries=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)
        ).remote(check, argument): node
        for node in nodes
    }
    done, _ = ray.wait(list(references), num_returns=len(references), timeout=CHECK_TIMEOUT)
    results: dict[str, Any] = {node: {"problem": "it did not answer"} for node in nodes}
    for reference in done:
        try:
            results[references[reference]] = ray.get(reference)
        except Exception as error:  # noqa: BLE001 - a machine without Shoal fails here
            results[references[reference]] = {"problem": shorten_error(error)}
    return results


def call_check(check: str, argument: str) -> Any:
    module, _, function = check.partition(":")
    return getattr(importlib.import_module(module), function)(argument)


if __name__ == "__main__":
    main()
