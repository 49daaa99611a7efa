// What exporters and command-line tools ask that are built on franz-go (kminion, kcl), by the library that they ask with.
package main

import (
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func observe() {
	produce(0, 50)
	reader := newClient(kgo.ConsumeTopics(topic), kgo.ConsumerGroup(group), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	read(reader, 50)
	client := newClient()
	defer client.Close()
	admin := kadm.NewClient(client)

	metadata, err := admin.BrokerMetadata(deadline)
	must(err)
	say("brokers", len(metadata.Brokers))
	topics, err := admin.ListTopicsWithInternal(deadline, topic)
	must(err)
	must(topics.Error())
	say("partitions", len(topics[topic].Partitions))

	groups, err := admin.ListGroups(deadline)
	must(err)
	say("listed", groups[group].State)
	described, err := admin.DescribeGroups(deadline, group)
	must(err)
	must(described.Error())
	say("members", len(described[group].Members))
	part := kadm.Offset{Topic: topic, Partition: 0, At: 20, LeaderEpoch: -1}
	must(reader.CommitRecords(deadline, &kgo.Record{Topic: topic, Partition: 0, Offset: part.At - 1, LeaderEpoch: -1}))
	lags, err := admin.Lag(deadline, group)
	must(err)
	must(lags.Error())
	say("lag", lags[group].Lag.Total())
	reader.Close()

	starts, err := admin.ListStartOffsets(deadline, topic)
	must(err)
	must(starts.Error())
	ends, err := admin.ListEndOffsets(deadline, topic)
	must(err)
	must(ends.Error())
	say("offsets", []int64{starts[topic][0].Offset, ends[topic][0].Offset})
	dirs, err := admin.DescribeAllLogDirs(deadline, topics.TopicsSet())
	must(err)
	size := int64(0)
	for _, ofBroker := range dirs {
		must(ofBroker.Error())
		size += ofBroker.Size()
	}
	say("hasSize", size > 0)

	configs, err := admin.DescribeTopicConfigs(deadline, topic)
	must(err)
	policy := ""
	for _, each := range configs[0].Configs {
		if each.Key == "cleanup.policy" {
			policy = each.MaybeValue()
		}
	}
	say("policy", policy)
	ofBrokers, err := admin.DescribeBrokerConfigs(deadline, metadata.Brokers[0].NodeID)
	must(err)
	must(ofBrokers[0].Err)
	say("hasSettings", len(ofBrokers[0].Configs) > 100)
	moving, err := admin.ListPartitionReassignments(deadline, topics.TopicsSet())
	must(err)
	say("moving", len(moving))
	producers, err := admin.DescribeProducers(deadline, topics.TopicsSet())
	must(err)
	say("producers", len(producers.SortedProducers()))
	_, err = admin.ListTransactions(deadline, nil, nil)
	must(err)
	_, err = admin.DescribeClientQuotas(deadline, false, nil)
	must(err)
	_, err = admin.DescribeUserSCRAMs(deadline)
	must(err)
}
