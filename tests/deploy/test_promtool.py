"""promtool's own checks of the rules, and its tests of when each alert fires and when all are silent."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from .queries import PROMETHEUS, RULES

CASES: list[dict[str, Any]] = yaml.safe_load((PROMETHEUS / "rules_test.yaml").read_text())["tests"]


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("no promtool on the PATH (Debian: apt-get install prometheus)")
    return subprocess.run(
        [found, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60
    )


def test_the_rules_are_rules() -> None:
    done = promtool("check", "rules", "--lint-fatal", PROMETHEUS / "rules.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(RULES)} rules found" in done.stdout


def test_alerts_fire_when_they_should_and_only_then() -> None:
    done = promtool("test", "rules", PROMETHEUS / "rules_test.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_alert_that_is_wrong_is_found(tmp_path: Path) -> None:
    text = (PROMETHEUS / "rules.yaml").read_text()
    assert text.count("rck_shards_missing) > 0") == 1
    (tmp_path / "rules.yaml").write_text(text.replace("rck_shards_missing) > 0", "rck_shards_missing) > 7"))
    cases = shutil.copy(PROMETHEUS / "rules_test.yaml", tmp_path)
    done = promtool("test", "rules", cases)
    assert done.returncode != 0
    assert "RckShardsMissing" in done.stdout + done.stderr


def test_every_alert_is_seen_firing_and_with_its_severity() -> None:
    expected = "\n".join(
        sample["labels"]
        for case in CASES
        for test in case["promql_expr_test"]
        for sample in test.get("exp_samples", ())
    )
    for rule in RULES:
        text = f'alertname="{rule["alert"]}", alertstate="firing", severity="{rule["labels"]["severity"]}"'
        assert text in expected, f"no case of rules_test.yaml lets {rule['alert']} fire"


def test_the_scrape_configuration_is_one(tmp_path: Path) -> None:
    """All but the discovery of pods, which Debian's promtool is built without."""
    config = yaml.safe_load((PROMETHEUS / "scrape.yaml").read_text())
    (scrape,) = config["scrape_configs"]
    assert scrape.pop("kubernetes_sd_configs") == [{"role": "pod"}]
    scrape["static_configs"] = [{"targets": ["127.0.0.1:8000"]}]
    shutil.copy(PROMETHEUS / "rules.yaml", tmp_path)
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(config))
    done = promtool("check", "config", tmp_path / "prometheus.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert scrape["honor_labels"] is True, "the cluster's `namespace` must not become `exported_namespace`"
