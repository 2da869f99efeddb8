"""Program that talks to a Ray cluster for one session; it reads orders from standard input.

A separate process, because Ray ends the processes that are connected to a cluster whose head is lost.
Actors are detached: they outlive this program, and end when their connection to the lead is gone.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Mapping
from typing import Any

from shoal.backends.ray_actor import MemberHostActor
from shoal.backends.ray_settings import RAY_NAMESPACE
from shoal.core.agents.subagents import ResourceRequest

_ACTOR_PREFIX = "shoal-"
_WAIT_REPORTED_AFTER = 3.0
"""Seconds after which the lead is told that a teammate waits for a machine."""
_START_SECONDS = 15.0
"""Seconds in which a machine with free resources starts a process."""


class RayDriver:
    """`line` is a socket with one JSON object per line, both ways."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._write_lock = threading.Lock()
        self._actors: dict[str, Any] = {}

    def serve(self, address: str) -> None:
        try:
            connect_driver(address)
        except Exception as error:  # noqa: BLE001 - reported to the lead, which decides what to do
            self._send({"failed": shorten_error(error)})
            return
        self._send({"connected": True})
        for order in self._line.makefile("rb"):
            self._handle_order(json.loads(order))

    def _handle_order(self, order: Mapping[str, Any]) -> None:
        match order:
            case {"spawn": str(key)}:
                # Ray may need a while to place it, and other orders must not wait.
                threading.Thread(target=self._spawn_actor, args=(key, order), daemon=True).start()
            case {"kill": str(key)}:
                self._kill_actor(key)
            case {"list_nodes": int(number)}:
                threading.Thread(target=self._list_nodes, args=(number,), daemon=True).start()

    def _spawn_actor(self, key: str, order: Mapping[str, Any]) -> None:
        import ray

        try:
            if problem := explain_impossible_placement(ray.nodes(), order["resources"]):
                self._send({"ended": key, "why": problem})
                return
            was_short = not has_free_machine(order["resources"])
            options = build_actor_options(key, order["resources"], order.get("node"), order.get("member", ""))
            actor = ray.remote(MemberHostActor).options(**options).remote()
            self._actors[key] = actor
            placed = actor.__ray_ready__.remote()
            end = actor.run.remote(order["entry"], order["order"])
            end.future().add_done_callback(lambda done: self._report_end(key, done.exception()))
            self._report_wait(key, placed, order["resources"], was_short=was_short)
        except Exception as error:  # noqa: BLE001 - reported to the lead
            self._send({"ended": key, "why": shorten_error(error)})

    def _report_wait(self, key: str, placed: Any, resources: Mapping[str, Any], *, was_short: bool) -> None:
        """Tell the lead if a teammate waits for a machine, and not only for the start of its process."""
        import ray

        # Its own resources are taken as soon as its process is started, so a shortage now proves nothing.
        timeout = _WAIT_REPORTED_AFTER if was_short else _START_SECONDS
        is_placed = bool(ray.wait([placed], timeout=timeout)[0])
        if not is_placed and key in self._actors and not has_free_machine(resources):
            self._send({"waiting": key, "why": explain_wait(ray.nodes(), resources)})

    def _report_end(self, key: str, error: BaseException | None) -> None:
        self._actors.pop(key, None)
        self._send({"ended": key, "why": "" if error is None else shorten_error(error)})

    def _kill_actor(self, key: str) -> None:
        import ray

        if (actor := self._actors.pop(key, None)) is not None:
            ray.kill(actor, no_restart=True)

    def _list_nodes(self, number: int) -> None:
        import ray

        self._send({"nodes": number, "list": [describe_node(node) for node in ray.nodes()]})

    def _send(self, message: dict[str, Any]) -> None:
        with self._write_lock:
            try:
                self._line.sendall(json.dumps(message).encode() + b"\n")
            except OSError:
                os._exit(0)  # the lead is gone


def describe_node(node: Mapping[str, Any]) -> dict[str, Any]:
    resources = node.get("Resources") or {}
    labels = node.get("Labels") or {}
    return {
        "id": node["NodeID"],
        "address": node["NodeManagerAddress"],
        "hostname": node.get("NodeManagerHostname", ""),
        "is_alive": bool(node["Alive"]),
        "is_head": "node:__internal_head__" in resources,
        "cpus": resources.get("CPU", 0.0),
        "memory": int(resources.get("memory", 0)),
        "gpus": resources.get("GPU", 0.0),
        "labels": {name: value for name, value in labels.items() if not name.startswith("ray.io/")},
    }


def build_actor_options(
    key: str, resources: Mapping[str, Any], node: str | None, member: str = ""
) -> dict[str, Any]:
    """`member` is the member's id, by which `shoal cluster status` names it."""
    options: dict[str, Any] = {
        "name": f"{_ACTOR_PREFIX}{key}-{member}",
        "lifetime": "detached",
        "max_restarts": 0,
        "num_cpus": resources["cpus"],
        "scheduling_strategy": "SPREAD",
    }
    if resources["memory"]:
        options["memory"] = resources["memory"]
    if resources["gpus"]:
        options["num_gpus"] = resources["gpus"]
    if resources["labels"]:
        options["label_selector"] = dict(resources["labels"])
    if node is not None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node, soft=False)
    return options


def parse_member_name(actor: str) -> str:
    """Return the member's id in the name of its actor; empty if it has none."""
    return actor.removeprefix(_ACTOR_PREFIX).partition("-")[2]


def explain_impossible_placement(nodes: list[dict[str, Any]], resources: Mapping[str, Any]) -> str:
    """Return why no machine of the cluster could ever run this; empty if one could."""
    alive = [describe_node(node) for node in nodes if node["Alive"]]
    if any(_fits(node, resources) for node in alive):
        return ""
    return (
        f"no machine in the cluster has the requested resources ({describe_request(resources)}). List the "
        "machines: shoal cluster status"
    )


def has_free_machine(resources: Mapping[str, Any]) -> bool:
    """Return True if a machine has the resources free, as far as the head knows."""
    import ray
    from ray._private.state import available_resources_per_node

    free = available_resources_per_node()
    nodes = [describe_node({**node, "Resources": free.get(node["NodeID"], {})}) for node in ray.nodes()]
    return any(node["is_alive"] and _fits(node, resources) for node in nodes)


def explain_wait(nodes: list[dict[str, Any]], resources: Mapping[str, Any]) -> str:
    """Return what a teammate waits for that was not placed at once."""
    suitable = [
        node["address"] for node in map(describe_node, nodes) if node["is_alive"] and _fits(node, resources)
    ]
    return (
        f"it waits until a machine has {describe_request(resources)} free. Suitable machines: "
        f"{', '.join(suitable) or 'none'}"
    )


def describe_request(resources: Mapping[str, Any]) -> str:
    return str(ResourceRequest(**resources))


def _fits(node: Mapping[str, Any], resources: Mapping[str, Any]) -> bool:
    has_enough = all(node[name] >= resources[name] for name in ("cpus", "memory", "gpus"))
    return has_enough and all(
        node["labels"].get(name) == value for name, value in resources["labels"].items()
    )


def connect_driver(address: str) -> None:
    import ray

    ray.init(
        address=address,
        namespace=RAY_NAMESPACE,
        log_to_driver=False,
        logging_level="ERROR",
        ignore_reinit_error=True,
    )


def shorten_error(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    return " ".join(lines[:3])[:600] or type(error).__name__


def main() -> None:
    line = socket.socket(fileno=os.dup(0))
    RayDriver(line).serve(sys.argv[1])
    os._exit(0)  # the lead is gone; Ray's own end would wait for the cluster


if __name__ == "__main__":
    main()
