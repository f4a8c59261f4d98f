#!/usr/bin/env python3
"""Writes rlk.json, the Grafana dashboard, from the list of panels below. Standard library only.

Usage: make_dashboard.py [--check]; --check only says whether rlk.json is what this would write.
"""

import json
import pathlib
import sys

TARGET = pathlib.Path(__file__).with_name("rlk.json")
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
# Of every query: the servers that were chosen above the graphs.
CHOSEN = 'instance=~"$instance"'
WIDTH = 24  # of Grafana's grid

# Unit names of Grafana.
SECONDS, BYTES, BYTES_PER_SECOND, RATIO, CALLS, EVENTS, COUNT = (
    "s",
    "bytes",
    "Bps",
    "percentunit",
    "reqps",
    "cps",
    "short",
)


def graph(title, unit, *targets, stack=False, about="", height=8, log=False):
    """A time series; targets are (expression, legend)."""
    custom = {"lineWidth": 1, "fillOpacity": 30 if stack else 0, "showPoints": "never"}
    if stack:
        custom["stacking"] = {"mode": "normal"}
    if log:
        custom["scaleDistribution"] = {"type": "log", "log": 10}
    return {
        "type": "timeseries",
        "title": title,
        "description": about,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0, "custom": custom}, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "height": height,
        "targets": targets,
    }


def number(title, unit, expression, about, red=None, text=None):
    """One number; red from `red` on. With `text`, the label of that name instead of the value."""
    steps = [{"color": "green", "value": None}]
    if red is not None:
        steps.append({"color": "red", "value": red})
    return {
        "type": "stat",
        "title": title,
        "description": about,
        "fieldConfig": {
            "defaults": {"unit": unit, "thresholds": {"mode": "absolute", "steps": steps}},
            "overrides": [],
        },
        "options": {
            "colorMode": "value" if red is None else "background",
            "graphMode": "none",
            "reduceOptions": {"calcs": ["lastNotNull"]},
            "textMode": "name" if text else "value",
        },
        "height": 4,
        "targets": [(expression, f"{{{{{text}}}}}" if text else "")],
    }


def rate(metric, *by, labels=""):
    """Per second, summed but for the labels `by`."""
    selector = f"{metric}{{{CHOSEN}{', ' + labels if labels else ''}}}"
    return f"sum by ({', '.join(by)}) (rate({selector}[$__rate_interval]))"


def quantile(q, metric, *by):
    return f"histogram_quantile({q}, {rate(metric + '_bucket', *by, 'le')})"


def gauge(metric, *by, labels=""):
    return f"sum by ({', '.join(by)}) ({metric}{{{CHOSEN}{', ' + labels if labels else ''}}})"


def recorded(metric):
    return f"{metric}{{{CHOSEN}}}"


WRONG_BITS = " + ".join(
    f"sum(increase({metric}{{{CHOSEN}{labels}}}[$__range]))"
    for metric, labels in (
        ("rlk_selftest_total", ', result="mismatch"'),
        ("rlk_replay_mismatches_total", ""),
        ("rlk_verifications_total", ', result="fail"'),
    )
)

# Row title, panels in each line of it.
ROWS = [
    (
        "At a glance",
        [
            [
                number("Servers", COUNT, f'sum(up{{job="rlk", {CHOSEN}}})',
                       "Whose metrics can be read."),
                number("Calls", CALLS, f"sum({rate('rlk_requests_total', 'instance')})",
                       "Operator calls a second, refused ones included."),
                number("p99", SECONDS,
                       quantile(0.99, "rlk_request_duration_seconds"),
                       "Of all operator calls, on the server."),
                number("Refused", RATIO,
                       f"clamp_max(sum({rate('rlk_admission_rejections_total', 'instance')} + "
                       f"{rate('rlk_contract_rejections_total', 'instance')}) / "
                       f"sum({rate('rlk_requests_total', 'instance')}), 1)",
                       "Refusals by calls, in the range of a graph's point.", red=0.05),
                number("Wrong bits", COUNT, WRONG_BITS,
                       "Self-tests, replays and verifications that failed in the time shown. "
                       "Anything but 0 is an incident.", red=0.5),
                number("Version", COUNT, recorded("rlk_build_info"), "Of each server.",
                       text="version"),
            ],
        ],
    ),
    (
        "Latency",
        [
            [
                graph("Call, p50", SECONDS,
                      (quantile(0.5, "rlk_request_duration_seconds", "operator", "direction"),
                       "{{operator}} {{direction}}"),
                      about="From arrival to result, on the server.", log=True),
                graph("Call, p99", SECONDS,
                      (quantile(0.99, "rlk_request_duration_seconds", "operator", "direction"),
                       "{{operator}} {{direction}}"), log=True),
                graph("Mean call by phase", SECONDS,
                      (f"{rate('rlk_phase_duration_seconds_sum', 'phase')} / "
                       f"{rate('rlk_phase_duration_seconds_count', 'phase')}", "{{phase}}"),
                      stack=True, about="Of calls that succeeded; the phases add up."),
            ],
            [
                graph("Phase, p50", SECONDS,
                      (quantile(0.5, "rlk_phase_duration_seconds", "phase"), "{{phase}}"),
                      log=True),
                graph("Phase, p99", SECONDS,
                      (quantile(0.99, "rlk_phase_duration_seconds", "phase"), "{{phase}}"),
                      log=True),
                graph("p99 of five minutes, each server", SECONDS,
                      (recorded("instance_operator_direction:rlk_request_duration_seconds:p99"),
                       "{{instance}} {{operator}} {{direction}}"),
                      about="The recording rule that long ranges should use.", log=True),
            ],
        ],
    ),
    (
        "Throughput",
        [
            [
                graph("Calls by operator", CALLS,
                      (rate("rlk_requests_total", "operator", "direction"),
                       "{{operator}} {{direction}}"), stack=True),
                graph("Calls by status", CALLS,
                      (rate("rlk_requests_total", "code"), "{{code}}"), stack=True),
                graph("In flight and waiting", COUNT,
                      (gauge("rlk_inflight_requests", "instance"), "in flight {{instance}}"),
                      (gauge("rlk_queue_depth", "instance", "device"),
                       "waiting {{instance}} {{device}}")),
            ],
        ],
    ),
    (
        "Transports",
        [
            [
                graph("Into the server", BYTES_PER_SECOND,
                      (rate("rlk_transport_bytes_total", "transport", labels='direction="in"'),
                       "{{transport}}"), stack=True,
                      about="Bytes of resident and device_arena were read by calls and did not "
                            "move; those of host_arena moved to a GPU by DMA, or not at all."),
                graph("Out of the server", BYTES_PER_SECOND,
                      (rate("rlk_transport_bytes_total", "transport", labels='direction="out"'),
                       "{{transport}}"), stack=True),
                graph("Size of messages", BYTES,
                      (quantile(0.5, "rlk_request_bytes"), "request p50"),
                      (quantile(0.99, "rlk_request_bytes"), "request p99"),
                      (quantile(0.5, "rlk_response_bytes"), "reply p50"),
                      (quantile(0.99, "rlk_response_bytes"), "reply p99"), log=True),
            ],
        ],
    ),
    (
        "Memory",
        [
            [
                graph("On devices", BYTES,
                      (gauge("rlk_device_memory_bytes", "instance", "device", "kind"),
                       "{{instance}} {{device}} {{kind}}"), stack=True),
                graph("Part of its bound", RATIO,
                      (recorded("instance_device_kind:rlk_memory:ratio"),
                       "{{instance}} {{kind}} {{device}}"),
                      about="Alert above 90 %. Of each GPU, of resident tensors, of "
                            "arenas, of the queue."),
                graph("Process", BYTES,
                      (gauge("process_resident_memory_bytes", "instance", labels='job="rlk"'),
                       "{{instance}} in RAM"),
                      (gauge("rlk_resident_bytes", "instance"), "{{instance}} resident tensors"),
                      (gauge("rlk_queue_bytes", "instance", "device"),
                       "{{instance}} waiting for {{device}}")),
            ],
            [
                graph("Sessions and leases", COUNT,
                      (gauge("rlk_sessions", "instance"), "{{instance}} sessions"),
                      (gauge("rlk_leases", "instance"), "{{instance}} leases"), height=6),
                graph("Descriptors", COUNT,
                      (gauge("process_open_fds", "instance", labels='job="rlk"'),
                       "{{instance}} open"),
                      (gauge("process_max_fds", "instance", labels='job="rlk"'),
                       "{{instance}} allowed"), height=6, log=True),
                graph("Cores busy", COUNT,
                      (rate("process_cpu_seconds_total", "instance", labels='job="rlk"'),
                       "{{instance}}"), height=6),
            ],
        ],
    ),
    (
        "Rejections",
        [
            [
                graph("Because of load", CALLS,
                      (rate("rlk_admission_rejections_total", "reason") + " > 0", "{{reason}}"),
                      (rate("rlk_admission_rejections_total", "instance"), "all {{instance}}")),
                graph("Because of what was asked", CALLS,
                      (rate("rlk_contract_rejections_total", "reason") + " > 0", "{{reason}}"),
                      (rate("rlk_contract_rejections_total", "instance"), "all {{instance}}")),
                graph("Part of all calls", RATIO,
                      (recorded("instance:rlk_admission_rejections:ratio5m"), "load {{instance}}"),
                      (recorded("instance:rlk_contract_rejections:ratio5m"),
                       "request {{instance}}")),
            ],
            [
                graph("Given up before a stage", CALLS,
                      (rate("rlk_cancelled_total", "stage"), "{{stage}}"),
                      about="Cancelled, or past their deadline.", height=6),
                graph("Connections closed at once", EVENTS,
                      (rate("rlk_connections_refused_total", "instance"), "{{instance}}"),
                      height=6),
                graph("Device errors", EVENTS,
                      (rate("rlk_device_errors_total", "instance", "device", "class"),
                       "{{instance}} {{device}} {{class}}"), height=6),
            ],
            [
                graph("Credentials refused", EVENTS,
                      (rate("rlk_credentials_refused_total", "reason"), "{{reason}}"),
                      (rate("rlk_credentials_refused_total", "instance"), "all {{instance}}"),
                      about="Tokens of calls, and certificates of connections.", height=6),
                graph("Files of credentials read again", EVENTS,
                      (rate("rlk_credential_reloads_total", "instance", "file", "result"),
                       "{{instance}} {{file}} {{result}}"),
                      about="After an error the former ones stay in use.", height=6),
                graph("Until the certificate ends", SECONDS,
                      ("clamp_min(" + gauge("rlk_certificate_end_timestamp_seconds", "instance")
                       + " - time(), 0)", "{{instance}}"),
                      about="0 without TLS. Alert below a week.", height=6),
            ],
        ],
    ),
    (
        "Determinism",
        [
            [
                graph("Self-tests", EVENTS,
                      (rate("rlk_selftest_total", "result"), "{{result}}"),
                      about="A fixed input of every method; its digest is compared."),
                graph("Verifications that calls asked for", CALLS,
                      (rate("rlk_verifications_total", "verification", "result"),
                       "{{verification}} {{result}}")),
                graph("Replays", CALLS,
                      (rate("rlk_replays_total", "instance"), "replayed {{instance}}"),
                      (rate("rlk_replay_mismatches_total", "instance"), "other bits {{instance}}"),
                      (rate("rlk_replays_skipped_total", "reason"), "not replayed: {{reason}}"),
                      about="Sampled calls, run twice (--replay-every)."),
                graph("Recording", CALLS,
                      (rate("rlk_recorded_calls_total", "instance"), "recorded {{instance}}"),
                      (rate("rlk_recording_drops_total", "reason"), "lacking: {{reason}} full"),
                      about="Calls in the file of --record, and calls that it lacks."),
            ],
            [
                graph("Comparisons", EVENTS,
                      (rate("rlk_parity_checks_total", "judgment", "result"),
                       "{{judgment}} {{result}}"),
                      (rate("rlk_parity_mismatch_elements_total", "judgment"),
                       "elements with other bits {{judgment}}"),
                      (rate("rlk_nan_created_total", "judgment"), "NaN created {{judgment}}"),
                      height=6),
                graph("Largest difference, p99", COUNT,
                      (quantile(0.99, "rlk_parity_max_ulp"), "ULP"),
                      (rate("rlk_parity_max_ulp_count"), "comparisons a second"), height=6),
                graph("Fallbacks and non-finite values", EVENTS,
                      (rate("rlk_fallback_total", "operator"), "fallback {{operator}}"),
                      (rate("rlk_nonfinite_total", "operator", "direction"),
                       "non-finite {{operator}} {{direction}}"), height=6),
            ],
        ],
    ),
]


def variable_datasource():
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Source"}


def variable_instance():
    query = "label_values(rlk_build_info, instance)"
    return {
        "name": "instance",
        "type": "query",
        "label": "Server",
        "datasource": SOURCE,
        "definition": query,
        "query": {"query": query, "refId": "instance"},
        "refresh": 2,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "sort": 1,
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def place(panel, number_of, x, y, width):
    """The panel as Grafana wants it."""
    panel = dict(panel)
    panel["id"] = number_of
    panel["datasource"] = SOURCE
    panel["gridPos"] = {"x": x, "y": y, "w": width, "h": panel.pop("height")}
    panel["targets"] = [
        {"refId": chr(ord("A") + i), "datasource": SOURCE, "expr": expr, "legendFormat": legend}
        for i, (expr, legend) in enumerate(panel["targets"])
    ]
    if panel["type"] == "stat":
        for target in panel["targets"]:
            target["instant"] = True
    return panel


def panels():
    """All panels and row titles, with their places."""
    y, made = 0, []
    for title, lines in ROWS:
        grid = {"x": 0, "y": y, "w": WIDTH, "h": 1}
        made.append({"type": "row", "title": title, "id": len(made) + 1, "collapsed": False,
                     "gridPos": grid, "panels": []})
        y += 1
        for line in lines:
            width = WIDTH // len(line)
            for i, panel in enumerate(line):
                made.append(place(panel, len(made) + 1, i * width, y, width))
            y += max(panel["height"] for panel in line)
    return made


def dashboard():
    return {
        "title": "rlk",
        "uid": "rlk",
        "description": "Latency by phase, throughput, transports, memory, rejections, determinism.",
        "tags": ["rlk"],
        "schemaVersion": 38,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [variable_datasource(), variable_instance()]},
        "annotations": {
            "list": [
                {
                    "name": "Alerts",
                    "enable": True,
                    "iconColor": "red",
                    "datasource": SOURCE,
                    "expr": f'ALERTS{{alertstate="firing", {CHOSEN}}}',
                    "titleFormat": "{{alertname}}",
                    "textFormat": "{{instance}}",
                }
            ]
        },
        "panels": panels(),
    }


def main():
    text = json.dumps(dashboard(), indent=1) + "\n"
    if sys.argv[1:] == ["--check"]:
        if TARGET.read_text() != text:
            sys.exit(f"{TARGET} is not what {__file__} writes; run it")
        return
    TARGET.write_text(text)


if __name__ == "__main__":
    main()
