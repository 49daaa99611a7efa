#!/bin/sh
# Data, job and comparison by one command: sh run.sh [HOST:PORT] [FOLDER]
set -e
cd "$(dirname "$0")"
bootstrap=${1:-127.0.0.1:9092}
output=${2:-$(mktemp -d)}
mkdir -p "$output"
ottla generate clicks -b "$bootstrap" --records 5000 --late 0.05 --doubled 0.02 --poison 0.005 --closing \
    --expected "$output/expected.jsonl"
ottla spark-submit --master 'local[2]' stream.py --bootstrap "$bootstrap" --output "$output"
python check.py --bootstrap "$bootstrap" --output "$output"
