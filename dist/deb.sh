#!/bin/sh
# Builds a Debian package of the program BINARY, and writes the package into FOLDER:
# dist/deb.sh BINARY FOLDER. Prints the package's path.
# Needs cargo-deb (`cargo install --locked cargo-deb`); crates/cli/Cargo.toml lists the files.
set -eu
[ $# -eq 2 ] || { echo "usage: dist/deb.sh BINARY FOLDER" >&2; exit 2; }
binary=$(realpath "$1")
out=$(realpath "$2")
cd "$(dirname "$0")/.."
command -v cargo-deb >/dev/null ||
    { echo "no cargo-deb; install it: cargo install --locked cargo-deb" >&2; exit 3; }
rm -rf target/deb
mkdir -p target/deb
install -m 755 "$binary" target/deb/longhaul
"$binary" man --dir target/deb
for shell in bash zsh fish; do "$binary" completions "$shell" > "target/deb/$shell"; done
cargo deb --quiet --package longhaul-cli --no-build --output "$out"
