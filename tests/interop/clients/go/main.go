// Command goclient runs franz-go with its default settings, one command for each step of the test that starts it.
// See programs.py for the commands and the lines that they print.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const replicationFactor = 3

var compressions = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func main() {
	if err := run(context.Background(), os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, command string, arguments []string) error {
	switch command {
	case "compressions":
		names := make([]string, 0, len(compressions))
		for name := range compressions {
			names = append(names, name)
		}
		say("compressions", names)
		return nil
	case "create":
		return create(ctx, arguments[0], arguments[1], arguments[2])
	case "list":
		return list(ctx, arguments[0])
	case "delete":
		return remove(ctx, arguments[0], arguments[1])
	case "produce":
		return produce(ctx, arguments[0], arguments[1], arguments[2])
	case "consume":
		return consume(ctx, arguments[0], arguments[1], arguments[2])
	}
	return fmt.Errorf("no such command: %s", command)
}

var saying sync.Mutex

func say(key string, value any) {
	line, err := json.Marshal(map[string]any{key: value})
	if err != nil {
		panic(err)
	}
	saying.Lock()
	defer saying.Unlock()
	fmt.Println(string(line))
}

func client(bootstrap string, options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(options, kgo.SeedBrokers(strings.Split(bootstrap, ",")...))...)
}

func create(ctx context.Context, bootstrap, topic, partitions string) error {
	count, err := strconv.ParseInt(partitions, 10, 32)
	if err != nil {
		return err
	}
	client, err := client(bootstrap)
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = kadm.NewClient(client).CreateTopic(ctx, int32(count), replicationFactor, nil, topic)
	return err
}

func list(ctx context.Context, bootstrap string) error {
	client, err := client(bootstrap)
	if err != nil {
		return err
	}
	defer client.Close()
	topics, err := kadm.NewClient(client).ListTopics(ctx)
	if err != nil {
		return err
	}
	say("topics", topics.Names())
	return nil
}

func remove(ctx context.Context, bootstrap, topic string) error {
	client, err := client(bootstrap)
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = kadm.NewClient(client).DeleteTopic(ctx, topic)
	return err
}

func produce(ctx context.Context, bootstrap, topic, compression string) error {
	client, err := client(
		bootstrap,
		kgo.ProducerBatchCompression(compressions[compression]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	given := bufio.NewScanner(os.Stdin)
	for given.Scan() {
		name, value, _ := strings.Cut(given.Text(), " ")
		partition, err := strconv.ParseInt(name, 10, 32)
		if err != nil {
			return err
		}
		record := &kgo.Record{Topic: topic, Partition: int32(partition), Value: []byte(value)}
		if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
			return err
		}
		say("acked", value)
	}
	return given.Err()
}

func consume(ctx context.Context, bootstrap, topic, group string) error {
	assigned := newAssignment(topic)
	client, err := client(
		bootstrap,
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.OnPartitionsAssigned(assigned.add),
		kgo.OnPartitionsRevoked(assigned.remove),
		kgo.OnPartitionsLost(assigned.remove),
	)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		end()
	}()
	for ctx.Err() == nil {
		client.PollFetches(ctx).EachRecord(func(record *kgo.Record) {
			say("read", []any{record.Partition, record.Offset, string(record.Value)})
		})
	}
	// What the last poll returned counts as handled only with the next poll, and there is none.
	if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
		return err
	}
	client.Close()
	return nil
}

// assignment is what the member owns. Partitions come and go a few at a time (cooperative rebalance).
type assignment struct {
	lock       sync.Mutex
	topic      string
	partitions map[int32]bool
}

func newAssignment(topic string) *assignment {
	return &assignment{topic: topic, partitions: map[int32]bool{}}
}

func (a *assignment) add(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
	a.change(changed, func(partition int32) { a.partitions[partition] = true })
}

func (a *assignment) remove(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
	a.change(changed, func(partition int32) { delete(a.partitions, partition) })
}

func (a *assignment) change(changed map[string][]int32, apply func(int32)) {
	a.lock.Lock()
	defer a.lock.Unlock()
	for _, partition := range changed[a.topic] {
		apply(partition)
	}
	owned := make([]int32, 0, len(a.partitions))
	for partition := range a.partitions {
		owned = append(owned, partition)
	}
	say("assigned", owned)
}
