"""The compose files, as Docker Compose itself reads them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import ROOT
from tests.docker.container import DOCKER, ENTRY, dockerfile_variables

COMPOSE = Path(sys.executable).with_name("docker-compose")  # of a package: it needs no engine here
FILES = {
    "one": ["compose.yaml"],
    "gpu": ["compose.yaml", "compose.gpu.yaml"],
    "bi": ["compose.yaml", "compose.bi.yaml"],
    "citus": ["compose.citus.yaml"],
}


def resolved(*files: str | Path) -> dict[str, Any]:
    """Return what Docker Compose makes of some files of docker/."""
    options = [text for file in files for text in ("--file", str(DOCKER / file))]
    command = [
        str(COMPOSE),
        "--project-directory",
        str(DOCKER),
        *options,
        "config",
        "--format",
        "json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"})
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "it warns of a variable without a value, or of what it does not know"
    return dict(json.loads(done.stdout))


@pytest.fixture(scope="module", params=list(FILES))
def project(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return each project in turn."""
    return resolved(*FILES[request.param])


def services(project: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the definition of each service."""
    yield from project["services"].items()


def test_every_image_has_a_version(project: dict[str, Any]) -> None:
    for name, service in services(project):
        bases = service.get("build", {}).get("args", {}).get("BASE", service["image"])
        for image in (service["image"], bases):
            assert re.search(r":[\w.-]*\d", image) and not image.endswith(":latest"), name


def test_mmdb_s_images_carry_its_version(project: dict[str, Any]) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    ours = [s["image"] for _, s in services(project) if s["image"].startswith("mmdb:")]
    assert ours and all(image.startswith(f"mmdb:{version}-") for image in ours)


def test_no_container_may_do_more_than_it_needs(project: dict[str, Any]) -> None:
    for name, service in services(project):
        assert service["read_only"] and service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        limits = service["deploy"]["resources"]["limits"]
        assert {"cpus", "memory", "pids"} <= set(limits), name
        assert service["restart"] != "always", name


def test_no_password_stands_in_a_file(project: dict[str, Any]) -> None:
    for _, service in services(project):
        for name, value in service["environment"].items():
            if name.endswith("_FILE"):
                assert value.removeprefix("/run/secrets/") in sources(service)
            elif name == "LOGINS":
                files = [login.split("=")[1] for login in value.split()]
                assert {file.removeprefix("/run/secrets/") for file in files} <= sources(service)
            else:
                assert not re.search("PASSWORD|SECRET|KEY", name), name


def sources(service: dict[str, Any]) -> set[str]:
    """Return the names of a service's secrets."""
    return {secret["source"] for secret in service["secrets"]}


def test_every_secret_is_made_by_the_script(project: dict[str, Any]) -> None:
    made = re.search(r"for name in (.*); do", (DOCKER / "secrets.sh").read_text())
    assert made and set(project["secrets"]) <= set(made[1].split())


def test_what_is_kept_lies_in_a_volume_of_its_own(project: dict[str, Any]) -> None:
    volumes = [v["source"] for _, s in services(project) for v in s.get("volumes", [])]
    assert volumes and len(volumes) == len(set(volumes)) == len(project["volumes"])


def test_ports_are_open_to_this_machine_alone(project: dict[str, Any]) -> None:
    ports = [port for _, service in services(project) for port in service.get("ports", [])]
    assert ports and {port["host_ip"] for port in ports} == {"127.0.0.1"}


def test_one_shot_services_wait_for_health_and_end(project: dict[str, Any]) -> None:
    install = project["services"]["install"]
    servers = {n for n, s in services(project) if (s.get("command") or [""])[0] == "serve.sh"}
    waits = {n for n, d in install["depends_on"].items() if d["condition"] == "service_healthy"}
    assert waits == servers and install["restart"].startswith("on-failure")


def test_a_gpu_is_asked_for_and_torch_is_a_cuda_build() -> None:
    db = resolved(*FILES["gpu"])["services"]["db"]
    (device,) = db["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["capabilities"]) == ("nvidia", ["gpu"])
    assert db["build"]["args"]["TORCH"] == "cuda"


@pytest.mark.parametrize("count", [2, 5])
def test_a_cluster_has_as_many_nodes_as_asked_for(count: int, tmp_path: Path) -> None:
    more = tmp_path / "compose.nodes.yaml"
    command = [str(DOCKER / "nodes.sh"), str(count)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    more.write_text(printed.replace("file: compose", f"file: {DOCKER}/compose"))
    project = resolved("compose.citus.yaml", more)
    nodes = [f"node-{number}" for number in range(1, count + 1)]
    assert sorted(n for n in project["services"] if n.startswith("node-")) == nodes
    assert project["services"]["install"]["environment"]["NODES"].split() == nodes
    assert set(nodes) < set(project["services"]["install"]["depends_on"])
    kept = [project["services"][node]["volumes"][0]["source"] for node in nodes]
    assert kept == nodes


@pytest.mark.parametrize("count", ["two", "1", "0", "-2", "02"])
def test_a_number_of_nodes_that_is_none_is_refused(count: str) -> None:
    done = subprocess.run([DOCKER / "nodes.sh", count], capture_output=True, text=True)
    assert done.returncode == 2 and "number of nodes" in done.stderr


def test_every_step_of_the_dockerfiles_is_a_script_of_the_folder() -> None:
    text = (DOCKER / "Dockerfile").read_text()
    for step in re.findall(r"^RUN ((?:.*\\\n)*.*)", text, re.MULTILINE):
        command = re.sub(r"--mount=\S+|\\\n", "", step).split()[0]
        assert (DOCKER / Path(command).name).is_file(), step
    for part in re.findall(r'"([\w-]+\.sh)"', text):
        assert (ENTRY / part).is_file()


@pytest.mark.parametrize("dockerfile", ["Dockerfile", "superset/Dockerfile"])
def test_what_is_copied_goes_to_the_builder(dockerfile: str) -> None:
    let_through = re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    copies = re.findall(
        r"^COPY (?!--from)(.+) \S+$", (DOCKER / dockerfile).read_text(), re.MULTILINE
    )
    copied = [Path(source) for sources in copies for source in sources.split()]
    assert (
        copied
        and [
            path
            for path in copied
            if not (ROOT / path).exists()
            or not any(path.is_relative_to(root) for root in let_through)
        ]
        == []
    )


def test_the_image_sets_every_variable_that_its_scripts_need() -> None:
    """But for those that a compose file gives; `set -u` ends a script that lacks one."""
    given = {
        n
        for files in FILES.values()
        for _, s in services(resolved(*files))
        for n in s["environment"]
    }
    known = set(dockerfile_variables(DOCKER / "Dockerfile")) | given | {"PGUSER"}
    for script in ENTRY.glob("*.sh"):
        used = set(re.findall(r"\$\{?([A-Z][A-Z_]+)", script.read_text()))
        assert used <= known, script.name
