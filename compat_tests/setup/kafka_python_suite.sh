#!/bin/sh
# Unpacks kafka-python's own integration tests from its source distribution; nothing of it is kept in the repository.
#   kafka_python_suite.sh PYTHON TARGET
# The version is that of the kafka-python installed for PYTHON, so that client and tests always match.
set -eu
python=$1
target=$2
here=$(dirname "$0")/../suites/kafka_python

version=$("$python" -c 'from importlib.metadata import version; print(version("kafka-python"))')
rm -rf "$target"
mkdir -p "$target"
"$python" -m pip --disable-pip-version-check --quiet download --no-deps --no-binary kafka-python \
    --dest "$target" "kafka-python==$version"
tar -xzf "$target"/kafka_python-"$version".tar.gz -C "$target" --strip-components=1
# The tests are for the installed client, not for the copy beside them.
rm -rf "$target"/kafka "$target"/*.tar.gz
# Beside the suite and not in the environment, so that our own tests never see these plugins.
"$python" -m pip --disable-pip-version-check --quiet install --no-deps --target "$target/plugins" \
    --requirement "$here/requirements.txt"
touch "$target/test/__init__.py" # otherwise the standard library's `test` package is found first
cp "$here/service.py" "$target/test/"
