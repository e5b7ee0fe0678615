"""The manifests fit the code they run: variables, ports, probes and times, and each other."""

from __future__ import annotations

import shutil
import subprocess
from datetime import timedelta
from typing import Any

import pytest
import yaml
from uvicorn.main import main as uvicorn_command

from redis_cluster_kit import Settings
from redis_cluster_kit.asgi import _ANSWER_WITHIN
from redis_cluster_kit.ownership.rebalancing import _LEAVE_TIMEOUT

from .manifests import (
    DEPLOYMENTS,
    DOCUMENTS,
    FOLDER,
    KUSTOMIZATION,
    SECRETS,
    SETTINGS,
    container_of,
    environment_of,
    of_kind,
    pod_of,
    ports_of,
    selects,
    variables_read,
)

EACH = pytest.mark.parametrize("deployment", ["shop-host", "shop-web"])
PROBES = {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
UVICORN = {f"UVICORN_{option.name}".upper() for option in uvicorn_command.params}
PYTHON = {"PYTHONDONTWRITEBYTECODE"}


def settings_of(deployment: str) -> Settings:
    return Settings.from_env(environment_of(deployment))


def seconds(span: timedelta) -> float:
    return span.total_seconds()


def test_every_file_is_listed_and_nothing_comes_twice() -> None:
    files = {path.name for path in FOLDER.glob("*.yaml")} - {"kustomization.yaml"}
    assert files == set(KUSTOMIZATION["resources"])
    named = [(one["kind"], one["metadata"]["name"]) for one in DOCUMENTS]
    assert len(named) == len(set(named)) >= 9
    assert set(DEPLOYMENTS) == {"shop-host", "shop-web"}
    assert set(of_kind("Namespace")) == {KUSTOMIZATION["namespace"]}
    assert all("namespace" not in one["metadata"] for one in DOCUMENTS), "kustomize sets it"


def test_kubectl_builds_it() -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("no kubectl on the PATH (Debian: apt-get install kubernetes-client)")
    done = subprocess.run([kubectl, "kustomize", str(FOLDER)], capture_output=True, text=True, check=True)
    built = list(yaml.safe_load_all(done.stdout))
    (settings,) = (one for one in built if one["kind"] == "ConfigMap")
    assert settings["data"] == SETTINGS
    for one in built:
        if one["kind"] == "Deployment":
            (container,) = one["spec"]["template"]["spec"]["containers"]
            assert container["image"] == "registry.example.com/shop:1.0"
            assert container["envFrom"] == [{"configMapRef": {"name": settings["metadata"]["name"]}}]
    assert settings["metadata"]["name"].startswith("shop-settings-"), "a changed setting rolls the pods"
    assert len(built) == len(DOCUMENTS) + 1


# --- Variables ---


@EACH
def test_every_variable_is_read_by_somebody(deployment: str) -> None:
    names = set(environment_of(deployment))
    unread = {name for name in names - variables_read() - PYTHON if not name.startswith(("RCK_", "UVICORN_"))}
    assert unread == set()
    assert {name for name in names if name.startswith("UVICORN_")} <= UVICORN
    assert settings_of(deployment) != Settings(), "what is set is taken: a misspelt variable is refused"
    with pytest.raises(ValueError, match="did you mean RCK_LEASE_TTL"):
        Settings.from_env({**environment_of(deployment), "RCK_LEASE_TLL": "5s"})


def test_credentials_come_from_secrets_and_the_same_for_everybody() -> None:
    stores = {"SHOP_REDIS", "SHOP_DATABASE", "RCK_LEASE_NODES"}
    for deployment in DEPLOYMENTS:
        by_name = {variable["name"]: variable for variable in container_of(deployment)["env"]}
        assert all("valueFrom" in by_name[name] for name in stores)
    assert settings_of("shop-host") == settings_of("shop-web")
    assert environment_of("shop-host")["SHOP_REDIS"] == environment_of("shop-web")["SHOP_REDIS"]
    without = {place: value for place, value in SECRETS.items() if place[1] == "url"}
    assert "RCK_LEASE_NODES" not in environment_of("shop-host", without), "it may be left out"
    for path in FOLDER.glob("*.yaml"):
        assert "://" not in path.read_text(), "a URL may hold a password"


# --- Ports and probes ---


@EACH
def test_ports_are_those_the_program_listens_on(deployment: str) -> None:
    variable = {"shop-host": ("probes", "PROBES_PORT"), "shop-web": ("http", "UVICORN_PORT")}
    name, number = variable[deployment]
    assert ports_of(deployment) == {name: int(environment_of(deployment)[number])}


@EACH
def test_probes_ask_what_they_should(deployment: str) -> None:
    container = container_of(deployment)
    mounted = {"shop-host": "", "shop-web": "/internal"}[deployment]
    for probe, path in PROBES.items():
        asked = container[probe]["httpGet"]
        assert asked == {"path": f"{mounted}{path}", "port": next(iter(ports_of(deployment)))}


@EACH
def test_probes_wait_long_enough_and_not_too_long(deployment: str) -> None:
    health = settings_of(deployment).health
    container = container_of(deployment)
    for probe in PROBES:
        assert container[probe]["timeoutSeconds"] > _ANSWER_WITHIN, "an answer says more than a timeout"
    ready, live, started = (container[f"{name}Probe"] for name in ("readiness", "liveness", "startup"))
    patience = ready["periodSeconds"] * ready["failureThreshold"]
    assert patience <= seconds(health.stall_memory), "a stall that is over is still seen"
    patience = live["periodSeconds"] * live["failureThreshold"]
    assert patience >= seconds(health.loop_dead), "nobody is killed before the loop counts as dead"
    assert started["periodSeconds"] * started["failureThreshold"] >= 60


# --- Leaving ---


def test_a_host_has_time_to_give_its_shards_away() -> None:
    settings = settings_of("shop-host")
    budget, ttl = seconds(settings.drain.budget), seconds(settings.lease.ttl)
    longest = 2 * _LEAVE_TIMEOUT + budget + ttl
    assert "lifecycle" not in container_of("shop-host")
    assert pod_of("shop-host")["terminationGracePeriodSeconds"] >= longest + 5


def test_a_front_end_has_time_to_answer() -> None:
    pause = container_of("shop-web")["lifecycle"]["preStop"]["sleep"]["seconds"]
    answering = int(environment_of("shop-web")["UVICORN_TIMEOUT_GRACEFUL_SHUTDOWN"])
    asked = seconds(settings_of("shop-web").entities.ask_timeout)
    assert answering > asked, "a call that was begun may end"
    longest = pause + answering + seconds(settings_of("shop-web").drain.budget)
    assert pod_of("shop-web")["terminationGracePeriodSeconds"] >= longest + 5


@EACH
def test_a_roll_out_takes_nobody_away_before_another_is_there(deployment: str) -> None:
    spec = DEPLOYMENTS[deployment]["spec"]
    assert spec["replicas"] >= 2
    assert spec["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1},
    }
    (budget,) = (
        one["spec"]
        for one in of_kind("PodDisruptionBudget").values()
        if selects(one["spec"]["selector"]["matchLabels"], deployment)
    )
    assert budget["maxUnavailable"] == 1
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    keys = {one["topologyKey"] for one in pod_of(deployment)["topologySpreadConstraints"]}
    assert keys == {"topology.kubernetes.io/zone", "kubernetes.io/hostname"}
    for one in pod_of(deployment)["topologySpreadConstraints"]:
        assert selects(one["labelSelector"]["matchLabels"], deployment)


# --- Who may what ---


@EACH
def test_pods_fit_the_restricted_profile(deployment: str) -> None:
    (namespace,) = of_kind("Namespace").values()
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    pod, container = pod_of(deployment), container_of(deployment)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert set(container["resources"]["requests"]) == {"cpu", "memory"}
    assert set(container["resources"]["limits"]) == {"memory"}, "a CPU limit throttles the event loop"


def rules_for(deployment: str, way: str) -> list[dict[str, Any]]:
    return [
        rule
        for policy in of_kind("NetworkPolicy").values()
        if selects(policy["spec"]["podSelector"]["matchLabels"], deployment)
        and [way] == policy["spec"]["policyTypes"]
        for rule in policy["spec"][way.lower()]
    ]


@EACH
def test_the_network_is_closed_but_for_what_is_needed(deployment: str) -> None:
    coming, going = rules_for(deployment, "Ingress"), rules_for(deployment, "Egress")
    assert {port["port"] for rule in coming for port in rule["ports"]} == set(ports_of(deployment))
    assert {port["port"] for rule in going for port in rule["ports"]} == {53, 6379, 5432}
    assert all(rule.get("from") or rule.get("to") for rule in coming + going), "nobody is let in unnamed"


def test_the_service_leads_to_the_front_end() -> None:
    (service,) = of_kind("Service").values()
    assert selects(service["spec"]["selector"], "shop-web")
    assert not selects(service["spec"]["selector"], "shop-host")
    assert [port["targetPort"] for port in service["spec"]["ports"]] == list(ports_of("shop-web"))


def test_selectors_are_the_labels() -> None:
    for deployment in DEPLOYMENTS.values():
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        assert deployment["spec"]["selector"]["matchLabels"] == labels == deployment["metadata"]["labels"]
