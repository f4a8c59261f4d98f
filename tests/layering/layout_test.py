#!/usr/bin/env python3
"""Fails on a folder that has no place in the layout, a file over 500 lines, a function over 70.

Usage: layout_test.py SOURCE_DIRECTORY. First plants one of each in memory and checks that it is
found. Generated and vendored files, data and golden files do not count. Case tables of tests may be
longer than a function.
"""
import ast
import os
import re
import sys

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70

TOP = {
    "proto", "server", "kernels", "client", "deploy", "tests", "CMakeLists.txt", "Dockerfile",
    "README.md", "CMakePresets.json", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE",
    "buf.yaml",
}
# Not of the repository.
IGNORED = {"dist", "gpu-results", "__pycache__", "shared"}
# A helper lives where it is used, a page beside the code that it speaks of.
FORBIDDEN = {"common", "util", "utils", "scripts", "docs", "misc", "helpers", "lib"}
SUFFIXES = (".cc", ".h", ".cu", ".cuh", ".inc", ".py", ".sh", ".cmake", ".proto", "CMakeLists.txt")
FOREIGN = re.compile(r"^proto/google/|/_proto/|\.egg-info/")

# A definition at the left margin: its first line, and the line that opens its body.
HEAD = re.compile(r"^(?!namespace|class|struct|enum|union|extern|using|#|//|\}|\)|\s)\S")
BODY = re.compile(r"\)[^()=;]*\{$")


def cpp_functions(text):
    """(name line, lines) of each function at the left margin, methods defined outside included."""
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        if HEAD.match(lines[at]):
            end = at
            while end < len(lines) and not lines[end].rstrip().endswith(("{", ";", "}")):
                end += 1
            if end < len(lines) and BODY.search(lines[end].rstrip()):
                close = end + 1
                while close < len(lines) and not lines[close].startswith("}"):
                    close += 1
                yield lines[at], close - at + 1
                at = close
        at += 1


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.end_lineno - node.lineno + 1


def folder_problems(path):
    parts = path.split("/")
    if parts[0] not in TOP:
        yield f"{parts[0]}: nothing of this name belongs at the top"
    for name in parts[:-1]:
        if name in FORBIDDEN:
            yield f"{path}: no folder may be called {name}"


def text_problems(path, text):
    lines = text.count("\n")
    if lines > FILE_LINES_MAX:
        yield f"{path}: {lines} lines, at most {FILE_LINES_MAX}"
    if path.endswith(".py"):
        functions = python_functions(text)
    elif path.endswith((".cc", ".h", ".cu", ".cuh", ".inc")) and not path.startswith("tests/"):
        functions = cpp_functions(text)
    else:
        return
    for name, length in functions:
        if length > FUNCTION_LINES_MAX:
            yield f"{path}: {name.strip()}: {length} lines, at most {FUNCTION_LINES_MAX}"


def self_check():
    body = "  x();\n" * FUNCTION_LINES_MAX
    planted = [
        (list(folder_problems("kernels/util/a.h")), True),
        (list(folder_problems("notes/a.md")), True),
        (list(folder_problems("kernels/core/a.h")), False),
        (list(text_problems("server/a.cc", "\n" * (FILE_LINES_MAX + 1))), True),
        (list(text_problems("server/a.cc", "\n" * FILE_LINES_MAX)), False),
        (list(text_problems("server/a.cc", "int F(int a,\n      int b) const {\n" + body + "}\n")), True),
        (list(text_problems("server/a.cc", "int F() {\n" + body[7:14] + "}\n")), False),
        (list(text_problems("server/a.cc", "const int k[] = {\n" + "  1,\n" * 100 + "};\n")), False),
        (list(text_problems("client/a.py", "def f():\n" + "    x()\n" * FUNCTION_LINES_MAX)), True),
    ]
    return [f"self-check {i}: {found}" for i, (found, bad) in enumerate(planted) if bool(found) != bad]


def main():
    root = sys.argv[1]
    found = self_check()
    files = 0
    for directory, folders, names in os.walk(root):
        folders[:] = [f for f in folders
                      if not f.startswith((".", "build")) and f not in IGNORED]
        for name in sorted(names):
            path = os.path.relpath(os.path.join(directory, name), root).replace(os.sep, "/")
            if name.startswith(".") or FOREIGN.search(path):
                continue
            found += folder_problems(path)
            if name.endswith(SUFFIXES):
                with open(os.path.join(root, path), encoding="utf-8") as file:
                    found += text_problems(path, file.read())
                files += 1
    if files < 200:
        found.append(f"only {files} files were read under {root}")
    print("\n".join(found) or f"{files} files")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
