#!/usr/bin/env bash
# Draws graphs.svg, the picture of README.md: a server, a Prometheus and four minutes of load.
# usage: deploy/prometheus/draw_example.sh [BUILD]   (default build/test; prometheus on PATH or in
# RLK_PROMETHEUS_DIR)
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${1:-build/test}
PATH=${RLK_PROMETHEUS_DIR:+$RLK_PROMETHEUS_DIR:}$PATH
work=$(mktemp -d)
running=()
stop_all() {
  kill "${running[@]}" 2>/dev/null || true
  wait
  rm -rf "$work"
}
trap stop_all EXIT

# Short queue and little room, so that the graphs of rejections and memory have something to show.
"$build/server/rlk-server" --listen 127.0.0.1:0 --unix "$work/rlk.sock" --metrics 127.0.0.1:0 \
  --queue-calls-max 6 --resident-bytes-max 40000000 --selftest-interval-seconds 2 \
  >"$work/server.json" 2>"$work/server.log" &
running+=($!)
until [[ -s $work/server.json ]]; do sleep 0.1; done
metrics=$(sed -n 's/.*"metrics":"\([^"]*\)".*/\1/p' "$work/server.json")

sed -e "s/15s/1s/; s/127.0.0.1:9464/$metrics/" -e "s#- \(rules\|alerts\)#- $PWD/deploy/prometheus/\1#" \
  deploy/prometheus/prometheus.yml >"$work/prometheus.yml"
prometheus --config.file="$work/prometheus.yml" --storage.tsdb.path="$work/data" \
  --web.listen-address=127.0.0.1:0 2>"$work/prometheus.log" &
running+=($!)
until grep -q 'ready to receive' "$work/prometheus.log"; do sleep 0.1; done
address=$(sed -n 's/.*msg="Listening on" address=\([^ ]*\).*/\1/p' "$work/prometheus.log")

# load SECONDS RATE WORD...: an open loop for about so long. Calls that fail are meant to.
load() {
  local seconds=$1 rate=$2
  shift 2
  "$build/client/rlk" bench load --server "unix:$work/rlk.sock" --rate "$rate" --arrivals poisson \
    --calls $((seconds * rate)) --warm-up 0 "$@" || true
}

begin=$SECONDS
load 60 100 --clients 2 --mix small=2,softcap=2,rms_norm=2
load 60 150 --clients 3 --mix softcap=2,rms_norm=2,rms_norm_backward=1,resident=1,upload=1
load 45 100 --clients 8 --mix small=1,resident=2,resident_norm=2
# More callers than the queue takes, and some who ask for what cannot be.
load 45 400 --clients 24 --mix small=1,softcap=2,rms_norm=2 &
crowd=$!
for _ in {1..40}; do
  "$build/client/rlk" call final_logit_softcap.forward x=random:8:f32:1 softcap=-1 \
    --server "unix:$work/rlk.sock" >"$work/refused" 2>&1 || true
done
wait "$crowd"
load 30 100 --clients 2 --mix small=2,softcap=2,rms_norm=2
python3 deploy/prometheus/draw_graphs.py --prometheus "$address" --seconds $((SECONDS - begin)) \
  --heading "One rlk server without a GPU under changing load, two shared cores" \
  --out deploy/prometheus/graphs.svg
