#!/bin/sh
# Installs, on a Debian-like machine, the system packages that bring clients for the tests: only those whose command
# is missing, and only where we are root or may use sudo without a password. Elsewhere it says what is missing; the
# tests of those clients are then skipped (and fail under CI=true).
#   debian_packages.sh             what `make test` runs
#   debian_packages.sh ecosystem   what only `make ecosystem` runs
set -eu

wanted=""
PATH=$PATH:/usr/sbin:/usr/local/go/bin # where a KDC and Go's own archive go
want() {  # command, package
    command -v "$1" >/dev/null 2>&1 || wanted="$wanted $2"
}

if [ "${1:-}" = ecosystem ]; then
    ls /usr/lib/*/rsyslog/omkafka.so >/dev/null 2>&1 || wanted="$wanted rsyslog rsyslog-kafka"
    ls /usr/lib/collectd/write_kafka.so >/dev/null 2>&1 || wanted="$wanted collectd-core"
    ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || wanted="$wanted postgresql"
else
    want kcat kcat
    want curl curl
    want java default-jdk-headless
    want javac default-jdk-headless
    want mvn maven
    want node nodejs
    want npm npm
    want go golang-go
    want systemd-analyze systemd
    want chromium chromium
    want chromium "chromium fonts-dejavu-core"
    want chromedriver chromium-driver
    # A realm of Kerberos, and what kcat and Debian's own Python need to log in there.
    want krb5kdc krb5-kdc
    want kadmin.local krb5-admin-server
    want kinit krb5-user
    ls /usr/lib/*/sasl2/libgssapiv2.so >/dev/null 2>&1 || wanted="$wanted libsasl2-modules-gssapi-mit"
    ls -d /usr/lib/python3/dist-packages/gssapi >/dev/null 2>&1 || wanted="$wanted python3-gssapi"
fi
wanted=$(printf '%s\n' $wanted | sort -u | tr '\n' ' ')
[ -n "${wanted# }" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
    echo "not installed, and no apt-get to install it with: $wanted" >&2
    exit 0
elif [ "$(id -u)" = 0 ]; then
    as_root=""
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    as_root="sudo -n"
else
    echo "not installed (run as root: apt-get install $wanted)" >&2
    exit 0
fi

echo "installing $wanted"
$as_root apt-get -qq update
# One by one: a package that this distribution lacks must not take the others with it.
for package in $wanted; do
    $as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get -qq install -y --no-install-recommends "$package" >/dev/null ||
        echo "could not install $package" >&2
done
