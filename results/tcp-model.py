"""Run by tcp-model.sh: every cell in the emulator and in the simulator, as a Markdown page.

This program writes the whole page; `reason` decides why a cell differs.
"""

import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time

RATES = os.environ.get("RATES", "10M 100M 1G").split()
RTTS = os.environ.get("RTTS", "1ms 10ms 100ms").split()
LOSSES = os.environ.get("LOSSES", "0 0.1% 1%").split()
CONTROLS = {"cubic": "cubic", "reno": "newreno"}
SEEDS = ",".join(str(seed) for seed in range(1, 21))
PAGE = pathlib.Path(os.environ.get("PAGE", "results/tcp-model.md"))
# By default the kernel limits its buffers to 4 and 6 MB: less than the largest BDP of this grid.
BUFFERS = "; ".join(
    f"echo 4096 131072 268435456 > /proc/sys/net/ipv4/tcp_{way}mem" for way in "wr"
)
# Differences of at most this ratio get no reason in the page.
CLOSE = 0.15
# Share of all cores in use; above this share, the machine limits the result.
BUSY = 0.85

RULES = f"""## Where they differ by over {CLOSE:.0%}, and why

The last column has the first of these reasons that applies, or "unexplained".

- **late**: the emulator was late in every run, so the kernel's path was not the model's path.
- **RTT**: with the round-trip time that the kernel measured, the model differs by at most {CLOSE:.0%}; the
  column has this goodput of the model and the difference. Goodput under loss is proportional to 1 / RTT,
  and at an RTT of 1 ms each wait for a CPU core adds much to the RTT.
- **chance**: with loss, the range of the kernel's runs and the range of the model's seeds overlap; the column
  has both. At an RTT of 100 ms a run has only a few dozen round trips, and the first loss, which ends slow
  start, decides the result.
- **CPU**: sender, receiver and emulator together used over {BUSY:.0%} of the machine's cores, so the
  result describes the machine.

Where Linux differs from the RFCs, the model follows Linux: `crates/testbed/src/tcp/mod.rs` lists these
rules.

The model follows the known laws: NewReno's mean window is within a quarter of the square-root law, and
CUBIC's is within a quarter of CUBIC's response function at 100 ms (`cargo test -p longhaul-testbed
tcp::tests`)."""


def kernel(longhaul, rate, rtt, loss, control, each, seed):
    """Runs the kernel's TCP; returns the received rate, the measured RTT, and the load of the cores."""
    words = [longhaul, "emulate", "--rate", rate, "--rtt", rtt, "--loss", "0"]
    words += ["--loss-forward", loss, "--seed", str(seed)]
    words += ["--run", "b", f"{BUFFERS}; iperf3 -s -1 > /dev/null"]
    words += ["--run", "a", f"{BUFFERS}; sleep 0.5; iperf3 -c b -C {control} -t {each} -J"]
    run = subprocess.run(words, capture_output=True, text=True, timeout=each + 60)
    end = json.loads(run.stdout)["end"]
    if "sum_received" not in end:
        return None
    cpu = end["cpu_utilization_percent"]
    own = re.search(r"\((\d+) % of one\)", run.stderr)
    busy = cpu["host_total"] + cpu["remote_total"] + (float(own.group(1)) if own else 0)
    return {
        "mbps": end["sum_received"]["bits_per_second"] / 1e6,
        "rtt": end["streams"][0]["sender"]["mean_rtt"] / 1e3,
        "busy": busy / 100 / os.cpu_count(),
        "valid": "; valid" in run.stderr,
    }


def model(longhaul, rate, rtt, loss, control, each):
    """Returns the simulator's Mbit/s, one value per seed, lowest first."""
    text = f"""time-limit = "10m"
[topology]
kind = "pair"
[topology.link]
rate = "{rate}"
delay = "{rtt / 2}ms"
loss = "{loss}"
back = {{ loss = "0" }}
[[flow]]
from = "a"
to = "b"
tcp = "{control}"
lasts = "{each}s"
"""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "cell.toml"
        path.write_text(text)
        words = [longhaul, "sim", str(path), "--json", "--sweep", f"seed={SEEDS}"]
        out = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return sorted(json.loads(line)["flows"][0]["goodput_bps"] / 1e6 for line in out.splitlines())


def reason(runs, ours, again, loss):
    """Returns why kernel and model differ: the first of the page's reasons that applies."""
    real = statistics.median(run["mbps"] for run in runs)
    off = lambda rates: statistics.median(rates) / real - 1
    if abs(off(ours)) <= CLOSE:
        return ""
    if not any(run["valid"] for run in runs):
        return "late"
    if again and abs(off(again)) <= CLOSE:
        return f"RTT: {statistics.median(again):.2f} ({off(again):+.0%})"
    rates = [run["mbps"] for run in runs]
    if loss != "0" and min(ours) <= max(rates) and min(rates) <= max(ours):
        return f"chance: {min(rates):.2f} to {max(rates):.2f}, {ours[0]:.2f} to {ours[-1]:.2f}"
    busy = statistics.median(run["busy"] for run in runs)
    if busy >= BUSY:
        return f"CPU: {busy:.0%} of all cores"
    there = f", at the RTT seen {statistics.median(again):.2f}" if again else ""
    return f"**unexplained** (cores {busy:.0%} busy{there})"


def cell(longhaul, rate, rtt, loss, control, each, times):
    runs = [kernel(longhaul, rate, rtt, loss, control, each, seed + 1) for seed in range(times)]
    runs = [run for run in runs if run]
    if not runs:
        return f"| {CONTROLS[control]} | {rate} | {rtt} | {loss} | no run | | | | |"
    # Disturbed runs count only if all runs were disturbed.
    runs = [run for run in runs if run["valid"]] or runs
    name, millis = CONTROLS[control], float(rtt.removesuffix("ms"))
    ours = model(longhaul, rate, millis, loss, name, each)
    low, middle, high = statistics.quantiles(ours, n=4)
    real = statistics.median(run["mbps"] for run in runs)
    seen = statistics.median(run["rtt"] for run in runs)
    differs = loss != "0" and abs(middle / real - 1) > CLOSE
    again = model(longhaul, rate, seen, loss, name, each) if differs else None
    row = f"| {name} | {rate} | {rtt} | {loss} | {real:.2f} ({len(runs)}) "
    row += f"| {middle:.2f} ({low:.2f} to {high:.2f}) | {middle / real - 1:+.0%} "
    row += f"| {seen:.1f} ms | {reason(runs, ours, again, loss)} |"
    print(row, file=sys.stderr)
    return row


def rows(longhaul, each, times):
    for control in CONTROLS:
        for rate in RATES:
            for rtt in RTTS:
                for loss in LOSSES:
                    yield cell(longhaul, rate, rtt, loss, control, each, times)


def main():
    longhaul, each, times = os.path.abspath(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], text=True).strip()
    load, day = os.getloadavg()[0], time.strftime("%Y-%m-%d")
    lines = [
        "# The simulator's TCP against the kernel's",
        "",
        f"The table has the goodput of one TCP connection in Mbit/s, over {each} s from the SYN. The queue holds one BDP",
        "(at least 100 packets); only packets towards the receiver are lost. The columns:",
        "",
        f"- *kernel*: Linux's TCP over the emulator, the median of at most {times} runs. In parentheses, the number of runs",
        "  that count: those in which the emulator kept time or, if there are none, all runs.",
        "- *model*: the simulator's TCP, the median and quartiles of 20 seeds.",
        "- *RTT seen*: measured by the kernel.",
        "",
        f"{day}, Linux {platform.release()}, {os.cpu_count()} cores, load {load:.1f} at the start,",
        f"commit {commit}. To measure again: `bash results/tcp-model.sh`.",
        "",
        "| control | rate | RTT | loss | kernel | model | difference | RTT seen | why |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        *rows(longhaul, each, times),
        "",
        RULES,
    ]
    PAGE.write_text("\n".join(lines) + "\n")


main()
