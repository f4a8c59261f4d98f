# syntax=docker/dockerfile:1
# rlk-server and the rlk command.
#
#   CPU:   docker build -t rlk .
#   CUDA:  docker build -t rlk:cuda --build-arg BUILD_IMAGE=nvidia/cuda:13.0.0-devel-ubuntu24.04 \
#            --build-arg RUN_IMAGE=ubuntu:24.04 --build-arg RLK_CUDA=ON .
#
# Build and run image must be one distribution release: the binary links its shared gRPC. The CUDA
# runtime is linked statically and libcuda comes from the host's container toolkit, so the CUDA
# variant runs on a plain distribution image.
#
#   docker run --rm -p 127.0.0.1:50051:50051 -p 127.0.0.1:9464:9464 rlk
#   docker run --rm --gpus all -p 127.0.0.1:50051:50051 rlk:cuda
#
# There is no TLS and no authentication yet: publish the ports on loopback only, as above.
ARG BUILD_IMAGE=debian:bookworm
ARG RUN_IMAGE=debian:bookworm-slim

FROM ${BUILD_IMAGE} AS build
ARG RLK_CUDA=OFF
ARG RLK_CUDA_ARCHITECTURES="80;90a;100"
WORKDIR /src
COPY deploy/build_env.sh deploy/build_env.sh
RUN bash -euo pipefail -c '. deploy/build_env.sh \
      && install_packages /tmp/apt.log "${RLK_BUILD_PACKAGES[@]}"' \
    && rm -rf /var/lib/apt/lists/*
COPY . .
RUN cmake --preset quickstart -DRLK_CUDA="${RLK_CUDA}" \
      -DRLK_CUDA_ARCHITECTURES="${RLK_CUDA_ARCHITECTURES}" \
    && cmake --build --preset quickstart --target server/rlk-server client/rlk \
    && install -D -t /out/bin build/quickstart/server/rlk-server build/quickstart/client/rlk \
    # The packages that own the shared libraries which the two programs load.
    && ldd /out/bin/* | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u \
         | xargs -r -n 1 readlink -f | sed 's|.*/|*/|' | sort -u | xargs -r dpkg-query -S \
         | cut -d: -f1 | sort -u > /out/packages

FROM ${RUN_IMAGE}
COPY --from=build /out/packages /tmp/packages
RUN apt-get update \
    && xargs -a /tmp/packages apt-get install -y --no-install-recommends \
    && rm -rf /var/lib/apt/lists/* /tmp/packages \
    && useradd --system --no-create-home --shell /usr/sbin/nologin rlk
COPY --from=build /out/bin/ /usr/local/bin/
COPY LICENSE /usr/share/doc/rlk/LICENSE
USER rlk
EXPOSE 50051 9464
# The server answers grpc.health.v1 too; an orchestrator should probe that.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["rlk", "info"]
# SIGTERM drains: NOT_SERVING first, then running calls end, then the process.
STOPSIGNAL SIGTERM
ENTRYPOINT ["rlk-server"]
CMD ["--listen", "0.0.0.0:50051", "--metrics", "0.0.0.0:9464"]
