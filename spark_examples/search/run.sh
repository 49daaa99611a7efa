#!/bin/sh
# Data, jobs and comparison by one command: sh run.sh [HOST:PORT] [FOLDER]
set -e
cd "$(dirname "$0")"
bootstrap=${1:-127.0.0.1:9092}
output=${2:-$(mktemp -d)}
python record.py --bootstrap "$bootstrap" --output "$output"
python feed.py --bootstrap "$bootstrap" -- python produce.py --bootstrap "$bootstrap" --output "$output"
ottla spark-submit --master 'local[2]' stream.py --bootstrap "$bootstrap" --output "$output"
python node.py -- sh -c '
    python index.py --bootstrap "$0" && python check.py --bootstrap "$0" --output "$1"
' "$bootstrap" "$output"
