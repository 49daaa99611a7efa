#!/bin/sh
# kafka-go's tests have localhost:9092 and 9093 written into them; docker-compose.yml starts Apache Kafka there.
#   ottla test [options of suite.toml] -- sh stand_in.sh go test github.com/segmentio/kafka-go/...
set -eu
ottla users -b "$OTTLA_BOOTSTRAP" add adminscram256 --mechanism SCRAM-SHA-256 --password admin-secret-256
ottla users -b "$OTTLA_BOOTSTRAP" add adminscram512 --mechanism SCRAM-SHA-512 --password admin-secret-512
export KAFKA_VERSION=4.0.0 KAFKA_SKIP_NETTEST=1 # as in their CI
exec "$@"
