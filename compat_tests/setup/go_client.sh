#!/bin/sh
# Builds one of the tests' programs in Go, as one command that needs nothing beside it: `kgo` or `go_admin` of clients/.
#   go_client.sh GO NAME TARGET
# Any Go from 1.19 on will do (Debian 12 has that one): a newer one, if go.mod asks for it, comes through the module proxy,
# as everything else. What it takes to build is removed afterwards, because it is some hundred times larger.
set -eu
go=$1
name=$2
mkdir -p "$3"
target=$(cd "$3" && pwd)
source=$(cd "$(dirname "$0")/../clients/$name" && pwd)
build=$target/build
rm -rf "$build"
mkdir "$build"
trap 'rm -rf "$build"' EXIT
export GOMODCACHE="$build/modules" GOCACHE="$build/cache" GOFLAGS="-modcacherw -buildvcs=false -trimpath" GOTOOLCHAIN=auto
unset GOROOT

case $("$go" env GOVERSION) in
go1.19* | go1.20*)
    # These do not fetch another Go by themselves; that is a module like any other, but for who may run its files.
    wanted=$(sed -n 's/^go //p' "$source/go.mod")
    toolchain=golang.org/toolchain@v0.0.1-go$wanted.$("$go" env GOOS)-$("$go" env GOARCH)
    (cd "$build" && "$go" mod download "$toolchain")
    chmod +x "$GOMODCACHE/$toolchain"/bin/* "$GOMODCACHE/$toolchain"/pkg/tool/*/*
    go=$GOMODCACHE/$toolchain/bin/go
    ;;
esac
cd "$source"
"$go" build -o "$target/$name" .
