// Command segmentio runs segmentio's kafka-go. Its settings are the defaults, but for what the story needs: the partition of
// each record, the start of the topic, and acks=all.
package main

import (
	"context"
	"maps"
	"slices"
	"sync"

	"diskraft/interop/goclient/story"

	"github.com/segmentio/kafka-go"
)

var compressions = map[string]kafka.Compression{
	"none":   0,
	"gzip":   kafka.Gzip,
	"snappy": kafka.Snappy,
	"lz4":    kafka.Lz4,
	"zstd":   kafka.Zstd,
}

func main() { story.Main(client{}) }

type client struct{}

func (client) Compressions() []string { return slices.Collect(maps.Keys(compressions)) }

func (client) Create(ctx context.Context, servers []string, topic string, partitions int) error {
	asked := kafka.TopicConfig{Topic: topic, NumPartitions: partitions, ReplicationFactor: story.ReplicationFactor}
	answer, err := admin(servers).CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{asked}})
	if err != nil {
		return err
	}
	return answer.Errors[topic]
}

func (client) List(ctx context.Context, servers []string) ([]string, error) {
	answer, err := admin(servers).Metadata(ctx, &kafka.MetadataRequest{})
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(answer.Topics))
	for _, topic := range answer.Topics {
		names = append(names, topic.Name)
	}
	return names, nil
}

func (client) Delete(ctx context.Context, servers []string, topic string) error {
	answer, err := admin(servers).DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
	if err != nil {
		return err
	}
	return answer.Errors[topic]
}

func admin(servers []string) *kafka.Client { return &kafka.Client{Addr: kafka.TCP(servers...)} }

func (client) Produce(
	ctx context.Context, servers []string, topic, compression string, records <-chan story.Record, acked func(story.Record),
) error {
	var partition int
	writer := &kafka.Writer{
		Addr:         kafka.TCP(servers...),
		Topic:        topic,
		RequiredAcks: kafka.RequireAll,
		Compression:  compressions[compression],
		Balancer:     kafka.BalancerFunc(func(kafka.Message, ...int) int { return partition }),
		// One record a call: without this, each call waits a second for more.
		BatchSize: 1,
		// Ten attempts within a few seconds, the default, do not outlast an election.
		MaxAttempts: 300,
	}
	for record := range records {
		partition = int(record.Partition)
		if err := writer.WriteMessages(ctx, kafka.Message{Value: []byte(record.Value)}); err != nil {
			return err
		}
		acked(record)
	}
	return writer.Close()
}

func (client) Consume(ctx context.Context, servers []string, topic, group string) error {
	member, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: group, Brokers: servers, Topics: []string{topic}, StartOffset: kafka.FirstOffset,
	})
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		generation, err := member.Next(ctx)
		if err != nil {
			// No coordinator, or the end.
			continue
		}
		consumeGeneration(ctx, servers, topic, generation)
	}
	return member.Close()
}

// consumeGeneration returns once the generation has ended, or ctx.
func consumeGeneration(ctx context.Context, servers []string, topic string, generation *kafka.Generation) {
	var readers sync.WaitGroup
	var owned []int32
	for _, assigned := range generation.Assignments[topic] {
		owned = append(owned, int32(assigned.ID))
		readers.Add(1)
		generation.Start(func(generationEnd context.Context) {
			defer readers.Done()
			ending, end := context.WithCancel(generationEnd)
			defer end()
			defer context.AfterFunc(ctx, end)()
			read(ending, servers, topic, assigned, generation)
		})
	}
	story.Assigned(owned)
	var over sync.WaitGroup
	over.Add(1)
	generation.Start(func(generationEnd context.Context) {
		defer over.Done()
		select {
		case <-generationEnd.Done():
		case <-ctx.Done():
		}
	})
	over.Wait()
	readers.Wait()
	story.Assigned(nil)
}

func read(ctx context.Context, servers []string, topic string, assigned kafka.PartitionAssignment, generation *kafka.Generation) {
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: servers, Topic: topic, Partition: assigned.ID})
	defer reader.Close()
	if err := reader.SetOffset(assigned.Offset); err != nil {
		panic(err)
	}
	for {
		message, err := reader.ReadMessage(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			continue
		}
		story.Read(int32(message.Partition), message.Offset, message.Value)
		// As the library's own reader for groups does. If it fails, the next owner reads the record again.
		_ = generation.CommitOffsets(map[string]map[int]int64{topic: {assigned.ID: message.Offset + 1}})
	}
}
