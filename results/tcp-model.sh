#!/bin/bash
# Compares the simulator's TCP with the kernel's in the emulator, and writes tcp-model.md.
#
#   bash results/tcp-model.sh
#
# Needs a build, iperf3, python3, user namespaces, and the kernel's reno and cubic. Variables: LONGHAUL is
# the program, EACH the seconds of a run in the emulator, TIMES the runs of a cell, PAGE the file to write;
# RATES, RTTS and LOSSES choose the cells (for example "1G", "1ms 10ms", "0 1%"). A cell is one congestion
# control (cubic or reno), rate, RTT and loss.
set -euo pipefail
cd "$(dirname "$0")/.."
exec python3 results/tcp-model.py "${LONGHAUL:-target/release/longhaul}" "${EACH:-5}" "${TIMES:-3}"
