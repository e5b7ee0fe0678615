"""The manifests of deploy/kubernetes as Python values: what is declared, by kind and name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "kubernetes"
KUSTOMIZATION: dict[str, Any] = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
DOCUMENTS: list[dict[str, Any]] = [
    document
    for name in KUSTOMIZATION["resources"]
    for document in yaml.safe_load_all((FOLDER / name).read_text())
]
SETTINGS: dict[str, str] = dict(
    literal.partition("=")[::2] for literal in KUSTOMIZATION["configMapGenerator"][0]["literals"]
)
SECRETS = {
    ("shop-redis", "url"): "rediss://user:secret@redis.stores:6379",
    ("shop-redis", "lease-nodes"): "rediss://a.stores:6379,rediss://b.stores:6379,rediss://c.stores:6379",
    ("shop-postgres", "url"): "postgresql+asyncpg://user:secret@postgres.stores/shop",
}
"""What the two Secrets hold, by name and key."""


def of_kind(kind: str) -> dict[str, dict[str, Any]]:
    """Every document of a kind, by its name."""
    return {one["metadata"]["name"]: one for one in DOCUMENTS if one["kind"] == kind}


DEPLOYMENTS = of_kind("Deployment")


def pod_of(deployment: str) -> dict[str, Any]:
    """The spec of a deployment's pods."""
    spec: dict[str, Any] = DEPLOYMENTS[deployment]["spec"]["template"]["spec"]
    return spec


def container_of(deployment: str) -> dict[str, Any]:
    """The one container of a deployment's pods."""
    (container,) = pod_of(deployment)["containers"]
    found: dict[str, Any] = container
    return found


def environment_of(deployment: str, secrets: dict[tuple[str, str], str] = SECRETS) -> dict[str, str]:
    """What the container's process sees; an optional secret that is not there sets nothing."""
    found: dict[str, str] = {}
    container = container_of(deployment)
    for source in container["envFrom"]:
        assert source == {"configMapRef": {"name": KUSTOMIZATION["configMapGenerator"][0]["name"]}}
        found |= SETTINGS
    for variable in container["env"]:
        if "value" in variable:
            assert isinstance(variable["value"], str), variable
            found[variable["name"]] = variable["value"]
            continue
        reference = variable["valueFrom"]["secretKeyRef"]
        value = secrets.get((reference["name"], reference["key"]))
        assert value is not None or reference.get("optional"), f"no secret for {variable['name']}"
        if value is not None:
            found[variable["name"]] = value
    return found


def ports_of(deployment: str) -> dict[str, int]:
    """The container's ports by name."""
    return {port["name"]: port["containerPort"] for port in container_of(deployment)["ports"]}


def selects(selector: dict[str, str], deployment: str) -> bool:
    """Whether a selector of labels meets a deployment's pods."""
    labels = DEPLOYMENTS[deployment]["spec"]["template"]["metadata"]["labels"]
    return selector.items() <= labels.items()


def variables_read() -> set[str]:
    """The variables that the example programs read by themselves."""
    sources = (ROOT / "examples" / "web").glob("*.py")
    return {
        name for path in sources for name in re.findall(r'environ(?:\.get\(|\[)"(\w+)"', path.read_text())
    }
