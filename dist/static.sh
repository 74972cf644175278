#!/bin/sh
# Builds the static binary for this machine's architecture, against musl: dist/static.sh [FOLDER].
# Prints the binary's path; with FOLDER also makes the Debian package in that folder (dist/deb.sh).
# Needs rustup, and musl-gcc (`apt-get install musl-tools`).
set -eu
[ $# -le 1 ] || { echo "usage: dist/static.sh [FOLDER]" >&2; exit 2; }
out=${1:+$(realpath "$1")}
cd "$(dirname "$0")/.."
target=$(uname -m)-unknown-linux-musl
command -v musl-gcc >/dev/null ||
    { echo "no musl-gcc; install it: apt-get install musl-tools" >&2; exit 3; }
rustup target list --installed | grep -qx "$target" || rustup target add "$target" >&2
cargo build --release --locked --target "$target" --bin longhaul >&2
binary=${CARGO_TARGET_DIR:-target}/$target/release/longhaul
ldd "$binary" 2>&1 | grep -q 'statically linked\|not a dynamic executable' ||
    { echo "$binary is not static" >&2; exit 1; }
echo "$binary"
[ -z "$out" ] || dist/deb.sh "$binary" "$out"
