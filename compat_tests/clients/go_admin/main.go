// Go's other clients make a topic, extend it and delete it by way of one address: `go_admin CLIENT ADDRESS TOPIC`. Prints what
// each step came to, in lines such as "create=<nil>". Tests of clusters and workers run it.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
	terraform "github.com/Mongey/terraform-provider-kafka/kafka"
	"github.com/hashicorp/terraform-plugin-sdk/v2/helper/schema"
	config "github.com/hashicorp/terraform-plugin-sdk/v2/terraform"
	"github.com/segmentio/kafka-go"
)

const patience = 40 * time.Second

var ctx, _ = context.WithTimeout(context.Background(), 100*time.Second)

func main() {
	clients := map[string]func(address, topic string){
		"kafka-go":  kafkaGo,
		"sarama":    saramaBroker,
		"older":     olderSarama,
		"terraform": terraformProvider,
	}
	clients[os.Args[1]](os.Args[2], os.Args[3])
}

func say(step string, err error) {
	fmt.Printf("%s=%v\n", step, err)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// As the README of kafka-go begins, but for the look for the controller that it advises.
func kafkaGo(address, topic string) {
	conn, err := kafka.DialContext(ctx, "tcp", address)
	must(err)
	defer conn.Close()
	must(conn.SetDeadline(time.Now().Add(patience)))
	say("create", conn.CreateTopics(kafka.TopicConfig{Topic: topic, NumPartitions: 2, ReplicationFactor: 1}))
	client := &kafka.Client{Addr: kafka.TCP(address), Timeout: patience}
	extended, err := client.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{
		Topics: []kafka.TopicPartitionsConfig{{Name: topic, Count: 3}},
	})
	must(err)
	say("extend", extended.Errors[topic])
	say("delete", conn.DeleteTopics(topic))
}

// One connection to the broker at the address, which is the controller or is not.
func saramaBroker(address, topic string) {
	settings := sarama.NewConfig()
	settings.Version = sarama.V2_8_0_0
	broker := sarama.NewBroker(address)
	must(broker.Open(settings))
	defer broker.Close()
	made, err := broker.CreateTopics(&sarama.CreateTopicsRequest{
		Version: 3, Timeout: patience,
		TopicDetails: map[string]*sarama.TopicDetail{topic: {NumPartitions: 2, ReplicationFactor: 1}},
	})
	must(err)
	say("create", failure(made.TopicErrors[topic].Err))
	extended, err := broker.CreatePartitions(&sarama.CreatePartitionsRequest{
		Version: 1, Timeout: patience, TopicPartitions: map[string]*sarama.TopicPartition{topic: {Count: 3}},
	})
	must(err)
	say("extend", failure(extended.TopicPartitionErrors[topic].Err))
	moving, err := broker.ListPartitionReassignments(&sarama.ListPartitionReassignmentsRequest{TimeoutMs: 40_000})
	must(err)
	say("reassignments", failure(moving.ErrorCode))
	gone, err := broker.DeleteTopics(&sarama.DeleteTopicsRequest{Version: 3, Timeout: patience, Topics: []string{topic}})
	must(err)
	say("delete", failure(gone.TopicErrorCodes[topic]))
}

// Requests in the versions that sarama takes by default: Burrow asks for offsets in such a version, and old releases of Terraform's
// provider created topics in one.
func olderSarama(address, topic string) {
	broker := sarama.NewBroker(address)
	must(broker.Open(sarama.NewConfig()))
	defer broker.Close()
	made, err := broker.CreateTopics(&sarama.CreateTopicsRequest{
		Timeout:      patience,
		TopicDetails: map[string]*sarama.TopicDetail{topic: {NumPartitions: 1, ReplicationFactor: 1}},
	})
	if err != nil {
		say("create", err)
		return
	}
	say("create", failure(made.TopicErrors[topic].Err))
	asked := &sarama.OffsetRequest{}
	asked.AddBlock(topic, 0, sarama.OffsetNewest, 1)
	found, err := broker.GetAvailableOffsets(asked)
	must(err)
	block := found.GetBlock(topic, 0)
	fmt.Printf("offsets=%v %v\n", failure(block.Err), block.Offsets)
	gone, err := broker.DeleteTopics(&sarama.DeleteTopicsRequest{Timeout: patience, Topics: []string{topic}})
	must(err)
	say("delete", failure(gone.TopicErrorCodes[topic]))
}

func failure(code sarama.KError) error {
	if code == sarama.ErrNoError {
		return nil
	}
	return code
}

// What `terraform apply` and `terraform destroy` call.
func terraformProvider(address, topic string) {
	provider := terraform.Provider()
	settings := map[string]any{"bootstrap_servers": []any{address}, "tls_enabled": false, "timeout": 40}
	for _, problem := range provider.Configure(ctx, config.NewResourceConfigRaw(settings)) {
		panic(problem.Summary)
	}
	resource := provider.ResourcesMap["kafka_topic"]
	data := resource.Data(nil)
	put(data, map[string]any{"name": topic, "partitions": 2, "replication_factor": 1, "config": map[string]any{"retention.ms": "99999"}})
	steps := []struct {
		name string
		take schema.CreateContextFunc
	}{
		{"create", schema.CreateContextFunc(resource.CreateContext)},
		{"read", schema.CreateContextFunc(resource.ReadContext)},
		{"delete", schema.CreateContextFunc(resource.DeleteContext)},
	}
	for _, step := range steps {
		var err error
		for _, problem := range step.take(ctx, data, provider.Meta()) {
			err = fmt.Errorf("%s %s", problem.Summary, problem.Detail)
		}
		say(step.name, err)
	}
}

func put(data *schema.ResourceData, values map[string]any) {
	for name, value := range values {
		must(data.Set(name, value))
	}
}
