# rlk-server and the rlk command. `deploy/image.sh` builds it, with the version and the commit:
#
#   CPU:   deploy/image.sh                 or: docker build -t rlk .
#   CUDA:  deploy/image.sh --cuda          or: docker build -t rlk:cuda --build-arg RLK_CUDA=ON \
#            --build-arg BUILD_IMAGE=docker.io/nvidia/cuda:13.0.0-devel-ubuntu24.04 \
#            --build-arg RUN_IMAGE=docker.io/library/ubuntu:24.04 .
#   tests: deploy/image.sh --target test   builds a part of the tests in the image and runs them
#
# Build and run image must be one distribution release: the binary links its shared gRPC. The CUDA
# runtime is linked statically and libcuda comes from the host's container toolkit, so the CUDA
# variant runs on a plain distribution image.
#
#   docker run --rm --read-only --cap-drop ALL --security-opt no-new-privileges \
#     -p 127.0.0.1:50051:50051 -p 127.0.0.1:9464:9464 rlk
#   docker run --rm --gpus all --read-only ... rlk:cuda
#
# The port has no TLS and no authentication unless flags ask for them (SECURITY.md): publish it on
# loopback, as above.
ARG BUILD_IMAGE=docker.io/library/debian:12-slim
ARG RUN_IMAGE=docker.io/library/debian:12-slim

FROM ${BUILD_IMAGE} AS build
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
WORKDIR /src
COPY deploy/build_env.sh deploy/
RUN . deploy/build_env.sh \
    && install_packages /tmp/apt.log ccache "${RLK_BUILD_PACKAGES[@]}" \
    && rm -rf /var/lib/apt/lists/* /tmp/apt.log
COPY LICENSE CMakeLists.txt CMakePresets.json ./
COPY proto proto
COPY kernels kernels
COPY server server
COPY client client
# Empty: without CUDA.
ARG RLK_CUDA
ARG RLK_CUDA_ARCHITECTURES="80;90a;100"
# The version that the image is labelled with; empty: that of the source.
ARG RLK_VERSION
# What the server says of its source, since git is not here; empty: unknown.
ARG RLK_GIT_COMMIT
ARG RLK_GIT_DIRTY
# Objects of former builds, which ccache takes for those of one locale. Another folder is for
# builders that mount their own.
ARG CCACHE_DIR=/var/cache/ccache
ARG LANG=C.UTF-8
ENV CCACHE_BASEDIR=/src
RUN --mount=type=cache,target=/var/cache/ccache \
    cmake --preset quickstart -DRLK_CUDA="${RLK_CUDA:-OFF}" \
      -DRLK_CUDA_ARCHITECTURES="${RLK_CUDA_ARCHITECTURES}" \
      -DRLK_GIT_COMMIT="${RLK_GIT_COMMIT}" -DRLK_GIT_DIRTY="${RLK_GIT_DIRTY}" \
    && cmake --build --preset quickstart --target server/rlk-server client/rlk \
    && cmake --install build/quickstart --component runtime --strip --prefix /out/usr/local
# The version is right, and which packages own the shared libraries that the two programs load.
RUN version=$(/out/usr/local/bin/rlk --version) \
    && test "${version}" = "rlk ${RLK_VERSION:-${version#rlk }}" \
    && ldd /out/usr/local/bin/* | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u \
         | xargs -r -n 1 readlink -f | sed 's|.*/|*/|' | sort -u | xargs -r dpkg-query -S \
         | cut -d: -f1 | sort -u > /out/packages

FROM build AS test
ARG CCACHE_DIR=/var/cache/ccache
ARG LANG=C.UTF-8
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
RUN . deploy/build_env.sh \
    && install_packages /tmp/apt.log libgtest-dev libgmock-dev libbenchmark-dev python3 \
    && rm -rf /var/lib/apt/lists/* /tmp/apt.log
COPY tests tests
# The bits of arithmetic and operators against stored digests, the codec, calls of a server. What takes
# minutes, since it goes over all inputs, is left to tests/run.sh.
RUN --mount=type=cache,target=/var/cache/ccache \
    tests=(kernels_arith kernels_digest kernels_builtin softcap rms_norm wire_decode_call wire_link \
      server_parts integration) \
    && targets=("${tests[@]/#/rlk_}") \
    && cmake --preset quickstart -DRLK_TESTS=ON \
    && cmake --build --preset quickstart --target "${targets[@]/%/_test}" \
    && ctest --test-dir build/quickstart --output-on-failure --no-tests=error -j "$(nproc)" \
         -R "^($(IFS='|'; echo "${tests[*]}"))[.]" -E 'AllPatterns|AllFp32Inputs'

FROM ${RUN_IMAGE} AS runtime
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
COPY --from=build /out/packages /tmp/packages
# No program needs more rights than its caller has.
RUN apt-get update \
    && xargs -a /tmp/packages apt-get install -y --no-install-recommends \
    && rm -rf /var/lib/apt/lists/* /var/log/* /tmp/packages \
    && find / -xdev -type f -perm /6000 -exec chmod a-s {} + \
    && install -d -o 65532 -g 65532 -m 0700 /run/rlk
COPY --from=build /out/usr/local/ /usr/local/
ARG RLK_CUDA
ARG RLK_VERSION
ARG RLK_GIT_COMMIT
ARG RUN_IMAGE
LABEL org.opencontainers.image.title="rlk" \
      org.opencontainers.image.description="Deterministic kernels over gRPC: bits are the API" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${RLK_VERSION}" \
      org.opencontainers.image.revision="${RLK_GIT_COMMIT}" \
      org.opencontainers.image.base.name="${RUN_IMAGE}"
# Read by NVIDIA's container toolkit; without CUDA the image asks for no GPU.
ENV NVIDIA_VISIBLE_DEVICES="${RLK_CUDA:+all}" \
    NVIDIA_DRIVER_CAPABILITIES="${RLK_CUDA:+compute,utility}"
# By number, so that an orchestrator sees that it is not root. /run/rlk is the user's, for --unix
# where a writable folder is mounted there; nothing else is written.
USER 65532:65532
EXPOSE 50051 9464
# What grpc.health.v1 says, and so NOT_SERVING while the server drains. A server with TLS takes
# --health-listen=127.0.0.1:50052, and --health-cmd "rlk health --server 127.0.0.1:50052".
HEALTHCHECK --interval=10s --timeout=6s --start-period=30s CMD ["rlk", "health"]
# SIGTERM drains: NOT_SERVING first, then running calls end, then the process.
STOPSIGNAL SIGTERM
ENTRYPOINT ["rlk-server"]
CMD ["--listen=0.0.0.0:50051", "--metrics=0.0.0.0:9464"]
