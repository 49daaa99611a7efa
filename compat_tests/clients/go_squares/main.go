// Squares of numbers by kafka-go or sarama, at least once: `go_squares CLIENT BOOTSTRAP SOURCE TARGET`. Runs until it is killed.
package main

import (
	"context"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
)

const pause = 200 * time.Millisecond

func main() {
	clients := map[string]func(bootstrap, source, target string){"kafka-go": kafkaGo, "sarama": saramaGroup}
	clients[os.Args[1]](os.Args[2], os.Args[3], os.Args[4])
}

func square(number []byte) []byte {
	value, err := strconv.ParseInt(string(number), 10, 64)
	if err != nil {
		log.Fatal(err)
	}
	return []byte(strconv.FormatInt(value*value, 10))
}

// untilItWorks tries again while the broker is away.
func untilItWorks(step string, do func() error) {
	for err := do(); err != nil; err = do() {
		log.Printf("%s: %v", step, err)
		time.Sleep(pause)
	}
}

func kafkaGo(bootstrap, source, target string) {
	ctx := context.Background()
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{bootstrap}, GroupID: "squares", Topic: source,
		StartOffset: kafka.FirstOffset, MaxWait: pause,
	})
	writer := &kafka.Writer{
		Addr: kafka.TCP(bootstrap), Topic: target, Balancer: &kafka.Hash{},
		RequiredAcks: kafka.RequireAll, BatchTimeout: 5 * time.Millisecond,
	}
	for {
		var number kafka.Message
		untilItWorks("fetch", func() (err error) {
			number, err = reader.FetchMessage(ctx)
			return err
		})
		answer := kafka.Message{Key: number.Key, Value: square(number.Value)}
		untilItWorks("write", func() error { return writer.WriteMessages(ctx, answer) })
		// After a rebalance another member has the partition, and commits what it reads again.
		if err := reader.CommitMessages(ctx, number); err != nil {
			log.Printf("commit: %v", err)
		}
	}
}

type handler struct {
	producer sarama.SyncProducer
	target   string
}

func (handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (h handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for number := range claim.Messages() {
		answer := &sarama.ProducerMessage{
			Topic: h.target, Key: sarama.ByteEncoder(number.Key), Value: sarama.ByteEncoder(square(number.Value)),
		}
		untilItWorks("write", func() error {
			_, _, err := h.producer.SendMessage(answer)
			return err
		})
		session.MarkMessage(number, "")
	}
	return nil
}

func saramaGroup(bootstrap, source, target string) {
	settings := sarama.NewConfig()
	settings.Version = sarama.V3_6_0_0
	settings.Consumer.Offsets.Initial = sarama.OffsetOldest
	settings.Producer.RequiredAcks = sarama.WaitForAll
	settings.Producer.Return.Successes = true
	settings.Producer.Retry.Max = 100
	producer, err := sarama.NewSyncProducer([]string{bootstrap}, settings)
	if err != nil {
		log.Fatal(err)
	}
	group, err := sarama.NewConsumerGroup([]string{bootstrap}, "squares", settings)
	if err != nil {
		log.Fatal(err)
	}
	for {
		untilItWorks("consume", func() error {
			return group.Consume(context.Background(), []string{source}, handler{producer, target})
		})
	}
}
