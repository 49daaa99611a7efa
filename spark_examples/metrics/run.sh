#!/bin/sh
# Data, jobs and comparison by one command: sh run.sh [HOST:PORT] [FOLDER] [MODE]
set -e
cd "$(dirname "$0")"
bootstrap=${1:-127.0.0.1:9092}
output=${2:-$(mktemp -d)}
mode=${3:-available-now}
for topic in metrics-minutes metrics-alerts; do
    ottla topics create "$topic" -b "$bootstrap" -p 2
done
python produce.py --bootstrap "$bootstrap" --output "$output"
ottla spark-submit --master 'local[2]' minutes.py --bootstrap "$bootstrap" --output "$output"
# Continuous processing needs a core for each of the four partitions.
ottla spark-submit --master 'local[6]' alerts.py --bootstrap "$bootstrap" --output "$output" --mode "$mode"
python check.py --bootstrap "$bootstrap" --output "$output"
