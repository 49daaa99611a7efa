#!/bin/sh
# Data, archive, two restored ranges and comparison by one command: sh run.sh [HOST:PORT] [FOLDER]
set -e
cd "$(dirname "$0")"
bootstrap=${1:-127.0.0.1:9092}
output=${2:-$(mktemp -d)}
submit="ottla spark-submit --master local[2]"
ottla generate posts -b "$bootstrap" --records 4000 --late 0.02 --doubled 0.01 --poison 0.005
for topic in posts-offsets posts-times; do
    ottla topics create "$topic" -b "$bootstrap" -p 4
done
$submit archive.py --bootstrap "$bootstrap" --output "$output"
$submit restore.py --bootstrap "$bootstrap" --archive "$output" \
    --offsets 100 900 --times 2026-01-01T00:01:00Z 2026-01-01T00:05:00Z
python check.py --bootstrap "$bootstrap"
