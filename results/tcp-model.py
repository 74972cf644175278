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
NOTES = pathlib.Path("results/tcp-model.notes.md")
# The kernel's send buffer ends at 4 MB by default: less than a BDP of this grid.
BUFFERS = "echo 4096 65536 67108864 > /proc/sys/net/ipv4/tcp_wmem"


def kernel(longhaul, rate, rtt, loss, control, each):
    """Mbit/s at iperf3's receiver, and whether the emulator vouches for it."""
    words = [longhaul, "emulate", "--rate", rate, "--rtt", rtt, "--loss", "0"]
    words += ["--loss-forward", loss]
    words += ["--run", "b", "iperf3 -s -1 > /dev/null"]
    words += ["--run", "a", f"{BUFFERS}; sleep 0.5; iperf3 -c b -C {control} -t {each} -J"]
    run = subprocess.run(words, capture_output=True, text=True, timeout=each + 60)
    received = json.loads(run.stdout)["end"]["sum_received"]["bits_per_second"]
    return received / 1e6, "; valid" in run.stderr


def model(longhaul, rate, rtt, loss, control, each):
    """Mbit/s by the simulator: mean and spread over the seeds."""
    delay = float(rtt.removesuffix("ms")) / 2
    text = f"""time-limit = "10m"
[topology]
kind = "pair"
[topology.link]
rate = "{rate}"
delay = "{delay}ms"
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
    return statistics.mean(rates), statistics.pstdev(rates)


def rows(longhaul, each):
    for control, name in CONTROLS.items():
        for rate in RATES:
            for rtt in RTTS:
                for loss in LOSSES:
                    # A run that the machine disturbed is not worth anything: again, thrice at most.
                    for _ in range(3):
                        real, valid = kernel(longhaul, rate, rtt, loss, control, each)
                        if valid:
                            break
                    ours, spread = model(longhaul, rate, rtt, loss, name, each)
                    off = (ours / real - 1) * 100
                    mark = "" if valid else " (emulator late)"
                    row = f"| {name} | {rate} | {rtt} | {loss} | {real:.2f}{mark} "
                    row += f"| {ours:.2f} ± {spread:.2f} | {off:+.0f} % |"
                    print(row, file=sys.stderr)
                    yield row


def main():
    longhaul, each = os.path.abspath(sys.argv[1]), int(sys.argv[2])
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], text=True).strip()
    lines = [
        "# The simulator's TCP against the kernel's",
        "",
        "Mbit/s of payload that one connection delivers: Linux's own TCP over the emulator, and the",
        f"model in the simulator (mean and standard deviation of 20 seeds), {each} s from the SYN on,",
        "queue of one BDP (at least 100 packets), loss towards the receiver only. One run a cell in",
        "the emulator: where packets are lost, two runs of the kernel differ as much as two seeds.",
        "",
        f"Linux {platform.release()}, {os.cpu_count()} cores, commit {commit}; again:",
        "`bash results/tcp-model.sh`.",
        "",
        "| congestion control | rate | RTT | loss | kernel | model | difference |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *rows(longhaul, each),
        "",
    ]
    if NOTES.exists():
        lines.append(NOTES.read_text().rstrip())
    PAGE.write_text("\n".join(lines) + "\n")


main()
