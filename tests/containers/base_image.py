"""A base image of this host's own distribution release, made by debootstrap from the package sources
that apt uses here: what `FROM debian:12-slim` gives where a registry can be reached."""
import hashlib
import json
import os
import pathlib
import shutil
import subprocess

# Settings of apt that decide whether and how its sources are reached.
APT_SETTINGS = ("Acquire::http::Proxy", "Acquire::https::Proxy", "Acquire::Check-Valid-Until",
                "Acquire::Check-Date")


class Skip(Exception):
    """Why the images cannot be built here."""


def output(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, **options).stdout


def apt_sources():
    """The codename of this release, its mirror, and lines for sources.list, from what apt knows."""
    release = dict(line.split("=", 1) for line in
                   pathlib.Path("/etc/os-release").read_text().splitlines() if "=" in line)
    codename = release.get("VERSION_CODENAME", "").strip('"')
    targets = output("apt-get", "indextargets", "--format",
                     "$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(ORIGIN)", "Created-By: Packages")
    mirror, lines = None, set()
    for target in targets.split():
        uri, suite, component, origin = target.split("|")
        if origin not in ("Debian", "Ubuntu") or not suite.startswith(codename):
            continue
        lines.add(f"deb {uri} {suite} {component}")
        if suite == codename and component == "main":
            mirror = uri
    if mirror is None:
        raise Skip("apt has no index of this release here (apt-get update)")
    return codename, mirror, sorted(lines)


def apt_settings():
    """Lines for apt.conf, as this host has them."""
    lines = output("apt-config", "dump", *APT_SETTINGS).splitlines()
    return [line for line in lines if '""' not in line]


def proxy_environment():
    environment = dict(os.environ)
    for kind in ("http", "https"):
        value = output("apt-config", "shell", "value", f"Acquire::{kind}::Proxy").strip()
        if value:
            environment.setdefault(f"{kind}_proxy", value.split("=", 1)[1].strip("'"))
    return environment


def make_root(folder, codename, mirror, lines, log):
    """A minimal system in `folder`."""
    include = ["--include=ca-certificates"] if mirror.startswith("https:") else []
    with open(log, "w", encoding="utf-8") as file:
        done = subprocess.run(
            ["debootstrap", "--variant=minbase", *include, codename, str(folder), mirror],
            stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
            env=proxy_environment(), check=False)
    if done.returncode != 0:
        last = log.read_text(encoding="utf-8").strip().splitlines()[-1:]
        raise Skip(f"debootstrap cannot make a base ({log}): {' '.join(last)}")
    (folder / "etc/apt/sources.list").write_text("\n".join(lines) + "\n", encoding="utf-8")
    settings = folder / "etc/apt/apt.conf.d/90-as-on-the-host"
    settings.write_text("\n".join(apt_settings()) + "\n", encoding="utf-8")
    own = pathlib.Path("/usr/local/share/ca-certificates")
    if include and own.is_dir() and any(own.iterdir()):
        shutil.copytree(own, folder / "usr/local/share/ca-certificates", dirs_exist_ok=True)
        output("chroot", folder, "update-ca-certificates")
    for path in (folder / "var/cache/apt/archives").glob("*.deb"):
        path.unlink()


def base_image(work):
    """The image's name. It is kept for later runs, until the sources change."""
    codename, mirror, lines = apt_sources()
    key = hashlib.sha256(json.dumps([codename, mirror, lines, apt_settings()]).encode()).hexdigest()
    name = f"localhost/rlk-test-base:{codename}-{key[:12]}"
    if subprocess.run(["buildah", "inspect", "--type", "image", name], check=False,
                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0:
        return name
    folder = work / "base"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        make_root(folder, codename, mirror, lines, work / "debootstrap.log")
        container = output("buildah", "from", "scratch").strip()
        output("buildah", "add", "--quiet", container, folder, "/")
        output("buildah", "config", "--cmd", "/bin/bash", container)
        output("buildah", "commit", "--quiet", "--rm", container, name)
    finally:
        # debootstrap mounts /proc there while it runs.
        subprocess.run(["umount", str(folder / "proc")], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(folder, ignore_errors=True)
    return name
