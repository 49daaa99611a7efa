// franz-go against the broker named in argv: `kgo SCENARIO BOOTSTRAP TOPIC GROUP [OUTPUT ID HOLD_AFTER]`. Prints lines of
// "name=value"; test_kgo.py says what they have to be.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

const patience = 40 * time.Second

var (
	bootstrap, topic, group string
	deadline, _             = context.WithTimeout(context.Background(), 100*time.Second)
)

func main() {
	scenarios := map[string]func(){
		"roundTrip":    roundTrip,
		"transactions": transactions,
		"fencing":      fencing,
		"classic":      func() { members(kgo.Balancers(kgo.CooperativeStickyBalancer())) },
		"serverSide":   func() { members(kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer()) },
		"share":        share,
		"release":      release,
		"observe":      observe,
		"process":      func() { process() },
		"processWithServerSide": func() {
			process(kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer())
		},
	}
	bootstrap, topic, group = os.Args[2], os.Args[3], os.Args[4]
	scenarios[os.Args[1]]()
}

func say(name string, value any) {
	fmt.Printf("%s=%v\n", name, value)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func newClient(options ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(strings.Split(bootstrap, ",")...)}, options...)...)
	must(err)
	return client
}

// What tools that are built on franz-go say of a broker.
func release() {
	client := newClient()
	defer client.Close()
	request := kmsg.NewPtrApiVersionsRequest()
	request.ClientSoftwareName, request.ClientSoftwareVersion = "kgo", "1"
	response, err := request.RequestWith(deadline, client)
	must(err)
	say("release", kversion.FromApiVersionsResponse(response).VersionGuess())
}

func values(first, behind int) []*kgo.Record {
	records := make([]*kgo.Record, 0, behind-first)
	for i := first; i < behind; i++ {
		records = append(records, &kgo.Record{Topic: topic, Key: []byte(strconv.Itoa(i)), Value: []byte("v" + strconv.Itoa(i))})
	}
	return records
}

func produce(first, behind int) {
	client := newClient()
	defer client.Close()
	must(client.ProduceSync(deadline, values(first, behind)...).FirstErr())
}

// Reads until it has so many records.
func read(client *kgo.Client, count int) (found []*kgo.Record) {
	for len(found) < count {
		fetches := client.PollFetches(deadline)
		must(fetches.Err0())
		found = append(found, fetches.Records()...)
	}
	return found
}

func readAll(isolation kgo.IsolationLevel, count int) (found []string) {
	start := kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())
	client := newClient(kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(isolation), start)
	defer client.Close()
	for _, record := range read(client, count) {
		found = append(found, string(record.Value))
	}
	return found
}

func until(what string, condition func() bool) {
	for end := time.Now().Add(patience); !condition(); {
		if time.Now().After(end) {
			panic("not in time: " + what)
		}
	}
}

// --- records

func roundTrip() {
	// A producer of franz-go is idempotent if nobody says otherwise.
	for _, codec := range []kgo.CompressionCodec{
		kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression(),
	} {
		client := newClient(kgo.ProducerBatchCompression(codec))
		records := values(0, 10)
		for i, record := range records {
			record.Timestamp = time.UnixMilli(int64(5000 + i))
			record.Headers = []kgo.RecordHeader{{Key: "a", Value: []byte{255}}}
		}
		must(client.ProduceSync(deadline, records...).FirstErr())
		client.Close()
	}
	client := newClient(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer client.Close()
	right := 0
	for i, record := range read(client, 50) {
		expected := values(i%10, i%10+1)[0]
		if record.Offset == int64(i) && string(record.Key) == string(expected.Key) && string(record.Value) == string(expected.Value) &&
			record.Timestamp.UnixMilli() == int64(5000+i%10) && record.Headers[0].Key == "a" && record.Headers[0].Value[0] == 255 {
			right++
		}
	}
	say("right", right)
}

// --- transactions

func transaction(client *kgo.Client, end kgo.TransactionEndTry, records ...*kgo.Record) error {
	must(client.BeginTransaction())
	if err := client.ProduceSync(deadline, records...).FirstErr(); err != nil {
		return err
	}
	return client.EndTransaction(deadline, end)
}

func transactions() {
	client := newClient(kgo.TransactionalID(group))
	defer client.Close()
	must(transaction(client, kgo.TryCommit, values(0, 2)...))
	must(transaction(client, kgo.TryAbort, values(2, 4)...))
	must(transaction(client, kgo.TryCommit))
	must(transaction(client, kgo.TryAbort, values(4, 5)...))
	must(transaction(client, kgo.TryCommit, values(5, 6)...))
	say("committed", readAll(kgo.ReadCommitted(), 3))
	say("all", readAll(kgo.ReadUncommitted(), 6))
}

func fencing() {
	zombie, successor := newClient(kgo.TransactionalID(group)), newClient(kgo.TransactionalID(group))
	defer successor.Close()
	must(zombie.BeginTransaction())
	must(zombie.ProduceSync(deadline, values(0, 1)...).FirstErr())
	must(transaction(successor, kgo.TryCommit, values(1, 2)...))
	var refusal *kerr.Error
	errors.As(zombie.EndTransaction(deadline, kgo.TryCommit), &refusal)
	say("zombie", refusal.Message)
	must(transaction(successor, kgo.TryCommit, values(2, 3)...))
	say("committed", readAll(kgo.ReadCommitted(), 2))
}

// --- groups

// The partitions that a member has.
type member struct {
	*kgo.Client
	owned map[int32]bool
}

func join(options ...kgo.Opt) *member {
	joined := &member{owned: map[int32]bool{}}
	gets := func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
		for _, partition := range partitions[topic] {
			joined.owned[partition] = true
		}
	}
	loses := func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
		for _, partition := range partitions[topic] {
			delete(joined.owned, partition)
		}
	}
	joined.Client = newClient(append(options,
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.BlockRebalanceOnPoll(), kgo.OnPartitionsAssigned(gets), kgo.OnPartitionsRevoked(loses), kgo.OnPartitionsLost(loses),
		kgo.DisableAutoCommit(), kgo.HeartbeatInterval(200*time.Millisecond), kgo.SessionTimeout(6*time.Second))...)
	return joined
}

// What comes within a moment. Partitions come and go only behind a poll, so that nobody else touches `owned` meanwhile.
func (m *member) poll() []*kgo.Record {
	moment, cancel := context.WithTimeout(deadline, 100*time.Millisecond)
	defer cancel()
	fetches := m.PollFetches(moment)
	fetches.EachError(func(_ string, _ int32, err error) {
		if !errors.Is(err, context.DeadlineExceeded) {
			panic(err)
		}
	})
	return fetches.Records()
}

func members(options ...kgo.Opt) {
	produce(0, 20)
	first := join(options...)
	read := 0
	until("everything is read", func() bool {
		defer first.AllowRebalance()
		read += len(first.poll())
		return read == 20 && len(first.owned) == 4
	})
	must(first.CommitUncommittedOffsets(deadline))
	second := join(options...)
	shared := func(ofFirst, ofSecond int) func() bool {
		return func() bool {
			defer first.AllowRebalance()
			defer second.AllowRebalance()
			read += len(first.poll()) + len(second.poll())
			return len(first.owned) == ofFirst && len(second.owned) == ofSecond
		}
	}
	until("both have their part", shared(2, 2))
	for partition := range first.owned {
		if second.owned[partition] {
			panic("two owners")
		}
	}
	second.CloseAllowingRebalance()
	until("the first one has all again", func() bool {
		defer first.AllowRebalance()
		read += len(first.poll())
		return len(first.owned) == 4
	})
	first.CloseAllowingRebalance()
	produce(20, 30)
	third := join(options...)
	defer third.CloseAllowingRebalance()
	next := map[string]bool{}
	until("the next ones are read", func() bool {
		defer third.AllowRebalance()
		for _, record := range third.poll() {
			next[string(record.Value)] = true
		}
		return len(next) == 10
	})
	say("read", read)
	say("next", sorted(next))
}

func sorted(set map[string]bool) (found []string) {
	for each := range set {
		found = append(found, each)
	}
	sort.Strings(found)
	return found
}

func share() {
	produce(0, 9)
	refused := 0
	heard := func(_ *kgo.Client, results kgo.ShareAckResults) {
		if !results.Ok() {
			refused++
		}
	}
	client := newClient(kgo.ShareGroup(group), kgo.ConsumeTopics(topic), kgo.ShareAckCallback(heard))
	defer client.Close()
	deliveries := map[string]int32{}
	done := func() bool {
		return len(deliveries) == 9 && deliveries["v2"] == 3 && deliveries["v5"] == 3 && deliveries["v8"] == 3
	}
	until("every third is delivered three times", func() bool {
		moment, cancel := context.WithTimeout(deadline, 200*time.Millisecond)
		defer cancel()
		for _, record := range client.PollFetches(moment).Records() {
			number, err := strconv.Atoi(string(record.Value[1:]))
			must(err)
			deliveries[string(record.Value)] = record.DeliveryCount()
			switch {
			case number%3 == 1:
				record.Ack(kgo.AckReject)
			case number%3 == 2 && record.DeliveryCount() < 3:
				record.Ack(kgo.AckRelease)
			default:
				record.Ack(kgo.AckAccept)
			}
		}
		return done()
	})
	must(client.FlushAcks(deadline))
	shown := map[string]bool{}
	for value, count := range deliveries {
		shown[fmt.Sprintf("%s:%d", value, count)] = true
	}
	say("deliveries", sorted(shown))
	say("refused", refused)
}

// --- read, process, write

// Writes what it reads to another topic, and commits both at once, until it is killed or its standard input ends. After so
// many transactions it holds one open for ever (0: never).
func process(options ...kgo.Opt) {
	output, id := os.Args[5], os.Args[6]
	holdAfter, err := strconv.Atoi(os.Args[7])
	must(err)
	session, err := kgo.NewGroupTransactSession(append(options,
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.TransactionalID(id), kgo.TransactionTimeout(5*time.Second),
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
		kgo.HeartbeatInterval(200*time.Millisecond), kgo.SessionTimeout(6*time.Second))...)
	must(err)
	alive, stop := context.WithCancel(context.Background())
	go func() {
		os.Stdin.Read(make([]byte, 1))
		stop()
	}()
	for done := 0; ; {
		fetches := session.PollRecords(alive, 10)
		if alive.Err() != nil {
			session.Close()
			return
		}
		records := fetches.Records()
		if len(records) == 0 {
			continue
		}
		must(session.Begin())
		sent := kgo.AbortingFirstErrPromise(session.Client())
		for _, record := range records {
			session.Produce(alive, &kgo.Record{Topic: output, Partition: record.Partition, Value: record.Value}, sent.Promise())
		}
		failed := sent.Err()
		if done == holdAfter && holdAfter > 0 && failed == nil {
			say("state", "holding")
			select {}
		}
		committed, err := session.End(context.Background(), kgo.TransactionEndTry(failed == nil))
		say("transaction", fmt.Sprint(committed, " ", len(records), " ", err))
		must(err)
		if committed {
			done++
		}
	}
}
