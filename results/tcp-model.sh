#!/bin/bash
# Compares the simulator's TCP with the kernel's in the emulator, and writes tcp-model.md.
#
#   bash results/tcp-model.sh
#
# Needs a build, iperf3, python3, user namespaces, and the kernel's reno and cubic. LONGHAUL names
# another build, EACH how many seconds a cell runs in the emulator, TIMES how often, PAGE another
# file; RATES, RTTS and LOSSES other cells ("1G", "1ms 10ms", "0 1%").
set -euo pipefail
cd "$(dirname "$0")/.."
exec python3 results/tcp-model.py "${LONGHAUL:-target/release/longhaul}" "${EACH:-5}" "${TIMES:-3}"
