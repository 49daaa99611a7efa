#!/bin/sh
# Data, job before and after compaction, and comparison by one command: sh run.sh [HOST:PORT] [FOLDER]
set -e
cd "$(dirname "$0")"
bootstrap=${1:-127.0.0.1:9092}
output=${2:-$(mktemp -d)}
python move.py --bootstrap "$bootstrap"
ottla spark-submit --master 'local[2]' rebuild.py --bootstrap "$bootstrap" --output "$output/before.json"
python log.py --bootstrap "$bootstrap"
ottla spark-submit --master 'local[2]' rebuild.py --bootstrap "$bootstrap" --output "$output/after.json"
python check.py --bootstrap "$bootstrap" "$output/before.json" "$output/after.json"
