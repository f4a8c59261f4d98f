#!/usr/bin/env python3
"""Fails on an include that the dependency rules forbid.

Usage: layering_test.py SOURCE_DIRECTORY. First plants one violation of every rule in memory and
checks that each is found, and that allowed includes are not.
"""
import os
import re
import sys

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include(?:_next)?[ \t]*[<"]([^>"]+)[>"]', re.MULTILINE)
SUFFIXES = (".h", ".cc", ".inc", ".cu", ".cuh", ".cpp", ".hpp")

# A module is the longest of these that is a prefix of the path.
MODULES = {
    "core": "kernels/core/",
    "arith": "kernels/arith/",
    "registry": "kernels/registry/",
    "digest": "kernels/digest/",
    "compare": "kernels/compare/",
    "cuda": "kernels/cuda/",
    "device": "kernels/device/",
    "linear": "kernels/linear/",
    "ops": "kernels/ops/",
    "builtin": "kernels/builtin",
    "wire": "proto/wire/",
    "engine": "server/engine/",
    "sessions": "server/sessions/",
    "tensors": "server/tensors/",
    "parity": "server/parity/",
    "metrics": "server/metrics/",
    "rpc": "server/rpc/",
    "log": "server/log/",
    "server": "server/",
    "client": "client/",
    "tests": "tests/",
}

KERNELS = {"core", "arith", "registry", "digest", "compare", "cuda", "device", "linear", "ops", "builtin"}
ENGINE = {"core", "arith", "registry", "digest", "compare", "engine"}

# What each module may include; itself is always allowed. Tests may include everything.
ALLOWED = {
    "core": set(),
    "arith": {"core"},
    "digest": {"core"},
    "compare": {"core", "arith"},
    "registry": {"core", "digest"},
    "cuda": {"core"},
    "device": {"core", "arith", "cuda"},
    "linear": {"core", "arith", "cuda", "device"},
    "ops": {"core", "arith", "registry", "digest", "cuda", "device", "linear"},
    "builtin": KERNELS,
    "wire": {"core", "registry", "digest"},
    "engine": {"core", "arith", "registry", "digest", "compare"},
    "log": {"core"},
    "sessions": {"core", "registry"},
    "tensors": ENGINE | {"log", "sessions"},
    "parity": ENGINE | {"tensors", "log"},
    "metrics": ENGINE | {"log", "tensors", "parity"},
    "rpc": ENGINE | {"sessions", "tensors", "parity", "metrics", "log", "wire", "builtin"},
    "server": ENGINE | {"sessions", "tensors", "parity", "metrics", "log", "wire", "builtin", "rpc"},
    "client": {"core", "registry", "digest", "wire"},
}

# GPU code of a module may include the CUDA ownership layer and device code.
CUDA_SOURCE = re.compile(r"\.(cu|cuh)$")
CUDA_DEVICE = re.compile(r"^server/engine/cuda_(device|probe|inspector|residents|sharing)\.(h|cc|cu)$")
CUDA_MODULES = {"cuda", "device"}

CUDA_HEADER = re.compile(
    r"^(cuda|cuda_runtime|cuda_runtime_api|cuda_bf16|cuda_fp16|cuda_fp8|driver_types|vector_types|"
    r"cooperative_groups|mma|cublas\w*|cudnn\w*|nccl|nvrtc|nvtx3/.*|cub/.*|thrust/.*|cuda/.*|curand\w*)"
    r"(\.h|\.cuh)?$")
GRPC_HEADER = re.compile(r"^(grpc|grpcpp|grpc\+\+)/|\.grpc\.pb\.h$")
PROTOBUF_HEADER = re.compile(r"^google/(protobuf|rpc)/|\.pb\.h$")
GRPC_INTERNAL = re.compile(r"\bgrpc::internal\b")
PROMETHEUS_HEADER = re.compile(r"^prometheus/")


def module_of(path):
    best = None
    for name, prefix in MODULES.items():
        if path.startswith(prefix) and (best is None or len(prefix) > len(MODULES[best])):
            best = name
    return best


def op_of(path):
    match = re.match(r"^kernels/ops/([^/]+)/", path)
    return match.group(1) if match else None


def may_use_cuda(path):
    return (module_of(path) in CUDA_MODULES or CUDA_DEVICE.match(path) is not None
            or (path.startswith("kernels/") and CUDA_SOURCE.search(path) is not None))


def may_use_grpc(path):
    return path.startswith(("server/rpc/", "client/")) or path in ("server/server.cc", "server/server.h")


def may_use_protobuf(path):
    # What speaks gRPC speaks the messages of its API.
    return path.startswith("proto/wire/") or may_use_grpc(path)


def violations(path, text):
    """The forbidden includes of one file, as sentences."""
    module = module_of(path)
    if module is None or module == "tests":
        return
    for header in INCLUDE.findall(text):
        if CUDA_HEADER.match(header) and not may_use_cuda(path):
            yield f"{path}: {header}: CUDA headers stop at kernels/cuda, kernels/device, .cu files and the CUDA device of the engine"
        if GRPC_HEADER.search(header) and not may_use_grpc(path):
            yield f"{path}: {header}: gRPC headers stop at server/rpc, server/server.cc and client"
        elif PROTOBUF_HEADER.search(header) and not may_use_protobuf(path):
            yield f"{path}: {header}: protobuf headers stop at proto/wire, server/rpc and client"
        if PROMETHEUS_HEADER.match(header) and module != "metrics":
            yield f"{path}: {header}: Prometheus headers stop at server/metrics"
        target = module_of(header)
        if target is None:
            continue
        if target == "tests":
            yield f"{path}: {header}: nothing that ships includes a test"
            continue
        if target == module:
            if module == "ops" and op_of(path) != op_of(header):
                yield f"{path}: {header}: an operator never includes another operator"
            continue
        allowed = ALLOWED[module]
        if may_use_cuda(path):
            allowed = allowed | CUDA_MODULES | {"arith"}
        if target not in allowed:
            yield f"{path}: {header}: {module} may not include {target}"
    if GRPC_INTERNAL.search(text) and not path.startswith("server/rpc/"):
        yield f"{path}: grpc::internal appears outside server/rpc"


# (path, include line, whether it is a violation)
PLANTED = [
    ("kernels/core/a.h", '#include "kernels/registry/registry.h"', True),
    ("kernels/core/a.h", '#include "kernels/core/dtype.h"', False),
    ("kernels/arith/a.h", '#include "kernels/registry/call.h"', True),
    ("kernels/registry/a.cc", '#include "kernels/ops/x/x.h"', True),
    ("kernels/registry/a.cc", '#include "google/protobuf/message.h"', True),
    ("kernels/digest/a.cc", "#include <cuda_runtime.h>", True),
    ("kernels/digest/digest.cu", "#include <cuda_runtime.h>", False),
    ("kernels/ops/x/a.cc", '#include "kernels/ops/y/y.h"', True),
    ("kernels/ops/x/a.cc", '#include "kernels/ops/x/params.h"', False),
    ("kernels/ops/x/a.cc", "#include <cuda_fp16.h>", True),
    ("kernels/ops/x/a.cu", "#include <cuda_fp16.h>", False),
    ("kernels/ops/x/a.cc", '#include "kernels/builtin.h"', True),
    ("kernels/ops/x/a.cc", '#include "server/engine/engine.h"', True),
    ("kernels/builtin.cc", '#include "kernels/ops/x/x.h"', False),
    ("server/engine/a.cc", '#include "proto/wire/codec.h"', True),
    ("server/engine/a.cc", '#include "kernels/ops/x/x.h"', True),
    ("server/engine/a.cc", '#include <grpcpp/grpcpp.h>', True),
    ("server/engine/a.cc", "  #  include <prometheus/counter.h>", True),
    ("server/engine/a.cc", "#include <cuda_runtime.h>", True),
    ("server/engine/a.cc", '#include "kernels/registry/call.h"', False),
    ("server/engine/cuda_device.cc", '#include "kernels/cuda/stream.h"', False),
    ("server/metrics/a.cc", "#include <prometheus/counter.h>", False),
    ("server/metrics/a.cc", '#include "server/rpc/service.h"', True),
    ("server/tensors/a.cc", '#include "server/parity/compare.h"', True),
    ("server/tensors/a.cc", '#include "server/sessions/session.h"', False),
    ("server/sessions/a.cc", '#include "server/tensors/tensor_store.h"', True),
    ("server/sessions/a.cc", '#include "server/engine/engine.h"', True),
    ("server/engine/a.cc", '#include "server/tensors/tensor_store.h"', True),
    ("server/rpc/a.cc", "#include <grpcpp/grpcpp.h>", False),
    ("server/rpc/a.cc", "#include <prometheus/counter.h>", True),
    ("server/main.cc", "#include <grpcpp/grpcpp.h>", True),
    ("server/options.cc", '#include "rlk/v1/call.pb.h"', True),
    ("server/server.cc", "#include <grpcpp/grpcpp.h>", False),
    ("proto/wire/a.cc", '#include "rlk/v1/call.pb.h"', False),
    ("proto/wire/a.cc", '#include "rlk/v1/call.grpc.pb.h"', True),
    ("proto/wire/a.cc", '#include "server/engine/engine.h"', True),
    ("client/cpp/a.cc", '#include "server/options.h"', True),
    ("client/cpp/a.cc", '#include "proto/wire/codec.h"', False),
    ("client/cpp/a.cc", '#include "kernels/arith/functions.h"', True),
    ("kernels/core/a.cc", '#include "tests/unit/kernels/golden_json.h"', True),
    ("server/engine/a.cc", "using grpc::internal::Foo;", True),
    ("server/rpc/a.cc", "using grpc::internal::Foo;", False),
    ("kernels/core/a.cc", "// says #include <cuda.h> in a comment", False),
]


def self_check():
    wrong = [f"{path}: {line}: expected {'a violation' if bad else 'none'}"
             for path, line, bad in PLANTED if bool(list(violations(path, line + "\n"))) != bad]
    return wrong


def main():
    root = sys.argv[1]
    found = ["self-check: " + text for text in self_check()]
    files = 0
    internal = []
    for top in ("kernels", "proto", "server", "client"):
        for directory, folders, names in os.walk(os.path.join(root, top)):
            folders[:] = [f for f in folders if not f.startswith((".", "build", "__"))]
            for name in sorted(names):
                if not name.endswith(SUFFIXES):
                    continue
                path = os.path.join(directory, name)
                with open(path, encoding="utf-8") as file:
                    text = file.read()
                relative = os.path.relpath(path, root)
                found += violations(relative, text)
                if GRPC_INTERNAL.search(text):
                    internal.append(relative)
                files += 1
    if len(internal) > 1:
        found.append(f"grpc::internal appears in more than one file: {', '.join(internal)}")
    if files < 50:
        found.append(f"only {files} files were read under {root}")
    print("\n".join(found) or f"{files} files, {len(PLANTED)} planted includes")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
