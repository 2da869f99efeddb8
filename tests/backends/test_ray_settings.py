"""Settings with which Ray runs are the same in the manifest for Kubernetes of the documentation."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent

import yaml

from shoal.backends.ray_settings import RAY_ENVIRONMENT

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "run-on-several-machines.md"


def test_the_manifest_for_kubernetes_sets_the_variables_of_the_cluster_commands() -> None:
    blocks = re.findall(r"^( *)```yaml\n(.*?)^\1```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    documents = [yaml.safe_load(dedent(text)) for _, text in blocks]
    (cluster,) = [each for each in documents if each.get("kind") == "RayCluster"]
    head, (members,) = cluster["spec"]["headGroupSpec"], cluster["spec"]["workerGroupSpecs"]
    for group in (head, members):
        (container,) = group["template"]["spec"]["containers"]
        assert {each["name"]: each["value"] for each in container["env"]} == RAY_ENVIRONMENT
        assert container["envFrom"] == [{"secretRef": {"name": "shoal"}}]
    # The lead's settings name the service that KubeRay creates for the head.
    assert f"`{cluster['metadata']['name']}-head-svc:6379`" in PAGE.read_text()
