"""The manifests against the Kubernetes project's JSON schemas: unknown fields, types, what is required."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from .manifests import DEPLOYMENTS, DOCUMENTS

kubernetes_validate = pytest.importorskip(
    "kubernetes_validate", reason="no kubernetes-validate (22 MB): `nox -s deploy` installs it"
)
# `sleep` as a preStop hook begins with 1.30.
VERSIONS = ["1.30", "1.33", ".".join(kubernetes_validate.latest_version().split(".")[:2])]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "document", DOCUMENTS, ids=[f"{one['kind']}-{one['metadata']['name']}" for one in DOCUMENTS]
)
def test_the_schemas_accept(document: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(document, version, strict=True)


def _misspelt(document: Any) -> None:
    document["spec"]["template"]["spec"]["terminationGracePeriod"] = 30


def _mistyped(document: Any) -> None:
    document["spec"]["replicas"] = "three"


def _missing(document: Any) -> None:
    del document["spec"]["selector"]


@pytest.mark.parametrize("spoil", [_misspelt, _mistyped, _missing])
def test_the_schemas_refuse_what_is_wrong(spoil: Any) -> None:
    document = copy.deepcopy(DEPLOYMENTS["shop-host"])
    spoil(document)
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, VERSIONS[0], strict=True)
