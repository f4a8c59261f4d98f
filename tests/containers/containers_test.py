#!/usr/bin/env python3
"""Builds the image of the Dockerfile for real, and runs it as an orchestrator does.

buildah builds with chroot isolation, on a base that debootstrap makes of this host's distribution;
runc runs what was built. Needs root, and no registry of images. Writes JUnit for tests/run.sh;
where images cannot be built, its one test is skipped with the reason.

Usage: containers_test.py --work FOLDER --junit FILE. The folder keeps images for later runs.
"""
import argparse
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import sys
from xml.sax.saxutils import quoteattr

from base_image import Skip, base_image, output
from container import Container, tmpfs

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD_SECONDS = 1500
# Names of programs that make programs, whatever their version or target.
COMPILER = re.compile(r"^(.*-)?(cc|cc1|cc1plus|gcc|g\+\+|c\+\+|cpp|clang|clang\+\+|ld|as|ar|nvcc|"
                      r"make|cmake|ninja|protoc|python3?|collect2|ptxas|cicc)(-?[0-9.]+)?$")
TOOLCHAIN = re.compile(r"^((gcc|g\+\+|cpp|clang)(-[0-9]+)?$|binutils|build-essential|cmake|"
                       r"ninja-build|ccache|protobuf-compiler|python3)|.*-dev$")
SOURCE = re.compile(r"\.(cc|cpp|c|h|hpp|cu|cuh|proto|py|cmake|o|a)$")
NO_NETWORK = re.compile(r"Temporary failure resolving|Could not resolve|Could not connect to|"
                        r"E: Failed to fetch|E: Unable to fetch")
FORWARD = ["call", "final_logit_softcap.forward", "x=random:4x1000:bf16:1:30", "softcap=20",
           "--verify", "reference", "--repeat", "2"]


def need(condition, text):
    if not condition:
        raise AssertionError(text)


def project_version():
    text = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    return re.search(r"^project\(rlk VERSION (\S+)", text, re.MULTILINE).group(1)


def source_commit():
    done = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], text=True, check=False,
                          capture_output=True)
    return done.stdout.strip() or None


class Images:
    """What is built, and where it is mounted."""

    def __init__(self, work):
        self.work = work
        self.base = None
        self.config = None
        self.root = None
        self.stack = contextlib.ExitStack()

    def require(self):
        """Raises Skip where images cannot be built or run."""
        if os.geteuid() != 0:
            raise Skip("it takes root")
        for program in ("buildah", "debootstrap", "runc"):
            if shutil.which(program) is None:
                raise Skip(f"{program} is not installed")
        self.work.mkdir(parents=True, exist_ok=True)
        (self.work / "tmp").mkdir(exist_ok=True)
        os.environ["TMPDIR"] = str(self.work / "tmp")
        os.environ["CONTAINERS_STORAGE_CONF"] = str(self.work / "storage.conf")
        for driver in ("overlay", "vfs"):
            (self.work / "storage.conf").write_text(
                f'[storage]\ndriver = "{driver}"\ngraphroot = "{self.work}/storage-{driver}"\n'
                f'runroot = "{self.work}/run"\n', encoding="utf-8")
            done = subprocess.run(["buildah", "from", "scratch"], text=True, check=False,
                                  stdin=subprocess.DEVNULL, capture_output=True)
            if done.returncode == 0:
                # With what a run that was killed has left.
                output("buildah", "rm", "--all")
                break
        else:
            raise Skip(f"buildah cannot store images: {done.stderr.strip()[-300:]}")
        self.base = base_image(self.work)

    def build(self, target):
        options = ["--isolation", "chroot", "--layers", "--build-arg", f"BUILD_IMAGE={self.base}",
                   "--build-arg", f"RUN_IMAGE={self.base}"]
        # The objects of the build before this one, if it was by the same compiler.
        if shutil.which("ccache"):
            cache = output("ccache", "--get-config", "cache_dir").strip()
            pathlib.Path(cache).mkdir(parents=True, exist_ok=True)
            options += ["--volume", f"{cache}:/ccache", "--build-arg", "CCACHE_DIR=/ccache"]
            if os.environ.get("LANG"):
                options += ["--build-arg", f"LANG={os.environ['LANG']}"]
        log = self.work / f"{target}.log"
        with open(log, "w", encoding="utf-8") as file:
            done = subprocess.run(
                [ROOT / "deploy/image.sh", "--tool", "buildah", "--target", target, "--tag",
                 f"localhost/rlk-test:{target}", "--", *options],
                stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, check=False,
                timeout=BUILD_SECONDS)
        text = log.read_text(encoding="utf-8", errors="replace")
        if done.returncode != 0 and NO_NETWORK.search(text):
            raise Skip(f"apt reaches no mirror from within the build ({log})")
        need(done.returncode == 0, f"the build ended with {done.returncode} ({log}):\n{text[-3000:]}")
        return text

    @contextlib.contextmanager
    def mounted(self, target):
        """Where the files of an image are."""
        container = output("buildah", "from", f"localhost/rlk-test:{target}").strip()
        try:
            yield pathlib.Path(output("buildah", "mount", container).strip())
        finally:
            output("buildah", "umount", container)
            output("buildah", "rm", container)

    def take_runtime(self):
        image = output("buildah", "inspect", "--type", "image", "localhost/rlk-test:runtime")
        self.config = json.loads(image)["Docker"]["config"]
        self.root = self.stack.enter_context(self.mounted("runtime"))

    def run(self, arguments=None, mounts=()):
        return Container(self.work, self.root, self.config, arguments, mounts)

    def close(self):
        self.stack.close()
        for path in self.work.glob("rlk-*"):
            shutil.rmtree(path)


def walk(root):
    """(path in the image, its lstat) of everything."""
    for folder, names, files in os.walk(root):
        for name in names + files:
            path = pathlib.Path(folder) / name
            yield path.relative_to(root), path.lstat()


def check_test_stage(images):
    text = images.build("test")
    need(re.search(r"100% tests passed, 0 tests failed out of [1-9]\d{2,}", text),
         "the tests of the stage `test` ran in the image and passed")


def check_runtime_stage(images):
    images.build("runtime")
    images.take_runtime()


def check_configuration(images):
    config = images.config
    need(re.fullmatch(r"[1-9]\d*:[1-9]\d*", config["User"]), f"a numeric user, not {config['User']}")
    need(config["Healthcheck"]["Test"] == ["CMD", "rlk", "health"], "a health check")
    need(config["StopSignal"] == "SIGTERM", "SIGTERM stops it")
    need(set(config["ExposedPorts"]) == {"50051/tcp", "9464/tcp"}, "the two ports are named")
    labels = {name.rpartition(".")[2]: value for name, value in config["Labels"].items()
              if name.startswith("org.opencontainers.image.")}
    need(labels["version"] == project_version(), f"the label of the version, not {labels}")
    need(labels["revision"] == (source_commit() or ""), f"the label of the commit, not {labels}")
    need(labels["licenses"] == "Apache-2.0" and labels["title"] and labels["description"], labels)
    environment = dict(line.split("=", 1) for line in config["Env"])
    # Without CUDA the image asks NVIDIA's runtime for nothing.
    need(environment["NVIDIA_VISIBLE_DEVICES"] == "", environment)
    need(environment["NVIDIA_DRIVER_CAPABILITIES"] == "", environment)


def compilers(root):
    """What makes programs: files, and packages."""
    found = [str(path) for path, status in walk(root)
             if not stat.S_ISDIR(status.st_mode) and COMPILER.match(path.name)
             and (path.parent.name in ("bin", "sbin") or path.name.startswith(("cc1", "collect2")))]
    packages = (root / "var/lib/dpkg/status").read_text(encoding="utf-8")
    names = re.findall(r"^Package: (\S+)$", packages, re.MULTILINE)
    need(len(names) > 50, "the list of packages")
    return found + [name for name in names if TOOLCHAIN.match(name)]


def sources(root):
    """Files with a name or with the bytes of a source; Debian's own bring some for debuggers."""
    foreign = {("usr", "share", folder) for folder in ("doc", "gcc", "gdb", "perl", "perl5")}
    ours = {}
    for folder in ("client", "kernels", "proto", "server", "tests", "deploy"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and not path.is_symlink() and path.stat().st_size > 256:
                ours.setdefault(path.stat().st_size, set()).add(path.read_bytes())
    return [str(path) for path, status in walk(root) if stat.S_ISREG(status.st_mode) and (
        SOURCE.search(path.name) and path.parts[:3] not in foreign
        or status.st_size in ours and (root / path).read_bytes() in ours[status.st_size])]


def check_no_compiler(images):
    found = compilers(images.root)
    need(not found, f"compilers and what belongs to them: {found}")


def check_no_source(images):
    found = sources(images.root)
    need(not found, f"sources: {found}")
    need(not (images.root / "src").exists(), "no folder of the build")
    own = sorted(str(path) for path, status in walk(images.root)
                 if path.parts[:2] == ("usr", "local") and stat.S_ISREG(status.st_mode))
    need(own == ["usr/local/bin/rlk", "usr/local/bin/rlk-server", "usr/local/share/doc/rlk/LICENSE"],
         f"what was installed: {own}")


def check_the_search_finds_compilers_and_sources(images):
    """In the stage that has them."""
    with images.mounted("test") as root:
        found = {pathlib.Path(name).name for name in compilers(root)}
        need({"g++", "cmake", "ninja", "protoc", "ccache", "libgtest-dev", "cc1plus"} <= found, found)
        found = sources(root)
        need({"src/kernels/builtin.cc", "src/proto/rlk/v1/call.proto"} <= set(found), len(found))


def check_rights_of_files(images):
    user = int(images.config["User"].split(":")[0])
    for path, status in walk(images.root):
        kind = status.st_mode
        if stat.S_ISREG(kind):
            need(not kind & (stat.S_ISUID | stat.S_ISGID), f"{path} raises its caller's rights")
            need(not kind & stat.S_IWOTH, f"everybody can write {path}")
        if status.st_uid == user:
            need(str(path) == "run/rlk" and stat.S_IMODE(kind) == 0o700, f"{path} is the server's")


def check_serves(images):
    with images.run() as server:
        health = server.exec(*images.config["Healthcheck"]["Test"][1:])
        need(health.returncode == 0, f"the health check passes: {health}")
        call = server.exec("rlk", *FORWARD)
        need(call.returncode == 0 and "reference: passed" in call.stdout, f"a call: {call}")
        info = server.exec("rlk", "info", "--json")
        provenance = json.loads(info.stdout)["provenance"]
        need(provenance["version"] == project_version(), provenance)
        need(provenance["git_commit"] == source_commit(), provenance)
        metrics = output("nsenter", f"--net=/proc/{server.pids()[0]}/ns/net", sys.executable, "-c",
                         "import urllib.request as r; "
                         "print(r.urlopen('http://127.0.0.1:9464/metrics').read().decode())")
        need(f'version="{project_version()}"' in metrics, "the metrics are served")
        server.kill("TERM")
        need(server.wait() == 0, f"SIGTERM ends it with 0: {server.log.read_text()[-2000:]}")
        need('"draining"' in server.log.read_text(), "the log says that it drained")


def check_no_rights(images):
    with images.run() as server:
        pids = server.pids()
        need(pids, "there is a process")
        user = images.config["User"].split(":")[0]
        for pid in pids:
            lines = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
            fields = dict(line.split(":", 1) for line in lines)
            need(set(fields["Uid"].split()) == {user}, f"uid {fields['Uid']}")
            need(set(fields["Gid"].split()) == {user}, f"gid {fields['Gid']}")
            for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
                need(int(fields[name], 16) == 0, f"{name} {fields[name]}")
            need(fields["NoNewPrivs"].strip() == "1", "no new privileges")
            need(fields["Seccomp"].strip() == "2", "a seccomp filter")
        written = server.exec("sh", "-c", "echo x > /run/rlk/x || echo x > /tmp/x || echo x > /x")
        need(written.returncode != 0, "nothing can be written")


def check_drain(images):
    with images.run([*images.config["Cmd"], "--drain-delay-seconds=3600"]) as server:
        server.kill("TERM")
        # The signal was taken, so this comes; how soon is the machine's affair.
        for _ in range(1000):
            health = server.exec(*images.config["Healthcheck"]["Test"][1:])
            if health.returncode != 0:
                break
        need(health.returncode == 1 and "NOT_SERVING" in health.stdout, f"it drains: {health}")
        call = server.exec("rlk", *FORWARD)
        need(call.returncode == 0, f"callers that did not notice yet are served: {call}")
        server.kill("TERM")
        server.wait()


def check_unix_socket(images):
    mount = tmpfs("/run/rlk", "mode=0700", "uid=65532", "gid=65532")
    arguments = ["--listen=", "--metrics=", "--unix=/run/rlk/rlk.sock"]
    with images.run(arguments, [mount]) as server:
        call = server.exec("rlk", *FORWARD, "--server", "unix:/run/rlk/rlk.sock")
        need(call.returncode == 0 and "reference: passed" in call.stdout, f"a call: {call}")
        server.kill("TERM")
        need(server.wait() == 0, "SIGTERM ends it with 0")


CHECKS = (check_runtime_stage, check_configuration, check_no_compiler, check_no_source,
          check_rights_of_files, check_serves, check_no_rights, check_drain, check_unix_socket,
          check_test_stage, check_the_search_finds_compilers_and_sources)


def run_checks(images):
    results = []
    for check in CHECKS:
        name = check.__name__.removeprefix("check_").replace("_", " ")
        try:
            check(images)
            results.append((name, "passed", ""))
        except Skip as reason:
            results.append((name, "skipped", str(reason)))
        except Exception as error:  # One check that fails leaves the others.
            results.append((name, "failed", f"{type(error).__name__}: {error}"))
        state, text = results[-1][1:]
        print(f"skipped: {name}: {text}" if state == "skipped" else f"{name}: {state} {text}",
              flush=True)
        if check is check_runtime_stage and state != "passed":
            break
    return results


def write_junit(path, results):
    count = {state: sum(r[1] == state for r in results) for state in ("failed", "skipped")}
    lines = ['<?xml version="1.0" encoding="UTF-8"?>',
             f'<testsuite name="containers" tests="{len(results)}" failures="{count["failed"]}" '
             f'skipped="{count["skipped"]}">']
    for name, state, text in results:
        inner = {"failed": "failure", "skipped": "skipped"}.get(state)
        body = f"<{inner} message={quoteattr(text)}/>" if inner else ""
        lines.append(f"  <testcase name={quoteattr(name)}>{body}</testcase>")
    path.write_text("\n".join([*lines, "</testsuite>"]) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", required=True, type=pathlib.Path)
    parser.add_argument("--junit", required=True, type=pathlib.Path)
    args = parser.parse_args()
    images = Images(args.work.resolve())
    # An exception, so that what is mounted is unmounted.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        images.require()
        results = run_checks(images)
    except Skip as reason:
        results = [("containers", "skipped", str(reason))]
        print(f"skipped: {reason}")
    finally:
        images.close()
    write_junit(args.junit, results)
    return 1 if any(result[1] == "failed" for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
