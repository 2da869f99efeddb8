"""Settings with which every Ray process of a cluster runs."""

from __future__ import annotations

from importlib.util import find_spec

RAY_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # A machine that was killed is noticed after 3 seconds, one that was cut off after 9; Ray's own settings
    # take 15 and 65.
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "3",
    # Processes outlive the loss of the head: Ray's own setting ends them after a minute.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "86400",
    # Members have the priority of the program that joined the machine. With Ray's own setting, any other
    # load keeps them from answering in time.
    "RAY_worker_niceness": "0",
    # The system's own resolver. gRPC's asks the name servers for names that are in /etc/hosts too, and waits
    # for a minute if they do not answer.
    "GRPC_DNS_RESOLVER": "native",
}
RAY_NAMESPACE = "shoal"
INSTALL_RAY = "pip install 'shoal[ray,postgres]'"


def explain_missing_ray() -> str:
    """Return what to install if Ray is missing; empty if it is there."""
    if find_spec("ray") is not None:
        return ""
    return f"Ray is not installed. Install it: {INSTALL_RAY}"
