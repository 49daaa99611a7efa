#!/bin/sh
# Data, job and comparison by one command: sh run.sh [HOST:PORT] [FOLDER] [debezium|generated]
set -e
cd "$(dirname "$0")"
bootstrap=${1:-127.0.0.1:9092}
output=${2:-$(mktemp -d)}
source=$3
topic=bank.public.accounts
limit=262144
mkdir -p "$output"
if [ -z "$source" ]; then
    source=debezium
    if ! ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || ! command -v mvn >/dev/null; then
        echo "no PostgreSQL or no Maven here (Debian: apt-get install postgresql maven): the changes are generated"
        source=generated
    fi
fi
ottla topics create "$topic-dead" -b "$bootstrap"
if [ "$source" = debezium ]; then
    ottla generate changes --no-topic --records 2400 --statements "$output/statements.sql"
    python capture.py --bootstrap "$bootstrap" --output "$output" --max-message-bytes "$limit" --kill
else
    ottla generate changes -t "$topic" -b "$bootstrap" -p 2 -c "max.message.bytes=$limit" --records 2400 --snapshot 200 \
        --late 0.05 --doubled 0.05 --poison 0.01 --statements "$output/statements.sql" --expected "$output/source.jsonl"
fi
python poison.py --bootstrap "$bootstrap"
ottla spark-submit --master 'local[2]' table.py --bootstrap "$bootstrap" --output "$output"
python check.py --bootstrap "$bootstrap" --output "$output"
