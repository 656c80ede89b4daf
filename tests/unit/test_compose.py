"""`docker-compose.yml` and its override, without a Docker engine."""

from __future__ import annotations

import json
import re
import stat
import subprocess
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
import yaml

from batchjobs.cli import cli
from batchjobs.settings import ENV_PREFIX, Settings
from tests.support import compose
from tests.support.compose import ROOT

BASE = "docker-compose.yml"
GPU = "docker-compose.gpu.yml"
SCHEMA = ROOT / "tests/support/compose_spec/compose-spec.json"
SECRETS = {
    "POSTGRES_PASSWORD",
    "VALKEY_PASSWORD",
    "S3_ACCESS_KEY",
    "S3_SECRET_KEY",
    "METRICS_TOKEN",
}
OURS = {"migrate", "api", "worker", "beat"}
ONE_SHOT = {"migrate"}
STOP_SECONDS = 25
"""The longest that a process of ours may take to stop well."""


def schema() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))


def read(*names: str) -> dict[str, Any]:
    return compose.read(*names or (BASE,), variables={name: f"<{name}>" for name in SECRETS})


def services() -> dict[str, Any]:
    found: dict[str, Any] = read()["services"]
    return found


@pytest.mark.parametrize("names", [(BASE,), (GPU,), (BASE, GPU)])
def test_the_file_is_a_compose_file(names: tuple[str, ...]) -> None:
    schema().validate(read(*names))


def test_the_schema_refuses_what_is_no_compose_file() -> None:
    wrong = read()
    wrong["services"]["api"]["healthchek"] = {}
    with pytest.raises(jsonschema.ValidationError, match="healthchek"):
        schema().validate(wrong)


def test_all_parts_are_there() -> None:
    assert set(services()) == {"postgres", "valkey", "s3"} | OURS


@pytest.mark.parametrize("name", sorted({"postgres", "valkey", "s3"}))
def test_an_image_of_others_is_pinned_to_a_version(name: str) -> None:
    assert re.fullmatch(r"[\w/]+:\d+\.\d+[\w.-]*", services()[name]["image"])


@pytest.mark.parametrize("name", sorted(OURS))
def test_our_image_is_built_here(name: str) -> None:
    service = services()[name]
    assert service["image"] == "batchjobs:local"
    assert service["build"]["context"] == "."


@pytest.mark.parametrize("name", sorted({"postgres", "valkey", "s3", *OURS} - ONE_SHOT))
def test_a_service_that_stays_is_restarted_and_looked_at(name: str) -> None:
    service = services()[name]
    assert service["restart"] == "unless-stopped"
    check = service["healthcheck"]
    if name == "beat":
        assert check == {"disable": True}
    else:
        assert check["test"][0] in {"CMD", "CMD-SHELL"}
        assert {"interval", "timeout", "retries"} <= set(check)


def test_nothing_is_waited_for_that_cannot_come() -> None:
    found = services()
    for service in found.values():
        for name, wanted in service.get("depends_on", {}).items():
            if wanted["condition"] == "service_completed_successfully":
                assert name in ONE_SHOT
            else:
                assert wanted["condition"] == "service_healthy"
                assert not found[name]["healthcheck"].get("disable")


@pytest.mark.parametrize("name", sorted(OURS - ONE_SHOT))
def test_a_process_of_ours_has_time_to_stop_well(name: str) -> None:
    service = services()[name]
    assert int(service["stop_grace_period"].removesuffix("s")) > STOP_SECONDS
    assert service["init"] is True


def test_only_the_api_is_published_and_on_this_host_alone() -> None:
    published = {name: each["ports"] for name, each in services().items() if "ports" in each}
    assert published == {"api": ["127.0.0.1:8000:8000"]}


def test_secrets_are_required_and_none_is_written_down() -> None:
    text = (ROOT / BASE).read_text()
    assert compose.required_variables(text) == SECRETS
    for name in SECRETS:
        assert f"${{{name}:-" not in text
        with pytest.raises(KeyError, match=name):
            compose.read(BASE, variables=dict.fromkeys(SECRETS - {name}, "x"))
    given = [
        value
        for service in services().values()
        for key, value in service.get("environment", {}).items()
        if re.search("PASSWORD|KEY|AUTH|SECRET|TOKEN", key)
    ]
    assert len(given) >= 8
    assert set(given) <= {f"<{name}>" for name in SECRETS}


def test_urls_hold_no_password_of_their_own() -> None:
    found = [string for string in compose.strings(read()) if re.search(r"//[^/]*:[^/]*@", string)]
    assert found
    assert all(re.search(r":<\w+>@", string) for string in found)


@pytest.mark.parametrize("names", [(BASE,), (BASE, GPU)])
def test_every_setting_is_one(names: tuple[str, ...]) -> None:
    known = {f"{ENV_PREFIX}{name}".upper() for name in Settings.model_fields}
    given = {
        name
        for service in read(*names)["services"].values()
        for name in service.get("environment", {})
        if name.startswith(ENV_PREFIX)
    }
    assert given
    assert given <= known


@pytest.mark.parametrize("name", sorted(OURS))
def test_every_command_and_option_is_one(name: str) -> None:
    words = [str(word) for word in services()[name]["command"]]
    command: click.Command = cli
    while isinstance(command, click.Group):
        word = words.pop(0)
        assert word in command.commands, f"batchjobs has no command {word!r}"
        command = command.commands[word]
    with command.make_context(command.name, words):
        pass


def test_volumes_are_those_that_are_declared() -> None:
    used = {
        volume.partition(":")[0]
        for service in services().values()
        for volume in service.get("volumes", [])
    }
    assert used == set(read()["volumes"])


def test_the_override_gives_the_worker_a_gpu_and_a_cuda_build() -> None:
    worker = read(BASE, GPU)["services"]["worker"]
    [device] = worker["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["device_ids"]) == ("nvidia", ["0"])
    assert "/cu" in worker["build"]["args"]["TORCH_INDEX_URL"]
    assert "/cpu" in services()["worker"]["build"]["args"]["TORCH_INDEX_URL"]
    assert worker["image"] != services()["api"]["image"]


def compose_env(directory: Path) -> subprocess.CompletedProcess[str]:
    command = [ROOT / "scripts/compose-env", directory]
    return subprocess.run(command, capture_output=True, text=True)


def read_env(path: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in path.read_text().splitlines())


def test_compose_env_makes_up_every_secret_for_its_owner_alone(tmp_path: Path) -> None:
    made = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        assert compose_env(tmp_path / name).returncode == 0
        path = tmp_path / name / ".env"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        made.append(read_env(path))
    assert set(made[0]) == set(made[1]) == SECRETS
    values = [value for each in made for value in each.values()]
    assert len(set(values)) == len(values)
    assert all(re.fullmatch(r"[0-9a-f]{20,}", value) for value in values)


def test_compose_env_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("POSTGRES_PASSWORD=mine\n")
    refused = compose_env(tmp_path)
    assert refused.returncode == 1
    assert ".env exists already" in refused.stderr
    assert read_env(tmp_path / ".env") == {"POSTGRES_PASSWORD": "mine"}


def test_secrets_are_not_committed() -> None:
    assert ".env" in (ROOT / ".gitignore").read_text().splitlines()


def test_the_second_gpu_of_the_documents_is_another_of_the_same_kind() -> None:
    [block] = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/deploy.md").read_text(), re.DOTALL)
    documented = yaml.safe_load(block)
    schema().validate(documented)
    second, first = documented["services"]["worker-1"], compose.read_raw(GPU)["services"]["worker"]
    assert second["image"] == first["image"]
    assert second["build"] == read(GPU)["services"]["worker"]["build"]
    assert second["environment"] == first["environment"]
    [device] = second["deploy"]["resources"]["reservations"]["devices"]
    assert device["device_ids"] == ["1"]
