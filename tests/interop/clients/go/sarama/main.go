// Command sarama runs Sarama. Its settings are the defaults, but for what the story needs: the partition of each record,
// the start of the topic, and acks=all.
package main

import (
	"context"
	"errors"
	"maps"
	"slices"

	"diskraft/interop/goclient/story"

	"github.com/IBM/sarama"
)

var compressions = map[string]sarama.CompressionCodec{
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

func main() { story.Main(client{}) }

type client struct{}

func (client) Compressions() []string { return slices.Collect(maps.Keys(compressions)) }

func (client) Create(_ context.Context, servers []string, topic string, partitions int) error {
	return withAdmin(servers, func(admin sarama.ClusterAdmin) error {
		detail := &sarama.TopicDetail{NumPartitions: int32(partitions), ReplicationFactor: story.ReplicationFactor}
		return admin.CreateTopic(topic, detail, false)
	})
}

func (client) List(_ context.Context, servers []string) (names []string, err error) {
	err = withAdmin(servers, func(admin sarama.ClusterAdmin) error {
		topics, err := admin.ListTopics()
		for name := range topics {
			names = append(names, name)
		}
		return err
	})
	return names, err
}

func (client) Delete(_ context.Context, servers []string, topic string) error {
	return withAdmin(servers, func(admin sarama.ClusterAdmin) error { return admin.DeleteTopic(topic) })
}

func withAdmin(servers []string, use func(sarama.ClusterAdmin) error) error {
	admin, err := sarama.NewClusterAdmin(servers, sarama.NewConfig())
	if err != nil {
		return err
	}
	return errors.Join(use(admin), admin.Close())
}

func (client) Produce(
	_ context.Context, servers []string, topic, compression string, records <-chan story.Record, acked func(story.Record),
) error {
	config := sarama.NewConfig()
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Compression = compressions[compression]
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Return.Successes = true
	// Three attempts with 100 ms between them, the default, do not outlast an election.
	config.Producer.Retry.Max = 300
	producer, err := sarama.NewSyncProducer(servers, config)
	if err != nil {
		return err
	}
	for record := range records {
		message := &sarama.ProducerMessage{Topic: topic, Partition: record.Partition, Value: sarama.StringEncoder(record.Value)}
		if _, _, err := producer.SendMessage(message); err != nil {
			return err
		}
		acked(record)
	}
	return producer.Close()
}

func (client) Consume(ctx context.Context, servers []string, topic, group string) error {
	config := sarama.NewConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	member, err := sarama.NewConsumerGroup(servers, group, config)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		// Returns at each rebalance, and with an error while the coordinator is away.
		_ = member.Consume(ctx, []string{topic}, handler{topic})
	}
	return member.Close()
}

type handler struct{ topic string }

func (h handler) Setup(session sarama.ConsumerGroupSession) error {
	story.Assigned(session.Claims()[h.topic])
	return nil
}

func (h handler) Cleanup(sarama.ConsumerGroupSession) error {
	story.Assigned(nil)
	return nil
}

func (h handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, more := <-claim.Messages():
			if !more {
				return nil
			}
			story.Read(message.Partition, message.Offset, message.Value)
			session.MarkMessage(message, "")
		case <-session.Context().Done():
			return nil
		}
	}
}
