#!/bin/sh
# Builds a Debian package: dist/deb.sh BINARY FOLDER. Needs dpkg-deb.
set -eu
[ $# -eq 2 ] || { echo "usage: dist/deb.sh BINARY FOLDER" >&2; exit 2; }
binary=$(realpath "$1")
out=$(realpath "$2")
cd "$(dirname "$0")/.."
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
architecture=$(dpkg --print-architecture)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
chmod 755 "$tree"
umask 022

install -D -m 755 "$binary" "$tree/usr/bin/longhaul"
install -D -m 644 dist/longhaul.service "$tree/usr/lib/systemd/system/longhaul.service"
mkdir -p "$tree/usr/share/man/man1"
"$binary" man --dir "$tree/usr/share/man/man1"
gzip -9 -n "$tree"/usr/share/man/man1/*.1
complete() {
    mkdir -p "$(dirname "$tree/$2")"
    "$binary" completions "$1" > "$tree/$2"
}
complete bash usr/share/bash-completion/completions/longhaul
complete zsh usr/share/zsh/vendor-completions/_longhaul
complete fish usr/share/fish/vendor_completions.d/longhaul.fish
doc=$tree/usr/share/doc/longhaul
mkdir -p "$doc/docs"
# As in the repository, so that links between the pages lead somewhere.
cp README.md "$doc"
cp -R docs/*.md docs/*.png docs/protocols "$doc/docs"
gzip -9 -n -c CHANGELOG.md > "$doc/changelog.gz"
cat LICENSE-MIT > "$doc/copyright"
mkdir -p "$tree/etc/longhaul"
cat > "$tree/etc/longhaul/allowed" <<'END'
# Clients of `longhaul serve`, one a line: ID[:ro|wo|rw][:SUBFOLDER] # NAME
# `longhaul id` prints an id. After a change: systemctl reload longhaul
END

mkdir "$tree/DEBIAN"
echo /etc/longhaul/allowed > "$tree/DEBIAN/conffiles"
# A static binary needs no library.
depends='Depends: libc6 (>= 2.34), libgcc-s1'
! ldd "$binary" 2>&1 | grep -q 'statically linked\|not a dynamic executable' || depends=
cat > "$tree/DEBIAN/control" <<END
Package: longhaul
Version: $version
Architecture: $architecture
Maintainer: The longhaul authors <longhaul@localhost>
Section: net
Priority: optional
Installed-Size: $(du -sk "$tree" | cut -f 1)
${depends:+$depends
}Description: verified, resumable bulk copies over long fat networks
 Copies files and trees by protocols over UDP, sealed, hashed on the way and
 compared at the far end. Contains the server's unit for systemd.
END
# The server has no client before its owner allows one, so it is not started.
cat > "$tree/DEBIAN/postinst" <<'END'
#!/bin/sh
set -e
[ ! -d /run/systemd/system ] || systemctl daemon-reload
END
cat > "$tree/DEBIAN/prerm" <<'END'
#!/bin/sh
set -e
[ "$1" != remove ] || [ ! -d /run/systemd/system ] || systemctl disable --now longhaul.service
END
cat > "$tree/DEBIAN/postrm" <<'END'
#!/bin/sh
set -e
[ ! -d /run/systemd/system ] || systemctl daemon-reload
END
chmod 755 "$tree"/DEBIAN/p*
package=$out/longhaul_${version}_$architecture.deb
dpkg-deb --root-owner-group --build "$tree" "$package" >&2
echo "$package"
