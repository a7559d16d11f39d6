// Command franz runs franz-go with its default settings.
package main

import (
	"context"
	"maps"
	"slices"
	"sync"

	"diskraft/interop/goclient/story"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var compressions = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func main() { story.Main(franz{}) }

type franz struct{}

func (franz) Compressions() []string { return slices.Collect(maps.Keys(compressions)) }

func (franz) Create(ctx context.Context, servers []string, topic string, partitions int) error {
	return withAdmin(servers, func(admin *kadm.Client) error {
		_, err := admin.CreateTopic(ctx, int32(partitions), story.ReplicationFactor, nil, topic)
		return err
	})
}

func (franz) List(ctx context.Context, servers []string) (names []string, err error) {
	err = withAdmin(servers, func(admin *kadm.Client) error {
		topics, err := admin.ListTopics(ctx)
		names = topics.Names()
		return err
	})
	return names, err
}

func (franz) Delete(ctx context.Context, servers []string, topic string) error {
	return withAdmin(servers, func(admin *kadm.Client) error {
		_, err := admin.DeleteTopic(ctx, topic)
		return err
	})
}

func withAdmin(servers []string, use func(*kadm.Client) error) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(servers...))
	if err != nil {
		return err
	}
	defer client.Close()
	return use(kadm.NewClient(client))
}

func (franz) Produce(
	ctx context.Context, servers []string, topic, compression string, records <-chan story.Record, acked func(story.Record),
) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(servers...),
		kgo.ProducerBatchCompression(compressions[compression]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	for given := range records {
		record := &kgo.Record{Topic: topic, Partition: given.Partition, Value: []byte(given.Value)}
		if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
			return err
		}
		acked(given)
	}
	return nil
}

func (franz) Consume(ctx context.Context, servers []string, topic, group string) error {
	assigned := &assignment{topic: topic, partitions: map[int32]bool{}}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(servers...),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.OnPartitionsAssigned(assigned.add),
		kgo.OnPartitionsRevoked(assigned.remove),
		kgo.OnPartitionsLost(assigned.remove),
	)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		client.PollFetches(ctx).EachRecord(func(record *kgo.Record) {
			story.Read(record.Partition, record.Offset, record.Value)
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
	story.Assigned(owned)
}
