#!/bin/sh
# franz-go's tests read KGO_SEEDS; in their CI it is a container of Apache Kafka with a user of SCRAM.
#   ottla test [options of suite.toml] -- sh stand_in.sh go test github.com/twmb/franz-go/pkg/kgo
set -eu
ottla users -b "$OTTLA_BOOTSTRAP" add testuser --mechanism SCRAM-SHA-256 --password testpass
# A fifth of the default: a busy machine does not take half a million records through two share groups within the test's four minutes.
export KGO_TEST_RECORDS=100000
export KGO_SEEDS="$OTTLA_BOOTSTRAP" KGO_TEST_RF=1 KGO_TEST_STABLE_FETCH=true
export KGO_TEST_SCRAM_SEEDS=127.0.0.1:9094 KGO_TEST_SCRAM=testuser:testpass KGO_TEST_OAUTH_SEEDS=127.0.0.1:9094
exec "$@"
