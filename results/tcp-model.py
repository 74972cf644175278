"""What tcp-model.sh runs: every cell in the emulator and in the simulator, as a Markdown page."""

import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile

RATES = ["10M", "100M", "1G"]
RTTS = ["1ms", "10ms", "100ms"]
LOSSES = ["0", "0.1%", "1%"]
CONTROLS = {"cubic": "cubic", "reno": "newreno"}
SEEDS = ",".join(str(seed) for seed in range(1, 21))
PAGE = pathlib.Path("results/tcp-model.md")
NOTES = "## Where they differ"
# The kernel's send buffer ends at 4 MB by default: less than a BDP of this grid.
BUFFERS = "echo 4096 65536 67108864 > /proc/sys/net/ipv4/tcp_wmem"

def kernel(longhaul, rate, rtt, loss, control, each):
    """Mbit/s at iperf3's receiver, the RTT that the kernel saw, and whether it counts."""
    words = [longhaul, "emulate", "--rate", rate, "--rtt", rtt, "--loss", "0"]
    words += ["--loss-forward", loss]
    words += ["--run", "b", "iperf3 -s -1 > /dev/null"]
    words += ["--run", "a", f"{BUFFERS}; sleep 0.5; iperf3 -c b -C {control} -t {each} -J"]
    run = subprocess.run(words, capture_output=True, text=True, timeout=each + 60)
    end = json.loads(run.stdout)["end"]
    if "sum_received" not in end:
        return 0, 0, False
    seen = end["streams"][0]["sender"]["mean_rtt"] / 1e3
    return end["sum_received"]["bits_per_second"] / 1e6, seen, "; valid" in run.stderr


def model(longhaul, rate, rtt, loss, control, each):
    """Mbit/s by the simulator over the seeds: median, and the quarters below and above it."""
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
    rates = [json.loads(line)["flows"][0]["goodput_bps"] / 1e6 for line in out.splitlines()]
    return statistics.quantiles(rates, n=4)


def cell(longhaul, rate, rtt, loss, control, each):
    # A run that the machine disturbed is worth little: again, thrice at most.
    for _ in range(3):
        real, seen, valid = kernel(longhaul, rate, rtt, loss, control, each)
        if valid:
            break
    name = CONTROLS[control]
    low, ours, high = model(longhaul, rate, float(rtt.removesuffix("ms")), loss, name, each)
    off = f"{(ours / real - 1) * 100:+.0f} %" if real else "no run"
    mark = "" if valid else " (late)"
    row = f"| {name} | {rate} | {rtt} | {loss} | {real:.2f}{mark} "
    row += f"| {ours:.2f} ({low:.2f} to {high:.2f}) | {off} | {seen:.1f} ms | "
    if loss != "0" and real and abs(ours / real - 1) > 0.15:
        _, again, _ = model(longhaul, rate, seen, loss, name, each)
        row += f"{again:.2f}: {(again / real - 1) * 100:+.0f} %"
    row += " |"
    print(row, file=sys.stderr)
    return row


def rows(longhaul, each):
    for control in CONTROLS:
        for rate in RATES:
            for rtt in RTTS:
                for loss in LOSSES:
                    yield cell(longhaul, rate, rtt, loss, control, each)


def main():
    longhaul, each = os.path.abspath(sys.argv[1]), int(sys.argv[2])
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], text=True).strip()
    lines = [
        "# The simulator's TCP against the kernel's",
        "",
        "Mbit/s of payload that one connection delivers: Linux's own TCP over the emulator, and the",
        f"model in the simulator (median of 20 seeds, and the quartiles), {each} s from the SYN on,",
        "queue of one BDP (at least 100 packets), loss towards the receiver only. One run a cell in",
        "the emulator; `(late)`: it could not keep time on this machine. Where the two differ by over",
        "15 % with loss, the last column has the model on a path of the RTT that the kernel measured.",
        "",
        f"Linux {platform.release()}, {os.cpu_count()} cores, commit {commit}; again:",
        "`bash results/tcp-model.sh`.",
        "",
        "| control | rate | RTT | loss | kernel | model | difference | RTT seen | at that RTT |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        *rows(longhaul, each),
        "",
    ]
    # What was found out about the differences is written by hand below the table: kept.
    if PAGE.exists():
        _, found, notes = PAGE.read_text().partition(NOTES)
        lines.append((found + notes).rstrip())
    PAGE.write_text("\n".join(lines) + "\n")


main()
