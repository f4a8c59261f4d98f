"""A container of an image as an orchestrator runs it: runc, the image's own configuration, namespaces
of its own, a root that cannot be written, no capability, no new privileges, a seccomp filter."""
import json
import pathlib
import subprocess
import uuid

START_SECONDS = 60
STOP_SECONDS = 120
# Of containers-common, in the format that container engines read.
SECCOMP = pathlib.Path("/usr/share/containers/seccomp.json")


def seccomp_filter():
    """The engines' default filter for a process without capabilities."""
    profile = json.loads(SECCOMP.read_text(encoding="utf-8"))
    allowed = [rule for rule in profile["syscalls"]
               if not rule.get("includes", {}).get("caps")
               and "amd64" in rule.get("includes", {}).get("arches", ["amd64"])]
    kept = ("names", "action", "args", "errnoRet")
    return {
        "defaultAction": profile["defaultAction"],
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
        "syscalls": [{name: rule[name] for name in kept if rule.get(name) is not None}
                     for rule in allowed],
    }


def tmpfs(destination, *options):
    return {"destination": destination, "type": "tmpfs", "source": "tmpfs",
            "options": ["nosuid", *options]}


def runtime_config(root, image, arguments, mounts):
    user, group = (int(number) for number in image["User"].split(":"))
    none = {kind: [] for kind in ("bounding", "effective", "inheritable", "permitted", "ambient")}
    return {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "user": {"uid": user, "gid": group},
            "args": image["Entrypoint"] + (image["Cmd"] if arguments is None else arguments),
            "env": image["Env"],
            "cwd": image["WorkingDir"] or "/",
            "capabilities": none,
            "noNewPrivileges": True,
        },
        "root": {"path": str(root), "readonly": True},
        "hostname": "rlk",
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            tmpfs("/dev", "mode=755"),
            {"destination": "/sys", "type": "sysfs", "source": "sysfs",
             "options": ["nosuid", "noexec", "nodev", "ro"]},
            *mounts,
        ],
        "linux": {
            "namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts", "network")],
            "seccomp": seccomp_filter(),
            "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys"],
        },
    }


class Container:
    """Runs until its program ends; `with` makes sure that it does."""

    def __init__(self, work, root, image, arguments=None, mounts=()):
        self.name = f"rlk-{uuid.uuid4().hex[:12]}"
        self.runc = ["runc", "--root", str(work / "runc")]
        bundle = work / self.name
        bundle.mkdir()
        config = runtime_config(root, image, arguments, mounts)
        (bundle / "config.json").write_text(json.dumps(config), encoding="utf-8")
        self.log = bundle / "log"
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [*self.runc, "run", "--bundle", str(bundle), self.name],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True)
        line = self.process.stdout.readline()
        if not line:
            self.process.wait(START_SECONDS)
            raise AssertionError(f"the container did not start: {self.log.read_text()[-2000:]}")
        self.addresses = json.loads(line)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.kill("KILL")
            self.process.wait(STOP_SECONDS)
        self.process.stdout.close()
        subprocess.run([*self.runc, "delete", "--force", self.name], check=False,
                       stderr=subprocess.DEVNULL)

    def exec(self, *command):
        """A command in the container, as the same user, with the same filter."""
        return subprocess.run([*self.runc, "exec", self.name, *command], text=True, check=False,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=120)

    def pids(self):
        """Of all its processes, as this host numbers them."""
        listing = subprocess.run([*self.runc, "ps", "--format", "json", self.name], check=True,
                                 text=True, capture_output=True).stdout
        return json.loads(listing)

    def kill(self, signal):
        subprocess.run([*self.runc, "kill", self.name, signal], check=True)

    def wait(self):
        return self.process.wait(STOP_SECONDS)
