#!/usr/bin/env bash
# Makes the measurements of the hand-written pages in results/. Run it as root, on a machine that does
# nothing else:
# bash results/figures.sh [throughput|pairs|protocols|stalls|wan|ssh|tcp|memory|small|resume|multi|striping|mounted|ranges|rooms|streams|sharing|watching|senders|join|takeover|beside|alone|shares|all]
# all, the default, runs wan, ssh, tcp, resume, multi, throughput, protocols, small and memory.
# Three more names write their pages: emulator (accuracy; the table of emulator.md), simulator (speed;
# simulator.md) and scheduler (GTP's decisions; scheduler.md).
# Needs: cargo build --release (done here), ip, bc, and for the comparisons iperf3, rsync, scp, sshd. Some
# measurements need further programs: strace, openssl, GNU time, curl, mosquitto, redis-server, etcd.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."
# LONGHAUL=/another/binary bash results/figures.sh wan: measures that binary instead of a new build.
[ "${LONGHAUL:-}" ] || cargo build --release --quiet
LONGHAUL=${LONGHAUL:-$PWD/target/release/longhaul}
WORK=$(mktemp -d /dev/shm/longhaul-figures.XXXXXX)
RUNS_GIVEN=${RUNS:-}
RUNS=${RUNS:-5}
export LONGHAUL_CONFIG_DIR=$WORK/client
mkdir -p "$WORK"/{client,server,root,here}
ID=$("$LONGHAUL" id)
NS_A=lhfig-a-$$ NS_B=lhfig-b-$$

cleanup() {
    stop_server
    ip netns del "$NS_A" 2>/dev/null || true
    ip netns del "$NS_B" 2>/dev/null || true
    rm -rf "$WORK"
}
stop_server() {
    if [ -n "${SERVER:-}" ]; then kill "$SERVER" 2>/dev/null || true; wait "$SERVER" 2>/dev/null || true; fi
    SERVER=
}
trap cleanup EXIT

# Two namespaces joined by a veth pair: the unshaped path.
namespaces() {
    ip netns add "$NS_A"; ip netns add "$NS_B"
    ip link add "a$$" netns "$NS_A" mtu 1500 type veth peer name "b$$" netns "$NS_B"
    ip -n "$NS_A" addr add 10.78.0.1/24 dev "a$$"; ip -n "$NS_B" addr add 10.78.0.2/24 dev "b$$"
    for ns in "$NS_A" "$NS_B"; do ip -n "$ns" link set lo up; done
    ip -n "$NS_A" link set "a$$" up; ip -n "$NS_B" link set "b$$" up
}
in_a() { ip netns exec "$NS_A" "$@"; }
in_b() { ip netns exec "$NS_B" "$@"; }

# Touches the memory that a run will use. If the host of this virtual machine has reclaimed a page, the
# first touch of the page costs ten times as much as later touches.
touch_memory() { head -c "$1" /dev/zero > "$WORK/touched"; rm "$WORK/touched"; }

serve() {
    stop_server
    rm -f "$WORK/ready"; mkfifo "$WORK/ready"
    LONGHAUL_CONFIG_DIR=$WORK/server ip netns exec "$NS_B" ${UNDER:-} "$LONGHAUL" serve --listen 10.78.0.2:7717 --root "$WORK/root" \
        --allow "$ID" --allow-plain "$@" > "$WORK/ready" 2>"$WORK/server.log" &
    SERVER=$!
    read -r _ < "$WORK/ready"
}
field() { grep -o "\"$1\":[^,}]*" | tail -1 | cut -d: -f2; }
median() { sort -n | awk '{v[NR]=$1} END {print v[int((NR+1)/2)]}'; }
# Writes the script $WORK/clocked. Its arguments are a file and a command; it runs the command, and writes
# the seconds from start to exit, by the shell's clock, to the file.
clocked() {
    cat > "$WORK/clocked" <<'BASH'
#!/usr/bin/env bash
wall=$1; shift
began=$EPOCHREALTIME; "$@"; status=$? ended=$EPOCHREALTIME
bc <<< "$ended - $began" > "$wall"
exit $status
BASH
    chmod +x "$WORK/clocked"
}
calc() { bc <<< "$*"; }
# User and system seconds of a process so far; its resident memory now, and its peak, in MB.
cpu_of() { awk -v hz="$(getconf CLK_TCK)" '{print ($14+$15)/hz}' "/proc/$1/stat"; }
rss_of() { awk '/VmRSS/ {print $2/1000}' "/proc/$1/status"; }
peak_of() { awk '/VmHWM/ {print $2/1000}' "/proc/$1/status"; }

# Writes the keys and the configuration of an sshd that listens at address $1, and sets SSH_OPTIONS for
# its clients.
sshd_config() {
    [ -e "$WORK/key" ] || { ssh-keygen -q -t ed25519 -N '' -f "$WORK/key"; ssh-keygen -q -t ed25519 -N '' -f "$WORK/host"; }
    mkdir -p /run/sshd
    printf 'Port 22\nListenAddress %s\nHostKey %s\nAuthorizedKeysFile %s\nStrictModes no\nPidFile none\nSubsystem sftp internal-sftp\nSetEnv LONGHAUL_CONFIG_DIR=%s\n' \
        "$1" "$WORK/host" "$WORK/key.pub" "$WORK/server" > "$WORK/sshd"
    SSH_OPTIONS="-i $WORK/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
}
# The aim for the time of a copy in seconds (`bound` in transfer.md), from the copy's bytes and the loss.
bound() { awk -v bytes="$1" -v l="$2" 'BEGIN {c=1e9*1472/1538; printf "%.3f", 1.03*bytes*8/(c*(1-l))+0.5}'; }

throughput() {
    namespaces
    local size=2000000000
    head -c $size /dev/urandom > "$WORK/here/object"
    echo "| cipher | receive | Gbit/s (median of $RUNS) | CPU s/GB sending | CPU s/GB receiving | bound by |"
    echo "| --- | --- | --- | --- | --- | --- |"
    for way in "none naive" "none scatter" "aes-128-gcm naive" "aes-128-gcm scatter" "chacha20-poly1305 naive"; do
        read -r cipher receive <<< "$way"
        : > "$WORK/rates"; local sending=0 receiving=0 bound=
        for _ in $(seq "$RUNS"); do
            rm -rf "$WORK/root"/*; touch_memory $size; serve
            in_a "$LONGHAUL" cp --accept-new --json -q --cipher "$cipher" --receive "$receive" \
                "$WORK/here/object" lh://10.78.0.2/ > "$WORK/out"
            field goodput_bps < "$WORK/out" >> "$WORK/rates"
            sending=$(field cpu_seconds < "$WORK/out"); receiving=$(cpu_of "$SERVER")
            bound=$(field bound_by < "$WORK/out")
        done
        awk -v r="$(median < "$WORK/rates")" -v s="$sending" -v g="$receiving" -v c="$cipher" -v v="$receive" -v b="$bound" \
            'BEGIN {printf "| %s | %s | %.2f | %.2f | %.2f | %s |\n", c, v, r/1e9, s/2, g/2, b}'
    done
    stop_server
    if command -v iperf3 >/dev/null; then
        in_b iperf3 -s -1 -D >/dev/null; sleep 0.5
        in_a iperf3 -c 10.78.0.2 -t 5 -J | grep -o '"bits_per_second":[^,]*' | tail -1 |
            cut -d: -f2 | awk '{printf "| TCP | iperf3, memory only | %.2f | | | |\n", $1/1e9}'
    fi
    cargo bench --quiet -p longhaul-transfer --bench pipeline -- run "netns=$NS_A,$NS_B" to=10.78.0.2 "dir=$WORK" size=1024
}

# Runs two binaries in pairs on the unshaped path. The order within a pair alternates (A B, B A, …), so
# that the warm-up by the first run cancels out. Prints by how many per cent this binary exceeds OTHER in
# goodput, and in CPU of each end: the geometric mean over the pairs with its 95 % confidence interval.
# OTHER=/path/to/longhaul RUNS=12 bash results/figures.sh pairs
# WAYS: the cases, as "CIPHER RECEIVE;…". BYTES: size of the object.
pairs() {
    : "${OTHER:?the other binary}"
    local size=${BYTES:-2000000000} mine=$LONGHAUL run order one cipher receive way
    [ "$RUNS_GIVEN" ] || RUNS=12
    namespaces
    head -c "$size" /dev/urandom > "$WORK/here/object"
    echo "| cipher | receive | pairs | goodput, Gbit/s | of the other's | CPU sending | CPU receiving |"
    echo "| --- | --- | --- | --- | --- | --- | --- |"
    IFS=';' read -ra ways <<< "${WAYS:-aes-128-gcm naive;aes-128-gcm scatter;chacha20-poly1305 naive;none naive;none scatter}"
    for way in "${ways[@]}"; do
        read -r cipher receive <<< "$way"
        : > "$WORK/pairs"
        for run in $(seq "$RUNS"); do
            order=("$mine" "$OTHER"); [ $((run % 2)) -eq 1 ] || order=("$OTHER" "$mine")
            for one in "${order[@]}"; do
                LONGHAUL=$one
                rm -rf "$WORK/root"/*; touch_memory "$size"; serve
                in_a "$LONGHAUL" cp --accept-new --json -q --cipher "$cipher" --receive "$receive" \
                    "$WORK/here/object" lh://10.78.0.2/ > "$WORK/out"
                echo "$run" "$([ "$one" = "$mine" ] && echo mine || echo other)" "$(field goodput_bps < "$WORK/out")" \
                    "$(field cpu_seconds < "$WORK/out")" "$(cpu_of "$SERVER")" >> "$WORK/pairs"
            done
        done
        LONGHAUL=$mine
        awk -v c="$cipher" -v v="$receive" '
            function interval(sum, squares,   mean, half) {
                # Approximates Student'"'"'s t (95 %, two-sided) to 2 % for 9 to 30 pairs.
                mean = sum / n; half = (1.96 + 2.6 / (n - 1)) * sqrt((squares - n * mean * mean) / (n - 1) / n)
                return sprintf("%+.1f %% (%+.1f to %+.1f)", 100 * (exp(mean) - 1), 100 * (exp(mean - half) - 1), 100 * (exp(mean + half) - 1))
            }
            {for (i = 3; i <= 5; i++) x[$1, $2, i] = $i; n = $1 > n ? $1 : n; if ($2 == "mine") all += $3}
            END {
                for (k = 1; k <= n; k++) for (i = 3; i <= 5; i++) {
                    d = log(x[k, "mine", i] / x[k, "other", i]); s[i] += d; q[i] += d * d
                }
                printf "| %s | %s | %d | %.2f | %s | %s | %s |\n", c, v, n, all / n / 1e9, interval(s[3], q[3]), interval(s[4], q[4]), interval(s[5], q[5])
            }' "$WORK/pairs"
    done
}

# CPU of both ends per gigabyte, for each protocol on the same path. RUNS: runs of each protocol (3).
# BYTES: size of the object. Each protocol finds its rate; RATE=1.7G gives all protocols the same rate.
protocols() {
    [ -n "$(ip netns list | grep "$NS_A" || true)" ] || namespaces
    local size=${BYTES:-1000000000} names name
    [ "$RUNS_GIVEN" ] || RUNS=3
    head -c "$size" /dev/urandom > "$WORK/here/object"
    names=$({ "$LONGHAUL" cp --protocol '?' a b 2>&1 || true; } | sed -n 's/.*possible values: \(.*\)\]/\1/p' | tr -d ,)
    for _ in $(seq "$RUNS"); do for name in $names; do
        rm -rf "$WORK/root"/*; touch_memory "$size"; serve
        in_a "$LONGHAUL" cp --accept-new --json -q ${RATE:+--rate "$RATE"} --protocol "$name" "$WORK/here/object" lh://10.78.0.2/ > "$WORK/out"
        echo "$(field cpu_seconds < "$WORK/out") $(cpu_of "$SERVER") $(field goodput_bps < "$WORK/out") $(field sent < "$WORK/out") $(field retransmitted < "$WORK/out")" >> "$WORK/cost-$name"
    done; done
    stop_server
    echo "| protocol | CPU s/GB sending | receiving | both (median of $RUNS) | of RBUDP's | Gbit/s | sent again |"
    echo "| --- | --- | --- | --- | --- | --- | --- |"
    local both; both=$(awk '{print $1 + $2}' "$WORK/cost-rbudp" | median)
    for name in $names; do
        awk '{print $1 + $2, $0}' "$WORK/cost-$name" | sort -n | awk -v r="$both" -v n="$name" -v s="$size" '
            {row[NR] = $0} END {split(row[int((NR + 1) / 2)], v, " "); g = s / 1e9
            printf "| %s | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f %% |\n", n, v[2] / g, v[3] / g, v[1] / g, v[1] / r, v[4] / 1e9, (v[5] ? 100 * v[6] / v[5] : 0)}'
    done
}

# Each protocol at 400 Mbit/s to a disk that stalls for a quarter of a second after each 16 MiB. Needs
# strace, which delays the writes.
stalls() {
    [ -n "$(ip netns list | grep "$NS_A" || true)" ] || namespaces
    local names name under way
    [ "$RUNS_GIVEN" ] || RUNS=3
    head -c 300000000 /dev/urandom > "$WORK/here/object"
    names=$({ "$LONGHAUL" cp --protocol '?' a b 2>&1 || true; } | sed -n 's/.*possible values: \(.*\)\]/\1/p' | tr -d ,)
    for _ in $(seq "$RUNS"); do for name in $names; do for way in even stalling; do
        rm -rf "$WORK/root"/*; touch_memory 300000000
        under="strace -D -f -qq -o $WORK/strace -e trace=pwrite64"
        [ $way = even ] || under="$under -e inject=pwrite64:delay_exit=250000:when=16+16"
        UNDER=$under serve
        in_a "$LONGHAUL" cp --accept-new --json -q --protocol "$name" --rate 400M "$WORK/here/object" lh://10.78.0.2/ > "$WORK/out"
        cmp "$WORK/here/object" "$WORK/root/object"
        field seconds < "$WORK/out" >> "$WORK/stalls-$name-$way"
        grep -c DELAYED "$WORK/strace" >> "$WORK/stood-$name-$way" || true
    done; done; done
    stop_server
    echo "| protocol | seconds, a disk that keeps up (median of $RUNS) | a disk that stalls | seconds of stalls | ratio |"
    echo "| --- | --- | --- | --- | --- |"
    for name in $names; do
        awk -v n="$name" -v a="$(median < "$WORK/stalls-$name-even")" -v b="$(median < "$WORK/stalls-$name-stalling")" \
            -v d="$(median < "$WORK/stood-$name-stalling")" 'BEGIN {printf "| %s | %.2f | %.2f | %.2f | %.2f |\n", n, a, b, d / 4, b / a}'
    done
}

# Copies 300 MB and 20 MB over 1 Gbit/s and 100 ms at each loss, and measures the time from the start of
# the command to its exit by the shell's clock. Two more columns: from the start to the first data (aim: 1
# RTT), and from the last block's arrival, repairs included, to the exit (aim: 0.5 RTT). Both come from the
# program's own clock, plus the time by which the shell's measurement is longer than the program's.
# One case alone: OBJECTS=20MB LOSSES=0.01 RATES=940M.
wan() {
    clocked
    local object loss rate run
    echo "| object | loss | rate | seconds, start to exit (median of $RUNS) | bound 1.03·S/(C·(1−L)) + 5 RTT | waste | L/(1−L) | start to first data (aim 1 RTT) | last block to exit (aim 0.5 RTT) |"
    echo "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for object in ${OBJECTS:-300MB 20MB}; do
    head -c "${object%MB}000000" /dev/urandom > "$WORK/here/$object"
    for loss in ${LOSSES:-0 0.001 0.01 0.05}; do for rate in ${RATES:-940M found}; do
        local flag=(); [ "$rate" = found ] || flag=(--rate "$rate")
        : > "$WORK/seconds"; : > "$WORK/wastes"; : > "$WORK/setups"; : > "$WORK/ends"
        for run in $(seq "$RUNS"); do
            rm -rf "$WORK/root"/*; rm -f "$WORK/ready" ; mkfifo "$WORK/ready"
            "$LONGHAUL" emulate --rate 1G --rtt 100ms --loss $loss --seed "$run" \
                --run b "LONGHAUL_CONFIG_DIR=$WORK/server exec $LONGHAUL serve --root $WORK/root --allow $ID > $WORK/ready" \
                --run a "read -r _ < $WORK/ready; $WORK/clocked $WORK/wall $LONGHAUL cp --accept-new --json -q --protocol rbudp ${flag[*]} $WORK/here/$object lh://b/" \
                > "$WORK/out" 2>"$WORK/emulator"
            cmp "$WORK/here/$object" "$WORK/root/$object"
            grep -q '; valid' "$WORK/emulator" || echo "(the emulator was the bottleneck: $(tail -1 "$WORK/emulator"))" >&2
            local wall beside; wall=$(cat "$WORK/wall"); beside=$(calc "$wall - $(field seconds < "$WORK/out")")
            echo "$wall" >> "$WORK/seconds"; field waste < "$WORK/out" >> "$WORK/wastes"
            calc "$(field setup_seconds < "$WORK/out") + $beside" >> "$WORK/setups"
            calc "$wall - $(field last_block_seconds < "$WORK/out")" >> "$WORK/ends"
        done
        awk -v o="$object" -v l="$loss" -v r="$rate" -v s="$(median < "$WORK/seconds")" -v w="$(median < "$WORK/wastes")" -v f="$(median < "$WORK/setups")" \
            -v e="$(median < "$WORK/ends")" -v b="$(bound "$(stat -c %s "$WORK/here/$object")" "$loss")" \
            'BEGIN {printf "| %s | %.1f %% | %s | %.3f | %.3f | %.2f %% | %.2f %% | %.2f RTT | %.2f RTT |\n", o, l*100, r, s, b, w*100, 100*l/(1-l), f*10, e*10}'
    done; done; done
}

# A file of 1 GB over 1 Gbit/s and 100 ms: copied by `longhaul cp`, and by `cp` from a folder that `longhaul
# mount` shows.
mounted() {
    clocked
    local size=${BYTES:-1000000000} loss run way
    head -c "$size" /dev/urandom > "$WORK/root/file"; mkdir -p "$WORK/mount"
    echo "| loss | cp, s (median of $RUNS) | the mounted file, s | of cp's rate |"
    echo "| --- | ---: | ---: | ---: |"
    for loss in ${LOSSES:-0 0.001}; do
        : > "$WORK/cp-walls"; : > "$WORK/mount-walls"
        for run in $(seq "$RUNS"); do for way in cp mount; do
            rm -f "$WORK/here/read" "$WORK/ready"; mkfifo "$WORK/ready"; touch_memory "$size"
            local command="$WORK/clocked $WORK/wall $LONGHAUL cp --accept-new --no-path-memory -q lh://b/file $WORK/here/read"
            [ "$way" = cp ] || command="$LONGHAUL mount --accept-new --json lh://b/ $WORK/mount > $WORK/mounted & m=\$!
                until grep -q mounted $WORK/mounted; do kill -0 \$m || exit 1; sleep 0.05; done
                $WORK/clocked $WORK/wall cp $WORK/mount/file $WORK/here/read; kill \$m; wait \$m || true"
            "$LONGHAUL" emulate --rate 1G --rtt 100ms --loss "$loss" --seed "$run" \
                --run b "LONGHAUL_CONFIG_DIR=$WORK/server exec $LONGHAUL serve --root $WORK/root --allow $ID > $WORK/ready" \
                --run a "read -r _ < $WORK/ready; $command" > "$WORK/out" 2>"$WORK/emulator"
            cmp "$WORK/root/file" "$WORK/here/read"
            grep -q '; valid' "$WORK/emulator" || echo "(the emulator was the bottleneck: $(tail -1 "$WORK/emulator"))" >&2
            cat "$WORK/wall" >> "$WORK/$way-walls"
        done; done
        awk -v l="$loss" -v c="$(median < "$WORK/cp-walls")" -v m="$(median < "$WORK/mount-walls")" \
            'BEGIN {printf "| %s %% | %.2f | %.2f | %.2f |\n", l*100, c, m, c/m}'
    done
}

# 1,000 ranges of 64 KiB of a file over 1 Gbit/s and 100 ms. One `cat` reads them over an unknown path.
# Then a copy remembers the path, and another `cat` reads them. Both are timed from start to exit. Then
# two calls of `read_ranges` on an open file read them; the example program measures the time of each
# call. LOSS: the path's loss.
ranges() {
    clocked
    # An address, because a name could lead to IPv4 in one run and to IPv6 in another.
    local at=10.77.0.2 run words way example=${EXAMPLE:-$PWD/target/release/examples/ranges}
    [ "${EXAMPLE:-}" ] || cargo build --release --quiet -p longhaul --example ranges
    head -c 100000000 /dev/urandom > "$WORK/root/file"
    words=$(for way in $(seq 0 100000 99900000); do printf ' --range=%d-%d' "$way" $((way + 65536)); done)
    for run in $(seq "$RUNS"); do
        rm -f "$WORK/ready" "$WORK/client/paths" "$WORK/here/copy"; mkfifo "$WORK/ready"; touch_memory 300000000
        "$LONGHAUL" emulate --rate 1G --rtt 100ms --loss "${LOSS:-0}" --seed "$run" \
            --run b "LONGHAUL_CONFIG_DIR=$WORK/server exec $LONGHAUL serve --root $WORK/root --allow $ID > $WORK/ready" \
            --run a "set -e; read -r _ < $WORK/ready
                $WORK/clocked $WORK/unknown $LONGHAUL cat --accept-new $words lh://$at/file > $WORK/here/unknown
                $LONGHAUL cp --accept-new -q lh://$at/file $WORK/here/copy
                $WORK/clocked $WORK/known $LONGHAUL cat $words lh://$at/file > $WORK/here/known
                $example lh://$at file $WORK/client/paths > $WORK/calls" \
            > "$WORK/out" 2>"$WORK/emulator"
        for way in unknown known; do
            for _ in $(seq 1000); do head -c 65536; head -c 34464 > /dev/null; done < "$WORK/root/file" |
                cmp - "$WORK/here/$way"
            cat "$WORK/$way" >> "$WORK/$way-all"
        done
        local first second; read -r first second < "$WORK/calls"
        echo "$first" >> "$WORK/first-all"; echo "$second" >> "$WORK/second-all"
        grep -q '; valid' "$WORK/emulator" || echo "(the emulator was the bottleneck: $(tail -1 "$WORK/emulator"))" >&2
    done
    echo "| 1,000 ranges of 64 KiB | seconds (median of $RUNS) | least | most |"
    echo "| --- | ---: | ---: | ---: |"
    while read -r way words; do
        echo "| $words | $(median < "$WORK/$way-all") | $(sort -n "$WORK/$way-all" | head -1) | $(sort -n "$WORK/$way-all" | tail -1) |"
    done << 'END'
unknown `cat`, start to exit, unknown path
known `cat`, start to exit, path remembered by a copy
first first `read_ranges` of an open file, path remembered
second second `read_ranges` of the same file
END
}

# Rooms with many subscribers, compared with mosquitto, and with zenoh if the Python that ZENOH names
# (default python3) has the package zenoh.
rooms() {
    echo "| server | subscribers | messages/s | delivered | lost | delay, median, ms | 99 %, ms | longest, ms | server, CPU s per 10^6 | subscribers and senders |"
    echo "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    LONGHAUL_ROOM_LOAD=1 cargo test --quiet --release --workspace --features longhaul/tokio --locked --test main \
        net::room_load -- --nocapture 2>&1 | grep '^|'
    if "${ZENOH:-python3}" -c 'import zenoh' 2>/dev/null; then "${ZENOH:-python3}" results/rooms-zenoh.py; fi
}

# The shared tree, compared with Redis and etcd (Debian's redis-server, etcd-server). Each of the three
# syncs a change to the disk of $DISK before it answers. PARTS: some of watchers, delay, memory. SERVERS:
# some of longhaul, redis, etcd.
share_server() { # Prints the command that starts the server $1.
    case $1 in
        longhaul) echo "env LONGHAUL_CONFIG_DIR=$WORK/server $LONGHAUL serve -q --listen 0.0.0.0:7717 --root $WORK/root --share $DISK/tree --allow $ID,share=rw" ;;
        redis) echo "redis-server --bind 0.0.0.0 --protected-mode no --port 7717 --dir $DISK --save '' --appendonly yes --appendfsync always" ;;
        etcd) echo "etcd --log-level error --data-dir $DISK/etcd --listen-client-urls http://0.0.0.0:7717 --advertise-client-urls http://127.0.0.1:7717 --listen-peer-urls http://127.0.0.1:7718 --initial-advertise-peer-urls http://127.0.0.1:7718 --initial-cluster default=http://127.0.0.1:7718" ;;
    esac
}
share_start() {
    stop_server
    rm -rf "${DISK:?}"/*
    eval "exec $(share_server "$1")" > "$WORK/server.log" 2>&1 &
    SERVER=$!
    share_ready 127.0.0.1
}
share_ready() { until (exec 3<> "/dev/tcp/$1/7717") 2>/dev/null; do sleep 0.1; done; }
# Arguments: SERVER HOST PID WATCHERS WRITERS DEPTH RATE SECONDS CHANGES; share_load.rs explains them.
share_load() {
    LONGHAUL_SHARE_LOAD="$1 $2 7717 $(LONGHAUL_CONFIG_DIR=$WORK/server "$LONGHAUL" id) ${*:3}" \
        "$LOAD" --quiet net::share_load --nocapture 2>&1 | tee -a "$WORK/load.log" | grep '^|' || echo "| $1 | failed |"
}
sharing() {
    # A new folder below $DISK: the measurement empties and removes it.
    mkdir -p "${DISK:=$PWD/target}"
    DISK=$(mktemp -d "$DISK/figures-share.XXXXXX")
    local candidate
    [ "${LOAD:-}" ] || for candidate in $(cargo test --release --workspace --features longhaul/tokio --locked --test main --no-run 2>&1 | sed -n 's/.*Executable.*(\(.*\))/\1/p'); do
        ! "$candidate" --list 2> /dev/null | grep -q net::share_load || LOAD=$candidate
    done
    local part server watchers
    for part in ${PARTS:-watchers delay memory}; do
        case $part in
            watchers)
                echo "| server | watchers | writers | updates/s | delivered | of all | delay, median, ms | 90 % | 99 % | longest | server, CPU s | writing, s | last arrival, s |"
                echo "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
                for watchers in 1 50 500; do
                    : > "$WORK/rows"
                    for _ in $(seq "${RUNS_GIVEN:-3}"); do for server in ${SERVERS:-longhaul redis etcd}; do
                        share_start "$server"
                        share_load "$server" 127.0.0.1 "$SERVER" "$watchers" 1 64 0 "${SECONDS_EACH:-3}" 0 >> "$WORK/rows"
                    done; done
                    # Keeps the run with the median rate.
                    for server in ${SERVERS:-longhaul redis etcd}; do
                        grep "^| $server " "$WORK/rows" | sort -t'|' -k5 -n | awk '{row[NR] = $0} END {print row[int((NR + 1) / 2)]}'
                    done
                done ;;
            delay)
                echo "| server | watchers | updates/s | of all | delay, median, ms | 90 % | 99 % | longest |"
                echo "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
                for server in ${SERVERS:-longhaul redis etcd}; do
                    rm -rf "${DISK:?}"/*
                    { declare -p LOAD LONGHAUL WORK; declare -f share_load share_ready; echo "share_ready b; share_load $server b 0 10 1 64 100 20 0"; } > "$WORK/watches"
                    "$LONGHAUL" emulate --rate 1G --rtt 100ms --loss 0.01 --seed 1 \
                        --run b "exec $(share_server "$server") > $WORK/server.log 2>&1" \
                        --run a "bash $WORK/watches" \
                        2> "$WORK/emulator" | grep '^|' | awk -F'|' '{print "|" $2 "|" $3 "|" $5 "|" $7 "|" $8 "|" $9 "|" $10 "|" $11 "|"}'
                done ;;
            memory)
                echo "| server | keys | filled in, s | memory, MB | on the disk, MB |"
                echo "| --- | ---: | ---: | ---: | ---: |"
                for server in ${SERVERS:-longhaul redis etcd}; do
                    share_start "$server"
                    local seconds
                    seconds=$(share_load "$server" 127.0.0.1 0 0 4 64 0 1000 250000 | awk -F' *[|] *' '{print $13}')
                    printf '| %s | 1000000 | %.1f | %.0f | %.0f |\n' "$server" "$seconds" "$(rss_of "$SERVER")" "$(du -s -B1000 "$DISK" | awk '{print $1/1000}')"
                done ;;
        esac
    done
    stop_server; rm -rf "$DISK"
}

# CPU time of a server with 0, 1 and 10 readers of its events (open pages), while it receives a copy at
# 500 Mbit/s and at full rate (RATES). Medians of RUNS.
watching() {
    local pages rate run size before
    namespaces
    head -c 30 /dev/urandom | base64 | tr -d '+/\n' > "$WORK/token"; chmod 600 "$WORK/token"
    echo "| copy | pages | goodput, Mbit/s | server, CPU s a minute | CPU s a GB |"
    echo "| --- | ---: | ---: | ---: | ---: |"
    for rate in ${RATES:-500M full}; do
        local flag=(); size=${BYTES:-4000000000}; [ "$rate" = full ] || { flag=(--bwlimit "$rate"); size=${SLOW:-900000000}; }
        head -c "$size" /dev/urandom > "$WORK/here/x"
        for pages in 0 1 10; do
            : > "$WORK/rates"; : > "$WORK/minutes"; : > "$WORK/gigabytes"
            for run in $(seq "$RUNS"); do
                rm -rf "$WORK/root"/*; touch_memory "$size"
                serve --ui 127.0.0.1:7719 --ui-token "$WORK/token"
                local readers=()
                for _ in $(seq "$pages"); do
                    in_b curl -sN "http://127.0.0.1:7719/events?token=$(cat "$WORK/token")" > /dev/null & readers+=($!)
                done
                before=$(cpu_of "$SERVER")
                in_a "$LONGHAUL" cp --accept-new --no-path-memory --json -q "${flag[@]}" "$WORK/here/x" lh://10.78.0.2/ > "$WORK/out"
                local used seconds; used=$(calc "$(cpu_of "$SERVER") - $before"); seconds=$(field seconds < "$WORK/out")
                [ "$pages" = 0 ] || { kill "${readers[@]}"; wait "${readers[@]}" || true; } 2>/dev/null
                calc "scale=2; $(field goodput_bps < "$WORK/out") / 1000000" >> "$WORK/rates"
                calc "scale=3; $used * 60 / $seconds" >> "$WORK/minutes"; calc "scale=3; $used * 1000000000 / $size" >> "$WORK/gigabytes"
            done
            printf '| %s | %s | %.0f | %.2f | %.3f |\n' "$rate" "$pages" "$(median < "$WORK/rates")" "$(median < "$WORK/minutes")" "$(median < "$WORK/gigabytes")"
        done
    done
}

# The copy of 300 MB on the path of `wan` at 1 % loss, started through a real sshd on the far host.
ssh_copy() {
    [ -x /usr/sbin/sshd ] || { echo "(no sshd: the copy over ssh is left out)" >&2; return; }
    clocked
    head -c 300000000 /dev/urandom > "$WORK/here/300MB"
    : > "$WORK/seconds"; : > "$WORK/wastes"; : > "$WORK/setups"; : > "$WORK/logins"
    for run in $(seq "$RUNS"); do
        rm -rf "$WORK/root"/* "$WORK/sshd.log"; sshd_config 0.0.0.0
        "$LONGHAUL" emulate --rate 1G --rtt 100ms --loss 1% --seed "$run" \
            --run b "exec /usr/sbin/sshd -D -e -f $WORK/sshd 2> $WORK/sshd.log" \
            --run a "until grep -q listening $WORK/sshd.log; do sleep 0.02; done
                start=\$(date +%s.%N); ssh $SSH_OPTIONS b true; echo \"\$(date +%s.%N) - \$start\" | bc >> $WORK/logins
                $WORK/clocked $WORK/wall $LONGHAUL cp --json -q --protocol rbudp --rate 940M \
                -e 'ssh $SSH_OPTIONS' --remote-path $LONGHAUL $WORK/here/300MB b:$WORK/root/" \
            > "$WORK/out" 2>"$WORK/emulator"
        cmp "$WORK/here/300MB" "$WORK/root/300MB"
        grep -q '; valid' "$WORK/emulator" || echo "(the emulator was the bottleneck: $(tail -1 "$WORK/emulator"))" >&2
        cat "$WORK/wall" >> "$WORK/seconds"; field waste < "$WORK/out" >> "$WORK/wastes"
        field setup_seconds < "$WORK/out" >> "$WORK/setups"
    done
    echo "| over ssh, 1 % loss | seconds, start to exit (median of $RUNS) | bound 1.03·S/(C·(1−L)) + 5 RTT | \`ssh b true\` alone takes | waste | first data after |"
    echo "| --- | --- | --- | --- | --- | --- |"
    awk -v s="$(median < "$WORK/seconds")" -v b="$(bound 300000000 0.01)" -v w="$(median < "$WORK/wastes")" -v f="$(median < "$WORK/setups")" -v i="$(median < "$WORK/logins")" \
        'BEGIN {printf "| 300 MB at 940M | %.3f | %.3f | %.3f | %.2f %% | %.0f ms |\n", s, b, i, w*100, f*1000}'
}

# The kernel's TCP on the path of `wan`: the rate of one and of eight streams over 10 s, by the congestion
# control of most systems (CUBIC) and by one that does not slow down with each loss (BBR). The emulated hosts'
# TCP may have 64 MiB in flight.
tcp() {
    local controls="cubic bbr" loss streams control
    echo "| loss | CUBIC, 1 stream | CUBIC, 8 streams | BBR, 1 stream | BBR, 8 streams |"; echo "| --- | --- | --- | --- | --- |"
    for loss in 0 0.001 0.01 0.05; do
        printf '| %s ' "$(awk -v l=$loss 'BEGIN {print l * 100}') %"
        for control in $controls; do for streams in 1 8; do
            "$LONGHAUL" emulate --rate 1G --rtt 100ms --loss $loss --run b 'iperf3 -s -1 > /dev/null' \
                --run a "sleep 0.3; iperf3 -c b -t 10 -P $streams -C $control -J" 2>"$WORK/emulator" | grep -o '"bits_per_second":[^,]*' |
                tail -1 | cut -d: -f2 | awk '{printf "| %.1f Mbit/s ", $1/1e6}'
            grep -q '; valid' "$WORK/emulator" || printf '(emulator late) '
        done; done
        echo "|"
    done
}

# Peak memory of both ends for 2 GB and 20 GB. The files have no holes, because holes would not be read.
memory() {
    [ -n "$(ip netns list | grep "$NS_A" || true)" ] || namespaces
    echo "| object | --memory | seconds | peak MB sending | peak MB receiving |"; echo "| --- | --- | --- | --- | --- |"
    local big=${BIG:-$PWD/target/figures-object}
    for gigabytes in 2 20; do for budget in 64M 512Mi; do
        head -c ${gigabytes}000000000 /dev/zero | openssl enc -aes-128-ctr -K 00000000000000000000000000000000 -iv 00000000000000000000000000000000 > "$big"
        rm -rf "$WORK/root"; mkdir -p "$big.root"; ln -sfn "$big.root" "$WORK/root"; serve --memory $budget
        in_a /usr/bin/time -f %M -o "$WORK/peak" "$LONGHAUL" cp --accept-new --json -q "$big" lh://10.78.0.2/ > "$WORK/out"
        printf '| %s GB | %s | %.1f | %.0f | %.0f |\n' $gigabytes $budget "$(field seconds < "$WORK/out")" "$(awk '{print $1/1000}' "$WORK/peak")" "$(peak_of "$SERVER")"
        stop_server; rm -rf "$WORK/root" "$big.root" "$big"; mkdir -p "$WORK/root"
    done; done
}

# 100,000 files of 1 kB, compared with one file of their total size, and with rsync and scp over the same
# namespaces.
# The programs run in turn, so that other load on the machine affects all of them. The first round does
# not count, because the first touch of memory is slow. The shell's clock times all programs.
# FOLDERS: number of folders with 1,000 files each (default 100).
small() {
    [ -n "$(ip netns list | grep "$NS_A" || true)" ] || namespaces
    mkdir "$WORK/here/many"
    local folder round ssh='' ways="many one cp" way
    for folder in $(seq "${FOLDERS:-100}"); do
        mkdir "$WORK/here/many/$folder"
        head -c 1000000 /dev/urandom | split -b 1000 -a 4 - "$WORK/here/many/$folder/f"
    done
    head -c "${FOLDERS:-100}000000" /dev/urandom > "$WORK/here/one"
    if [ -x /usr/sbin/sshd ] && command -v rsync >/dev/null; then
        ways="$ways rsync"
        sshd_config 10.78.0.2; ssh=$SSH_OPTIONS
        ip netns exec "$NS_B" /usr/sbin/sshd -D -e -f "$WORK/sshd" 2> "$WORK/sshd.log" & local sshd=$!
        until grep -q listening "$WORK/sshd.log"; do sleep 0.02; done
    fi
    for round in $(seq 0 "$RUNS"); do for way in $ways; do
        [ "$way" != many ] && [ "$way" != one ] || serve
        small_by "$way" "$ssh" > "$WORK/out"
        stop_server
        [ "$round" = 0 ] || cat "$WORK/out" >> "$WORK/small-$way"
        rm -rf "$WORK/root"/*
    done; done
    [ -z "${sshd:-}" ] || { small_by scp "$ssh" > "$WORK/small-scp"; kill "$sshd"; wait "$sshd" 2>/dev/null || true; }
    echo "| what | seconds (median of $RUNS) |"; echo "| --- | --- |"
    for way in $ways ${sshd:+scp}; do
        printf '| %s | %.2f |\n' "$(small_name "$way")" "$(median < "$WORK/small-$way")"
    done
}
small_name() {
    case $1 in
        many) echo "longhaul cp -r many" ;; one) echo "longhaul cp one (100 MB in one file)" ;;
        cp) echo "cp -r on this host (what creating the files costs, unsynced)" ;;
        rsync) echo "rsync -a" ;; scp) echo "scp -r (once)" ;;
    esac
}
# Prints the seconds that the program $1 takes for the files; compares longhaul's copies with the originals.
small_by() {
    local many=$WORK/here/many to=root@10.78.0.2:$WORK/root/out began ended
    began=$EPOCHREALTIME
    case $1 in
        many|one) in_a "$LONGHAUL" cp -r --accept-new --json -q "$WORK/here/$1" lh://10.78.0.2/out > "$WORK/told" ;;
        cp) cp -r "$many" "$WORK/root/out" ;;
        rsync) in_a rsync -a -e "ssh $2" "$many" "$to" ;;
        scp) in_a scp -q -r $2 "$many" "$to" ;;
    esac
    ended=$EPOCHREALTIME
    case $1 in many|one) diff -r "$WORK/here/$1" "$WORK/root/out" >&2 ;; esac
    calc "$ended - $began"
}

# The copy of 300 MB at 1 % loss: the sender is killed half-way, and the command is run again.
resume() {
    head -c 300000000 /dev/urandom > "$WORK/here/300MB"
    echo "| killed after | resumed | sent again at most |"; echo "| --- | --- | --- |"
    for run in $(seq "$RUNS"); do
        rm -rf "$WORK/root"/* "$WORK/root"/.3*; rm -f "$WORK/ready" "$WORK/first"; mkfifo "$WORK/ready"
        "$LONGHAUL" emulate --rate 1G --rtt 100ms --loss 1% --seed "$run" \
            --run b "LONGHAUL_CONFIG_DIR=$WORK/server exec $LONGHAUL serve --root $WORK/root --allow $ID > $WORK/ready" \
            --run a "read -r _ < $WORK/ready; ($LONGHAUL cp --accept-new --json -q --rate 940M $WORK/here/300MB lh://b/ > $WORK/first & echo \$! > $WORK/pid; wait); true" \
            --run a "until grep -q '\"sent\":[0-9]\\{6\\}' $WORK/first 2>/dev/null; do sleep 0.02; done; kill -9 \$(cat $WORK/pid); $LONGHAUL cp --accept-new --json -q --rate 940M $WORK/here/300MB lh://b/" \
            > "$WORK/out" 2>/dev/null
        cmp "$WORK/here/300MB" "$WORK/root/300MB"
        awk -v s="$(field sent < "$WORK/first")" -v r="$(field resumed_bytes < "$WORK/out")" \
            'BEGIN {printf "| %.0f MB sent | %.0f MB | %.0f MB |\n", s*1440/1e6, r/1e6, s*1440/1e6-r/1e6}'
    done
}

# Replaces the table of emulator.md: a UDP sender at full rate over one link, a dumbbell and a star.
emulator() {
    local load commit; load=$(cut -d' ' -f1 /proc/loadavg); commit=$(git rev-parse --short HEAD)
    { echo "Load average at the start $load, $(date +%F), commit $commit."; echo
      cargo run --release --quiet -p longhaul-testbed --example blast; } | tee "$WORK/table"
    awk -v table="$WORK/table" '
        /^Load average at the start/ { getline; next }
        /^\| / { if (!done) while ((getline line < table) > 0) print line; done = 1; next }
        { print }' results/emulator.md > "$WORK/emulator.md"
    cp "$WORK/emulator.md" results/emulator.md
}

# CPU time of every protocol in the simulator, and events per second of CPU time.
simulator() {
    cargo bench --quiet -p longhaul-testbed --bench sim > "$WORK/simulator.md"
    cp "$WORK/simulator.md" results/simulator.md; cat results/simulator.md
}
scheduler() {
    cargo bench --quiet -p longhaul-proto --bench scheduler > "$WORK/scheduler.md"
    cp "$WORK/scheduler.md" results/scheduler.md; cat results/scheduler.md
}

# The star of multi: three senders, RTT 25, 50 and 100 ms, into one receiver of 1 Gbit/s. multi measures
# separate objects, two receivers on one host, replicas, and replicas of which one is killed half-way.
# BYTES: size of each object, and of the replicated one.
star() {
    cat > "$WORK/star.toml" <<'TOML'
about = "Three senders into one receiver"
[topology]
kind = "star"
hosts = 4
access = { rate = "1G", queue = "2MB" }
access-delays = ["12.5ms", "25ms", "50ms", "0ms"]
TOML
    for host in 1 2 3; do mkdir -p "$WORK/s$host" "$WORK/root/h$host"; done
}
# Runs the shell command $1 on the receiver, with a server on each sender; further arguments go to the
# emulator, for programs on other hosts.
on_star() {
    local runs=() host
    rm -f "$WORK"/ready[123] "$WORK/here"/*
    for host in 1 2 3; do
        runs+=(--run "h$host" "echo \$\$ > $WORK/pid$host; LONGHAUL_CONFIG_DIR=$WORK/s$host exec $LONGHAUL serve --root $WORK/root/h$host --allow $ID > $WORK/ready$host")
    done
    "$LONGHAUL" emulate "$WORK/star.toml" "${runs[@]}" "${@:2}" \
        --run h4 "until [ -s $WORK/ready1 ] && [ -s $WORK/ready2 ] && [ -s $WORK/ready3 ]; do sleep 0.02; done; $1; kill \$(cat $WORK/pid1 $WORK/pid2 $WORK/pid3) 2>/dev/null; true" \
        > "$WORK/emulated" 2> "$WORK/emulator" || true # a server that is killed counts as failed
    grep -q '; valid' "$WORK/emulator" || echo "(the emulator was the bottleneck: $(tail -1 "$WORK/emulator"))" >&2
}
# Jain's index of the sources' rates: the bytes of each source in the summary, divided by its active time.
# The active time runs from the last progress line before the source's session to the first line that shows
# all bytes of the source, or to the end if no line does. A line has no time, so the time is computed
# from the line's bytes and average rate.
jain() {
    awk '
        function number(text, name) {
            if (!match(text, "\"" name "\":[0-9.e+-]+")) return 0
            return substr(text, RSTART + length(name) + 3, RLENGTH - length(name) - 3) + 0
        }
        # Fills got[] and state[] from a line; returns the number of sources.
        function sources(line,    rows, n, i) {
            sub(/.*"sources":\[/, "", line); sub(/[}]\].*/, "", line); n = split(line, rows, /[}],/)
            for (i = 1; i <= n; i++) {
                got[i] = number(rows[i], "received_bytes"); state[i] = rows[i]
                sub(/.*"state":"/, "", state[i]); sub(/".*/, "", state[i])
            }
            return n
        }
        /"event":"progress"/ {
            if (number($0, "rate_average_bps") > 0) at = number($0, "bytes") * 8 / number($0, "rate_average_bps")
            for (i = sources($0); i > 0; i--) {
                if (state[i] == "connecting" || state[i] == "surveying") began[i] = at
                if (got[i] != had[i]) { had[i] = got[i]; since[i] = at }
            }
        }
        /"event":"summary"/ {
            for (i = n = sources($0); i > 0; i--) {
                time = (got[i] == had[i] ? since[i] : number($0, "seconds")) - began[i]
                rate = (time > 0 ? got[i] / time : 0); s += rate; q += rate * rate
            }
            if (q > 0) print s * s / (n * q)
        }' "$1"
}
multi_row() {
    awk -v w="$1" -v g="$(field goodput_bps < "$2")" -v s="$(field seconds < "$2")" -v l="$(field path_lost < "$2")" -v n="$(field sent < "$2")" -v j="$(jain "$2")" -v e="$(field status < "$2")" \
        'BEGIN {printf "| %s | %.1f | %.1f | %.3f %% | %s | %s |\n", w, g/1e6, s, 100*l/(n ? n : 1), (j == "" ? "" : sprintf("%.3f", j)), e}'
}
multi() {
    local bytes=${BYTES:-600000000} cp="$LONGHAUL cp --accept-new --json -q" share
    star
    for host in 1 2 3; do head -c "$bytes" /dev/urandom > "$WORK/root/h$host/part$host"; done
    head -c "$bytes" /dev/urandom > "$WORK/root/h1/x"; for host in 2 3; do cp "$WORK/root/h1/x" "$WORK/root/h$host/x"; done
    echo "| what | aggregate Mbit/s (ceiling 957 of payload, less 2 % for seals) | seconds | loss | Jain's index | status |"
    echo "| --- | --- | --- | --- | --- | --- |"
    on_star "$cp lh://h1/part1 lh://h2/part2 lh://h3/part3 $WORK/here/ > $WORK/out"
    for host in 1 2 3; do cmp "$WORK/root/h$host/part$host" "$WORK/here/part$host"; done
    multi_row "three sources, three objects" "$WORK/out"
    for share in 50; do
        on_star "$cp --protocol gtp --receive-rate 930M --receive-share $share% lh://h1/part1 $WORK/here/ > $WORK/out1 & $cp --protocol gtp --receive-rate 930M --receive-share $share% lh://h2/part2 $WORK/here/ > $WORK/out; wait"
        multi_row "two receivers on one host, $share % each: the first" "$WORK/out1"
        multi_row "two receivers on one host, $share % each: the second" "$WORK/out"
    done
    on_star "$cp --replicas lh://h1/x lh://h2/x lh://h3/x $WORK/here/x > $WORK/out"
    cmp "$WORK/root/h1/x" "$WORK/here/x"
    multi_row "three replicas" "$WORK/out"
    on_star "$cp --replicas lh://h1/x lh://h2/x lh://h3/x $WORK/here/x > $WORK/out & copy=\$!; until grep '\"event\":\"progress\"' $WORK/out | tail -1 | awk -v h=$((bytes / 2)) 'match(\$0, /\"bytes\":[0-9]+/) {exit !(substr(\$0, RSTART + 8, RLENGTH - 8) > h)} END {if (!NR) exit 1}'; do sleep 0.05; kill -0 \$copy 2>/dev/null || break; done; kill -9 \$(cat $WORK/pid2); wait \$copy"
    cmp "$WORK/root/h1/x" "$WORK/here/x"
    multi_row "three replicas, one killed half-way" "$WORK/out"
}

# SABUL's Table 1, Lambda-FTP with three-way striping: one object from three servers, each over a separate
# path of RATE and 110 ms, into one host, compared with the same object from one server.
# BYTES: size of the object; RATE: of each path; START: SABUL's initial rate.
striping() {
    local bytes=${BYTES:-400000000} rate=${RATE:-250M} cp="$LONGHAUL cp --accept-new --json -q --no-path-memory" way flags
    star
    sed -i "s/access = .*/access = { rate = \"$rate\", queue = \"1bdp\", bdp-rtt = \"110ms\" }/; s/access-delays = .*/access-delays = [\"55ms\", \"55ms\", \"55ms\", \"0ms\"]/" "$WORK/star.toml"
    # The receiver's own link is faster than the three paths together.
    printf '\n[[link]]\nbetween = ["h4", "hub"]\nrate = "10G"\n' >> "$WORK/star.toml"
    sed -i 's/^hosts = 4/hosts = 3/; s/, "0ms"\]/]/' "$WORK/star.toml"
    printf '\n[[host]]\nname = "h4"\n' >> "$WORK/star.toml"
    head -c "$bytes" /dev/urandom > "$WORK/root/h1/x"; for host in 2 3; do cp "$WORK/root/h1/x" "$WORK/root/h$host/x"; done
    echo "| protocol | from | Mbit/s | seconds | loss | by each server, % of the object |"
    echo "| --- | --- | --- | --- | --- | --- |"
    for way in "sabul|--protocol sabul --initial-rate ${START:-225M}" "gtp|--protocol gtp"; do
        flags=${way#*|} way=${way%%|*}
        on_star "$cp $flags lh://h1/x $WORK/here/x > $WORK/out"
        cmp "$WORK/root/h1/x" "$WORK/here/x"
        striping_row "$way" "one server"
        on_star "$cp $flags --replicas lh://h1/x lh://h2/x lh://h3/x $WORK/here/x > $WORK/out"
        cmp "$WORK/root/h1/x" "$WORK/here/x"
        striping_row "$way" "three servers"
    done
}
striping_row() {
    local parts
    parts=$(grep '"event":"summary"' "$WORK/out" | grep -o '"received_bytes":[0-9]*' | cut -d: -f2 |
        awk -v all="$(wc -c < "$WORK/here/x")" '{printf "%s%.0f", (NR > 1 ? ", " : ""), 100 * $1 / all}') || true # a copy from one server has no list of sources
    awk -v p="$1" -v w="$2" -v g="$(field goodput_bps < "$WORK/out")" -v s="$(field seconds < "$WORK/out")" -v l="$(field path_lost < "$WORK/out")" -v n="$(field sent < "$WORK/out")" -v by="$parts" \
        'BEGIN {printf "| %s | %s | %.1f | %.1f | %.3f %% | %s |\n", p, w, g/1e6, s, 100*l/(n ? n : 1), by}'
}

# One case for each number of senders in COUNTS. The senders have RTTs of 2 to 64 ms and an equal part of
# BYTES each; the receiver's link has RATE. Two columns show the largest number of the copy's threads, and
# how many of these receive. The receiver's process has a higher priority, because all hosts of the star
# share the same cores.
senders() {
    local count host rate=${RATE:-200M} bytes runs sources ready stop delays
    echo "| senders | aggregate, Mbit/s of object at $rate of link | seconds | loss | Jain's index of all | threads of the copy | of these receive | status |"
    echo "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for count in ${COUNTS:-8 64}; do
        bytes=$((${BYTES:-512000000} / count))
        runs=() sources="" ready="true" stop="" delays=""
        rm -rf "$WORK"/ready* "$WORK"/pid* "$WORK/root"/* "$WORK/here"/*
        for host in $(seq "$count"); do
            mkdir -p "$WORK/s$host" "$WORK/root/h$host"; head -c "$bytes" /dev/urandom > "$WORK/root/h$host/part$host"
            runs+=(--run "h$host" "echo \$\$ > $WORK/pid$host; LONGHAUL_CONFIG_DIR=$WORK/s$host exec $LONGHAUL serve --root $WORK/root/h$host --allow $ID > $WORK/ready$host")
            sources="$sources lh://h$host/part$host" ready="$ready && [ -s $WORK/ready$host ]" stop="$stop \$(cat $WORK/pid$host)"
            delays="$delays\"$(awk -v i="$host" -v n="$count" 'BEGIN {printf "%.2f", 1 + 31 * (i - 1) / (n - 1)}')ms\", "
        done
        host=$((count + 1))
        printf 'about = "Many senders into one receiver"\n[topology]\nkind = "star"\nhosts = %s\naccess = { rate = "%s", queue = "2MB" }\naccess-delays = [%s"0ms"]\n' "$host" "$rate" "$delays" > "$WORK/star.toml"
        "$LONGHAUL" emulate "$WORK/star.toml" "${runs[@]}" \
            --run "h$host" "until $ready; do sleep 0.1; done; nice -n -15 $LONGHAUL cp --accept-new --json -q $sources $WORK/here/ > $WORK/out & copy=\$!; echo 0 > $WORK/threads; while kill -0 \$copy 2>/dev/null; do cat /proc/\$copy/task/*/comm 2>/dev/null | awk '{n++} /^receive/ {r++} END {print n + 0, r + 0}' >> $WORK/threads; sleep 0.2; done; kill $stop 2>/dev/null; true" \
            > "$WORK/emulated" 2> "$WORK/emulator" || true
        grep -q '; valid' "$WORK/emulator" || echo "(the emulator was the bottleneck: $(tail -1 "$WORK/emulator"))" >&2
        for host in $(seq "$count"); do cmp "$WORK/root/h$host/part$host" "$WORK/here/part$host"; done
        awk -v w="$count" -v g="$(field goodput_bps < "$WORK/out")" -v s="$(field seconds < "$WORK/out")" -v l="$(field path_lost < "$WORK/out")" -v n="$(field sent < "$WORK/out")" \
            -v j="$(jain "$WORK/out")" -v t="$(sort -n "$WORK/threads" | tail -1 | sed 's/ / | /')" -v e="$(field status < "$WORK/out")" \
            'BEGIN {printf "| %s | %.1f | %.1f | %.3f %% | %s | %s | %s |\n", w, g/1e6, s, 100*l/(n ? n : 1), (j == "" ? "" : sprintf("%.3f", j)), t, e}'
    done
}

# The stream of the Quanta paper (800 x 600 pixels of 3 bytes, 20 frames a second) over 1 Gbit/s and
# 100 ms by real sockets: the server and the receiver are on one host. Each way and loss has one run of
# MINUTES (default 0.75), with the delays of each minute, and the memory of sender, server and receiver
# at the end of each minute.
# A frame is late or overdue if a busy machine delayed its datagrams or its delivery; it is lost if too
# few datagrams arrived. Run it with real-time priority, on a machine that does nothing else:
# MINUTES=30 LOSSES=1% chrt -r 10 bash results/figures.sh streams
# WAYS: code (each frame has its own code and a deadline of 120 ms, or DEADLINE), repair (lost datagrams
# are sent again, deadline 500 ms), payloads (10 frames together are one payload of 14.4 MB, due 500 ms
# after the tenth frame, as in the paper). The column `sending rate` applies while a frame or payload
# is sent; the column `UDP payload` is the mean of the run. SERIES: a folder that keeps each run's events.
streams() {
    local way loss frames deadline run size rate
    echo "| way | deadline | loss | frames | on time | late | missed, overdue | missed, lost | skipped | median, ms | 99 % | 99.9 % | longest | sending rate, Mbit/s | UDP payload, Mbit/s | repairs | sent again |"
    echo "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for way in ${WAYS:-code payloads}; do for loss in ${LOSSES:-0.1% 1%}; do
        size=1440000 rate=20 deadline=${DEADLINE:-120ms}
        [ "$way" = code ] || deadline=500ms
        frames=$(awk -v m="${MINUTES:-0.75}" -v r=$rate 'BEGIN {print int(m * 60 * r)}')
        rm -f "$WORK"/{ready,sent,came,pid-*,memory}
        run="until [ -s $WORK/ready ]; do sleep 0.1; done; echo \$\$ >"
        # Runs on an emulated host, because process numbers are valid only there.
        printf '%s\n' "WORK=$WORK" "$(declare -f streams_memory)" "streams_memory $frames $((rate * 60)) > $WORK/memory" > "$WORK/sampler"
        "$LONGHAUL" emulate --rate 1G --rtt 100ms --loss "$loss" --queue 4MB \
            --run b "echo \$\$ > $WORK/pid-server; exec $LONGHAUL reflect --allow $ID,stream=rw > $WORK/ready" \
            --run a "$run $WORK/pid-sender; exec $LONGHAUL stream send --test-pattern --json --frames $frames --frame $size --fps $rate --deadline $deadline --way $way ${FLAGS:-} --receivers 1 --accept-new lh://b/griz > $WORK/sent" \
            --run b "bash $WORK/sampler & sh -c '$run $WORK/pid-receiver; exec $LONGHAUL stream receive --json --check --accept-new lh://b/griz > $WORK/came'; until grep -q summary $WORK/sent; do sleep 0.1; done" \
            2> "$WORK/emulator" || { cat "$WORK/emulator" >&2; return 1; }
        grep -q '; valid' "$WORK/emulator" || echo "(the emulator was the bottleneck: $(tail -1 "$WORK/emulator"))" >&2
        [ -z "${SERIES:-}" ] || cp "$WORK/came" "$SERIES/streams-$way-$loss.jsonl"
        last() { grep '"event":"summary"' "$WORK/$1" | field "$2"; }
        awk -v way="$way" -v d="$deadline" -v l="$loss" -v n="$frames" -v on="$(last came on_time)" -v late="$(last came late)" \
            -v missed="$(last came missed)" -v over="$(last came overdue)" -v sk="$(last sent skipped)" \
            -v m="$(last came delay_median_seconds)" -v p="$(last came delay_99_seconds)" -v q="$(last came delay_999_seconds)" \
            -v x="$(last came delay_max_seconds)" -v f=$rate -v bytes="$(last sent bytes)" -v r="$(last sent repairs)" \
            -v burst="$(last sent rate_bps)" -v again="$(last sent resent)" \
            'BEGIN {printf "| %s | %s | %s | %d | %d | %d | %d | %d | %d | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f | %d | %d |\n", way, d, l, n, on, late, over, missed - over - sk, sk, 1e3*m, 1e3*p, 1e3*q, 1e3*x, burst / 1e6, bytes * 8 * f / n / 1e6, r, again}'
        [ "$(last came wrong)" = 0 ] || echo "(frames that are not those of the test pattern)" >&2
        streams_minutes "$way" "$loss" $((rate * 60)) >> "$WORK/minutes"
    done; done
    echo
    echo "| way | loss | minute | frames | late | median, ms | 99 % | longest | sender, MB | server, MB | receiver, MB |"
    echo "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    cat "$WORK/minutes"
}
# Prints the resident memory of the three programs in MB at the end of each minute; the run has $1 frames, $2
# a minute.
streams_memory() {
    local minute name mb
    until [ -s "$WORK/came" ] && grep -q '"event":"frame"' "$WORK/came"; do sleep 0.2; done
    for minute in $(seq 1 $((($1 + $2 - 1) / $2))); do
        # Measures just before the end of the minute, because in the last minute the programs must still run.
        sleep "$(awk -v n="$1" -v a="$2" -v m="$minute" 'BEGIN {f = n - (m - 1) * a; f = f > a ? a : f; print 60 * f / a - (m == 1 ? 2 : 0)}')"
        printf '%s' "$minute"
        for name in sender server receiver; do
            mb=$(awk '/VmRSS/ {printf "%.1f", $2 / 1000}' "/proc/$(cat "$WORK/pid-$name")/status" 2>/dev/null || true)
            printf ' %s' "${mb:--}"
        done
        echo
    done
}
# Prints the delays of each minute from the events in $WORK/came, and the memory from $WORK/memory.
streams_minutes() {
    grep '"event":"frame"' "$WORK/came" | sed 's/.*"delay_seconds":\([^,}]*\).*"late":\([a-z]*\).*"number":\([0-9]*\).*/\3 \1 \2/' |
        awk -v a="$3" '{print int($1 / a) + 1, $2, $3}' | sort -k1,1n -k2,2g |
        awk -v loss="$1 | $2" -v memory="$WORK/memory" '
            function row() {
                if (n) printf "| %s | %d | %d | %d | %.1f | %.1f | %.1f | %s |\n", loss, was, n, late, 1e3 * d[int((n + 1) / 2)], 1e3 * d[int(0.99 * n + 0.5)], 1e3 * d[n], (was in mb ? mb[was] : "- | - | -")
                n = late = 0
            }
            BEGIN {while ((getline line < memory) > 0) {split(line, v, " "); mb[v[1]] = v[2] " | " v[3] " | " v[4]}}
            $1 != was {row(); was = $1}
            {d[++n] = $2; late += $3 == "true"}
            END {row()}'
}

# Three sources as for multi; the third becomes reachable AFTER seconds after the start. Prints the time
# from the third source's first data until Jain's index of the rates of each second stays at 0.99 or above.
# SERIES: a folder that keeps the rates of each second, Mbit/s.
join() {
    local bytes=${BYTES:-1000000000} after=${AFTER:-6} host
    star
    { star_links 3 "{ at = \"0.1s\", up = false }, { at = \"${after}s\", up = true }"; } > "$WORK/star.toml"
    for host in 1 2 3; do head -c "$bytes" /dev/urandom > "$WORK/root/h$host/part$host"; done
    on_star "$LONGHAUL cp --accept-new --json -q lh://h1/part1 lh://h2/part2 lh://h3/part3 $WORK/here/ | while IFS= read -r line; do read -r up _ < /proc/uptime; echo \"\$up \$line\"; done > $WORK/out"
    for host in 1 2 3; do cmp "$WORK/root/h$host/part$host" "$WORK/here/part$host"; done
    grep '"event":"progress"' "$WORK/out" | awk '{
        rest = $0; n = 0
        while (match(rest, /"received_bytes":[0-9]+/)) {
            got[++n] = substr(rest, RSTART + 17, RLENGTH - 17); rest = substr(rest, RSTART + RLENGTH)
        }
        if (NR > 1) { printf "%.2f", $1 - begun; for (i = 1; i <= n; i++) printf " %.1f", (got[i] - was[i]) * 8e-6 / ($1 - at); print "" }
        else begun = $1
        at = $1; for (i = 1; i <= n; i++) was[i] = got[i]
    }' > "$WORK/series"
    [ -z "${SERIES:-}" ] || cp "$WORK/series" "$SERIES/join.txt"
    echo "| the third came after | fair (0.99) within | Jain's index then, mean | aggregate with three, Mbit/s | seconds | status |"
    echo "| --- | --- | --- | --- | --- | --- |"
    awk -v s="$(field seconds < "$WORK/out")" -v e="$(field status < "$WORK/out")" '
        $4 > 0 && $2 > 0 && $3 > 0 {
            if (joined == "") joined = $1 - 1
            sum = $2 + $3 + $4; at[++n] = $1; index_[n] = sum * sum / (3 * ($2 * $2 + $3 * $3 + $4 * $4)); all[n] = sum
        }
        END {
            # Some source ends in the last second, so this second does not count.
            for (i = n - 1; i >= 1 && index_[i] >= 0.99; i--) { mean += index_[i]; rate += all[i]; k++ }
            printf "| %.1f s | %.1f s | %.4f | %.1f | %.1f | %s |\n", joined, at[i + 1] - joined, mean / (k ? k : 1), rate / (k ? k : 1), s, e
        }' "$WORK/series"
}

# Prints the star's scenario link by link; $2 has the changes over time of the link of host $1.
star_links() {
    local host delays=(x 12.5ms 25ms 50ms 0ms)
    echo 'about = "Three senders into one receiver, one of which fails"'
    echo 'routers = ["hub"]'
    for host in 1 2 3 4; do printf '[[host]]\nname = "h%s"\n' $host; done
    for host in 1 2 3 4; do
        printf '[[link]]\nbetween = ["h%s", "hub"]\nrate = "1G"\nqueue = "2MB"\ndelay = "%s"\n' $host "${delays[host]}"
        [ $host != "$1" ] || [ -z "$2" ] || printf 'changes = [%s]\nback = { changes = [%s] }\n' "$2" "$2"
    done
}
# Three senders have the same object (RTT 25, 50 and 100 ms, a link of 1 Gbit/s into the receiver). AFTER
# seconds after the start, the sender at 50 ms is killed, frozen for 20 s, made ten times slower, or cut off
# for 20 s. The byte counter of the receiver's network interface is read ten times a second; the rates after
# the fault are compared with the two seconds before it.
# FAULTS: some of killed, frozen, slower, cut; BYTES: size of the object; SERIES: a folder that keeps each
# run's rates, Mbit/s over time.
takeover() {
    local bytes=${BYTES:-4000000000} after=${AFTER:-14} fault host
    star
    head -c "$bytes" /dev/urandom > "$WORK/root/h1/x"; for host in 2 3; do ln "$WORK/root/h1/x" "$WORK/root/h$host/x"; done
    echo "| the sender at 50 ms is | rate before, Mbit/s | least rate after (200 ms) | at 90 % of it again after | mean to the end | seconds | status |"
    echo "| --- | --- | --- | --- | --- | --- | --- |"
    for fault in ${FAULTS:-killed frozen slower cut}; do
        local act=true change=""
        case $fault in
            slower) change="{ at = \"${after}s\", rate = \"100M\" }" ;;
            cut) change="{ at = \"${after}s\", up = false }, { at = \"$((after + 20))s\", up = true }" ;;
            killed) act="sleep $after; kill -9 \$(cat $WORK/pid2)" ;;
            frozen) act="sleep $after; kill -STOP \$(cat $WORK/pid2); sleep 20; kill -CONT \$(cat $WORK/pid2)" ;;
        esac
        star_links 2 "$change" > "$WORK/star.toml"
        # Each line: the uptime in seconds, and the bytes received.
        local sample="while :; do read -r up _ < /proc/uptime; echo \$up \$(awk '/:/ && !/lo:/ {sub(/.*:/, \"\"); print \$1; exit}' /proc/net/dev); sleep 0.1; done"
        on_star "read -r up _ < /proc/uptime; echo \$up > $WORK/began; ($sample) > $WORK/rates & sampler=\$!; ($act) & act=\$!; $LONGHAUL cp --accept-new --json -q --replicas lh://h1/x lh://h2/x lh://h3/x $WORK/here/x > $WORK/out; kill \$sampler \$act 2>/dev/null; kill -CONT \$(cat $WORK/pid2) 2>/dev/null"
        cmp "$WORK/root/h1/x" "$WORK/here/x"
        awk -v began="$(cat "$WORK/began")" 'NR > 1 {print $1 - began, ($2 - b) * 8e-6 / ($1 - t)} {t = $1; b = $2}' "$WORK/rates" > "$WORK/series"
        [ -z "${SERIES:-}" ] || cp "$WORK/series" "$SERIES/takeover-$fault.txt"
        awk -v w="$fault" -v at="$after" -v s="$(field seconds < "$WORK/out")" -v e="$(field status < "$WORK/out")" '
            $1 > at - 2 && $1 <= at {before += $2; n++}
            $1 > at {mean = ($2 + last) / 2; rates[++m] = mean; times[m] = $1 - at}
            {last = $2}
            END {
                before /= n ? n : 1; least = before
                for (i = 2; i <= m && times[i] < 10; i++) if (rates[i] < least) least = rates[i]
                # The first time at which the rate is at least 90 % of the earlier rate, and so is its
                # mean over the next two seconds.
                for (i = 2; i <= m; i++) {
                    sum = c = 0; for (j = i; j <= m && times[j] < times[i] + 2; j++) {sum += rates[j]; c++}
                    if (rates[i] >= 0.9 * before && sum / c >= 0.9 * before) {again = times[i]; break}
                }
                for (i = 1; i <= m; i++) if (rates[i] > 0.05 * before) {all += rates[i]; k++}
                printf "| %s | %.0f | %.0f | %s | %.0f | %.1f | %s |\n", w, before, least, again == "" ? "never" : sprintf("%.1f s", again), all / (k ? k : 1), s, e
            }' "$WORK/series"
    done
}

# The three senders of multi, and one TCP flow of the kernel from a fifth host: TCP's rate if the copy takes
# 85 % of the link, and if the copy measures other traffic and leaves TCP its fair share, a quarter.
# CONTROLS: TCP's congestion controls. SHARES: 85 and 100 (100: without --receive-share). BYTES: size of
# each object; the copy must last at least 15 s.
beside() {
    local bytes=${BYTES:-550000000} control share flags rest
    star
    sed -i 's/^hosts = 4/hosts = 5/; s/"0ms"\]/"0ms", "5ms"]/' "$WORK/star.toml"
    for host in 1 2 3; do head -c "$bytes" /dev/urandom > "$WORK/root/h$host/part$host"; done
    echo "| the copy | TCP | TCP Mbit/s | TCP's share of the rest (aim 80 % and more) | the copy, Mbit/s | loss | source of the capacity |"
    echo "| --- | --- | --- | --- | --- | --- | --- |"
    for share in ${SHARES:-85 100}; do for control in ${CONTROLS:-cubic bbr}; do
        flags=() rest=0.25
        [ "$share" = 100 ] || { flags=(--receive-share "$share%"); rest=$(awk -v s="$share" 'BEGIN {print 1-s/100}'); }
        on_star "iperf3 -s -1 -D > /dev/null; $LONGHAUL cp --accept-new --json -q ${flags[*]} lh://h1/part1 lh://h2/part2 lh://h3/part3 $WORK/here/ > $WORK/out" \
            --run h5 "until [ -s $WORK/out ] && grep -q '\"event\":\"progress\"' $WORK/out; do sleep 0.1; done; sleep 1; iperf3 -c h4 -C $control -O 2 -t 10 -J > $WORK/tcp"
        for host in 1 2 3; do cmp "$WORK/root/h$host/part$host" "$WORK/here/part$host"; done
        # 1 Gbit/s carries 941 Mbit/s of TCP's payload.
        awk -v s="$share" -v c="$control" -v r="$rest" -v g="$(field goodput_bps < "$WORK/out")" \
            -v t="$(awk '/"sum_received"/ {on=1} on && /"bits_per_second"/ {gsub(/[^0-9.e+]/, "", $2); print $2; exit}' "$WORK/tcp")" \
            -v l="$(field path_lost < "$WORK/out")" -v n="$(field sent < "$WORK/out")" -v k="$(field from < "$WORK/out")" \
            'BEGIN {printf "| %s | %s | %.1f | %.0f %% of %.0f | %.1f | %.3f %% | %s |\n", (s == 100 ? "follows TCP" : "takes " s " %"), c, t/1e6, 100*t/(r*941.5e6), r*941.5, g/1e6, 100*l/(n ? n : 1), k}'
    done; done
}

# Copies from memory to memory without a given rate, alone on emulated paths, by this binary and by OTHER
# in turn. Prints the median seconds, and the mean of the ratios with its standard error.
# OTHER=/path/to/longhaul RUNS=8 bash results/figures.sh alone
alone() {
    : "${OTHER:?the other binary}"
    local path rate delay loss size jitter run one
    echo "| path | pairs | median, s | of the other | the other's time / ours - 1 |"
    echo "| --- | --- | --- | --- | --- |"
    for path in "1G 50ms none 300MB" "1G 50ms 0.1% 300MB" "1G 150ms 0.1% 300MB" "100M 15ms none 50MB" "1G 50ms 0.01% 300MB 2ms"; do
        read -r rate delay loss size jitter <<< "$path"
        printf '[topology]\nkind = "pair"\nlink = { rate = "%s", delay = "%s", loss = "%s", jitter = "%s", back = { loss = "none" } }\n[[flow]]\nname = "copy"\nfrom = "a"\nto = "b"\nprotocol = "rbudp"\nsize = "%s"\n' \
            "$rate" "$delay" "$loss" "${jitter:-0s}" "$size" > "$WORK/alone.toml"
        for run in $(seq "$RUNS"); do for one in "$LONGHAUL" "$OTHER"; do
            echo "$run" "$([ "$one" = "$LONGHAUL" ] && echo mine || echo other)" \
                "$("$one" emulate --json --quiet --seed "$run" "$WORK/alone.toml" | grep '"event":"flow"' | field seconds)"
        done; done > "$WORK/alone"
        awk -v p="$path" -v m="$(awk '$2 == "mine" {print $3}' "$WORK/alone" | median)" \
            -v o="$(awk '$2 == "other" {print $3}' "$WORK/alone" | median)" \
            '{x[$1, $2] = $3; n = $1}
            END {for (k = 1; k <= n; k++) {r = x[k, "other"] / x[k, "mine"] - 1; s += r; q += r * r}
                s /= n; printf "| %s | %d | %.2f | %.2f | %+.1f %% ± %.1f |\n", p, n, m, o, 100 * s, 100 * sqrt((q / n - s * s) / (n - 1))}' "$WORK/alone"
    done
}

# A copy next to one kernel TCP flow, and next to another copy that starts 5 s later: 200 Mbit/s,
# 40 ms, a queue of one BDP, 30 s, RUNS seeds from SEED on. A flow's rate is its object bytes divided by
# the flow's own duration. The last column is Jain's index of the two rates 15 to 20 s after the second start.
shares() {
    local other tail seed rates
    # Prints the rate of the flow $1 from $2 to $3 s after its start, in bit/s.
    between() {
        grep "\"flow\":\"$1\"" "$WORK/out" | tr '{' '\n' |
            sed -n 's/"at_seconds":\([0-9.]*\),"delivered_bytes":\([0-9]*\).*/\1 \2/p' |
            awk -v a="$2" -v b="$3" '$1 >= a && !f {f = 1; t = $1; x = $2} $1 <= b {u = $1; y = $2} END {print (y - x) * 8 / (u - t)}'
    }
    echo "| beside | seed | the copy, Mbit/s | the other, Mbit/s | the copy's part of an equal share | Jain's index |"
    echo "| --- | ---: | ---: | ---: | ---: | ---: |"
    for other in 'tcp = "cubic"' 'tcp = "bbr"' 'protocol = "rbudp"'; do for seed in $(seq "${SEED:-1}" $((${SEED:-1} + RUNS - 1))); do
        tail=30; [ "$other" != 'protocol = "rbudp"' ] || tail=25
        printf '[topology]\nkind = "pair"\nlink = { rate = "200M", delay = "20ms", loss = "none", queue = "1000000", back = { loss = "none", queue = "10MB" } }\n[[flow]]\nname = "copy"\nfrom = "a"\nto = "b"\nprotocol = "rbudp"\nlasts = "30s"\n[[flow]]\nname = "other"\nfrom = "a"\nto = "b"\n%s\nlasts = "%ss"\nstart = "%ss"\n' \
            "$other" "$tail" "$((30 - tail))" > "$WORK/shares.toml"
        "$LONGHAUL" emulate --json --quiet --seed "$seed" "$WORK/shares.toml" | grep '"event":"flow"' > "$WORK/out"
        rates="$(between copy $((45 - tail)) $((50 - tail))) $(between other 15 20)"
        echo "$other $seed $(grep '"flow":"copy"' "$WORK/out" | field goodput_bps) $(grep '"flow":"other"' "$WORK/out" | field goodput_bps) $rates" |
            awk '{c = $5; o = $6; x = $7; y = $8; printf "| %s %s %s | %d | %.1f | %.1f | %.2f | %.3f |\n", $1, $2, $3, $4, c / 1e6, o / 1e6, 2 * c / (c + o), (x + y) ^ 2 / (2 * (x * x + y * y))}'
    done; done
}

case ${1:-all} in
    throughput | pairs | protocols | stalls | wan | tcp | memory | small | resume | multi | striping | mounted | ranges | rooms | streams | sharing | watching | senders | join | takeover | beside | alone | shares | emulator | simulator | scheduler) "$1" ;;
    ssh) ssh_copy ;;
    all) wan; ssh_copy; tcp; resume; multi; throughput; protocols; small; memory ;;
    *) echo "figures.sh: unknown measurement '$1'; choose throughput, pairs, protocols, stalls, wan, ssh, tcp, memory, small, resume, multi, striping, mounted, ranges, rooms, streams, sharing, watching, senders, join, takeover, beside, alone, shares, emulator, simulator, scheduler or all" >&2; exit 2 ;;
esac
