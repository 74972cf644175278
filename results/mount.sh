#!/usr/bin/env bash
# Sequential read of a mounted file of 1 GB against `cp`, over an emulated path of 1 Gbit/s and
# 100 ms. As root, on a machine that does nothing else:
# [LONGHAUL=BINARY] [RUNS=3] bash results/mount.sh
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."
LONGHAUL=${LONGHAUL:-$PWD/target/release/longhaul}
WORK=$(mktemp -d /dev/shm/longhaul-mount.XXXXXX)
trap 'rm -rf "$WORK"' EXIT
mkdir -p "$WORK"/{client,server,root,mnt}
head -c 1000000000 /dev/urandom > "$WORK/root/file"
ID=$(LONGHAUL_CONFIG_DIR=$WORK/client "$LONGHAUL" id)
cat > "$WORK/a.sh" <<A
set -e
export LONGHAUL_CONFIG_DIR=$WORK/client
until [ -e $WORK/ready ]; do sleep 0.1; done
seconds() { date +%s.%N; }
for run in \$(seq ${RUNS:-3}); do
    start=\$(seconds)
    $LONGHAUL cp -q --accept-new --no-path-memory lh://b/file $WORK/copy
    end=\$(seconds); rm $WORK/copy; echo "cp \$start \$end"
    $LONGHAUL mount --accept-new --cache 256Mi --json lh://b/ $WORK/mnt > $WORK/mounted &
    mount=\$!
    until [ -s $WORK/mounted ]; do sleep 0.05; done
    start=\$(seconds)
    dd if=$WORK/mnt/file of=/dev/null bs=1M status=none
    end=\$(seconds); echo "mount \$start \$end"
    kill \$mount; wait \$mount || true; : > $WORK/mounted
done
touch $WORK/over
A
"$LONGHAUL" emulate --rate 1G --rtt 100ms \
    --run b "LONGHAUL_CONFIG_DIR=$WORK/server $LONGHAUL serve --root $WORK/root --allow $ID > $WORK/log 2>&1 & server=\$!; sleep 1; touch $WORK/ready; until [ -e $WORK/over ]; do sleep 0.2; done; kill \$server; wait \$server || true" \
    --run a "bash $WORK/a.sh" > "$WORK/out" 2> "$WORK/errors" || { cat "$WORK/errors" "$WORK/log" >&2; exit 1; }
awk '/^(\[?a\]?[: ]*)?(cp|mount) /{for (i = 1; i <= NF; i++) if ($i == "cp" || $i == "mount") {printf "%s %.2f s %.0f Mbit/s\n", $i, $(i+2) - $(i+1), 8000 / ($(i+2) - $(i+1))}}' "$WORK/out"
