#!/bin/sh
# Data, job and comparison by one command: sh run.sh [HOST:PORT] [FOLDER] [ARGUMENTS OF stream.py]
# SCHEMA_REGISTRY is the address of the registry, if it is another one than that of `ottla start --registry 8081`.
set -e
cd "$(dirname "$0")"
bootstrap=${1:-127.0.0.1:9092}
output=${2:-$(mktemp -d)}
registry=${SCHEMA_REGISTRY:-http://127.0.0.1:8081}
[ $# -lt 2 ] || shift 2
mkdir -p "$output"
ottla generate clicks -t pages -b "$bootstrap" --records 2000 --late 0.05 --doubled 0.02 --poison 0.005 --closing \
    --expected "$output/expected.jsonl"
ottla topics create clicks -b "$bootstrap" -p 4 -c retention.ms=-1
python collect.py --bootstrap "$bootstrap" --registry "$registry"
ottla spark-submit --master 'local[2]' --with avro,delta stream.py --bootstrap "$bootstrap" --registry "$registry" \
    --output "$output" "$@"
python check.py --bootstrap "$bootstrap" --registry "$registry" --output "$output"
