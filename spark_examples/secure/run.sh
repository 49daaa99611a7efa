#!/bin/sh
# Brokers, data, job and comparison by one command: sh run.sh [-] [FOLDER] [cluster]
# The first argument is the address of a broker in other examples; this one starts brokers of its own.
set -e
cd "$(dirname "$0")"
output=${2:-$(mktemp -d)}
if [ "$3" = cluster ]; then
    exec python cluster.py "$output"
fi
python broker.py "$output" sh -c '
    set -e
    python grant.py "$0"
    ottla generate clicks --command-config "$0/roles/shop.properties" --records 2000 --late 0.05 --doubled 0.02 \
        --poison 0.005 --closing
    ottla spark-submit --master "local[2]" stream.py "$0" --refusals
    python check.py "$0"
' "$output"
