#!/usr/bin/env python3
"""Checks what people read: links between pages, flags named in pages, shell scripts.

Standard library only. Prints one line a check, writes JUnit for tests/run.sh; exit status 1 if a
check fails.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import unicodedata
from xml.sax.saxutils import quoteattr

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINK = re.compile(r"(?<!\\)!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)|<img[^>]*\ssrc=\"([^\"]+)\"")
FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9_-]*")
# Flags of other programs that pages may name.
FOREIGN_FLAGS = {
    "--build",
    "--build-arg",
    "--fmad",  # nvcc
    "--gpus",
    "--preset",
    "--publish",
    "--recurse-submodules",
    "--rm",
    "--target",
    "--test-dir",
    "--user",
}


class Skipped(Exception):
    """A check that cannot run here; the message says why."""


def tracked_files() -> list[pathlib.Path]:
    """Files of the repository, committed or not, less what git ignores."""
    listing = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        check=False,
    )
    if listing.returncode == 0:
        names = [name for name in listing.stdout.decode().split("\0") if name]
        files = [ROOT / name for name in names]
    else:  # A source archive.
        files = [
            path
            for path in ROOT.rglob("*")
            if path.relative_to(ROOT).parts[0] not in ("build", ".venv", ".git")
        ]
    return sorted({path for path in files if path.is_file()})


def anchors(page: pathlib.Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    found: dict[str, int] = {}
    result = set()
    for line in FENCE.sub("", page.read_text(encoding="utf-8")).splitlines():
        match = re.match(r"#{1,6}\s+(.*?)\s*#*$", line)
        if not match:
            continue
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match.group(1)).lower()
        kept = (c for c in text if c in "-_ " or unicodedata.category(c)[0] in "LN")
        slug = "".join(kept).replace(" ", "-")
        count = found.get(slug, 0)
        found[slug] = count + 1
        result.add(slug if count == 0 else f"{slug}-{count}")
    return result


def check_links(page: pathlib.Path) -> list[str]:
    problems = []
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    text = re.sub(r"`[^`\n]*`", "", text)
    for match in LINK.finditer(text):
        target = match.group(1) or match.group(2)
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            problems.append(f"{target}: no such file")
        elif not file.is_relative_to(ROOT):
            problems.append(f"{target}: outside the repository")
        elif anchor and file.suffix == ".md" and anchor not in anchors(file):
            problems.append(f"{target}: no such heading")
    return problems


def help_text(program: pathlib.Path) -> str:
    """What the program says about its flags. --helpfull lists flags of libraries too."""
    if not program.exists():
        raise Skipped(f"{program.name} is not built")
    text = ""
    for arguments in (["--help"], ["help"]):
        done = subprocess.run(
            [str(program), *arguments],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=60,
            check=False,
        )
        text += (done.stdout + done.stderr).decode(errors="replace")
        if program.name == "rlk-server":
            break
    return text


def flags_in(text: str) -> set[str]:
    """Flags with dashes; abseil takes underscores for them."""
    return {flag.rstrip("-_").replace("_", "-") for flag in FLAG.findall(text)}


def check_flags(page: pathlib.Path, known: set[str]) -> list[str]:
    used = flags_in(page.read_text(encoding="utf-8"))
    return [f"{flag}: no program of ours knows it" for flag in sorted(used - known)]


def known_flags(server: pathlib.Path, command: pathlib.Path, scripts: list[pathlib.Path]) -> set[str]:
    known = set(FOREIGN_FLAGS) | {"--help"}
    for program in (server, command):
        known |= flags_in(help_text(program))
    for script in scripts:
        known |= flags_in(script.read_text(encoding="utf-8"))
    return known


def is_shell_script(path: pathlib.Path) -> bool:
    if path.suffix == ".sh":
        return True
    if path.suffix or path.stat().st_size > 1 << 20:
        return False
    with open(path, "rb") as file:
        return re.match(rb"#!.*\b(ba)?sh\b", file.readline(100)) is not None


def check_script(path: pathlib.Path) -> list[str]:
    if shutil.which("shellcheck") is None:
        raise Skipped("shellcheck is not installed")
    done = subprocess.run(
        ["shellcheck", "-x", "--format=gcc", str(path.relative_to(ROOT))],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    return (done.stdout + done.stderr).decode().splitlines() if done.returncode else []


def run(name: str, check, results: list[tuple[str, str, str]]) -> None:
    try:
        problems = check()
    except Skipped as reason:
        results.append((name, "skipped", str(reason)))
        print(f"    {name}: skipped: {reason}")
        return
    if problems:
        results.append((name, "failed", "\n".join(problems)))
        print(f"    {name}: FAILED", *problems, sep="\n      ")
    else:
        results.append((name, "passed", ""))


def write_junit(path: pathlib.Path, results: list[tuple[str, str, str]]) -> None:
    count = {state: sum(r[1] == state for r in results) for state in ("failed", "skipped")}
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuite name="pages" tests="{len(results)}" failures="{count["failed"]}" '
        f'skipped="{count["skipped"]}">',
    ]
    for name, state, text in results:
        inner = {"failed": "failure", "skipped": "skipped"}.get(state)
        body = f"<{inner} message={quoteattr(text)}/>" if inner else ""
        lines.append(f"  <testcase name={quoteattr(name)}>{body}</testcase>")
    lines.append("</testsuite>")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--server", type=pathlib.Path, default=ROOT / "build/test/server/rlk-server")
    parser.add_argument("--command", type=pathlib.Path, default=ROOT / "build/test/client/rlk")
    parser.add_argument("--junit", type=pathlib.Path)
    args = parser.parse_args()

    files = tracked_files()
    pages = [path for path in files if path.suffix == ".md"]
    scripts = [path for path in files if is_shell_script(path)]
    results: list[tuple[str, str, str]] = []
    for page in pages:
        run(f"links of {page.relative_to(ROOT)}", lambda page=page: check_links(page), results)
    for page in (ROOT / "README.md", ROOT / "client/cli/README.md"):
        if page in pages:
            run(
                f"flags in {page.relative_to(ROOT)}",
                lambda page=page: check_flags(
                    page, known_flags(args.server, args.command, scripts)
                ),
                results,
            )
    for script in scripts:
        run(f"shellcheck {script.relative_to(ROOT)}", lambda s=script: check_script(s), results)

    if args.junit:
        args.junit.parent.mkdir(parents=True, exist_ok=True)
        write_junit(args.junit, results)
    failed = sum(result[1] == "failed" for result in results)
    print(f"    {len(results)} checks, {failed} failed")
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main())
