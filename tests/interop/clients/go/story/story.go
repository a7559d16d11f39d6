// Package story has what the programs around the Go clients share: the commands of programs.py and the lines that they print.
package story

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
)

// ReplicationFactor of the topics that are created.
const ReplicationFactor = 3

// Record is what a client has to produce.
type Record struct {
	Partition int32
	Value     string
}

// Client carries out the commands with the client's default settings.
type Client interface {
	Compressions() []string
	Create(ctx context.Context, servers []string, topic string, partitions int) error
	List(ctx context.Context, servers []string) ([]string, error)
	Delete(ctx context.Context, servers []string, topic string) error
	// Produce calls acked for each record once the client says that it is acknowledged.
	Produce(ctx context.Context, servers []string, topic, compression string, records <-chan Record, acked func(Record)) error
	// Consume reads as a member of the group until ctx ends, and then commits what it has read.
	Consume(ctx context.Context, servers []string, topic, group string) error
}

// Main runs the command that the process was started with.
func Main(client Client) {
	if err := run(context.Background(), client, os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, client Client, command string, arguments []string) error {
	if command == "compressions" {
		say("compressions", client.Compressions())
		return nil
	}
	servers := strings.Split(arguments[0], ",")
	switch command {
	case "create":
		partitions, err := strconv.Atoi(arguments[2])
		if err != nil {
			return err
		}
		return client.Create(ctx, servers, arguments[1], partitions)
	case "list":
		topics, err := client.List(ctx, servers)
		if err == nil {
			say("topics", topics)
		}
		return err
	case "delete":
		return client.Delete(ctx, servers, arguments[1])
	case "produce":
		acked := func(record Record) { say("acked", record.Value) }
		return client.Produce(ctx, servers, arguments[1], arguments[2], given(), acked)
	case "consume":
		ctx, end := context.WithCancel(ctx)
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			end()
		}()
		return client.Consume(ctx, servers, arguments[1], arguments[2])
	}
	return fmt.Errorf("no such command: %s", command)
}

// given returns the records on standard input, one after the other.
func given() <-chan Record {
	records := make(chan Record)
	go func() {
		defer close(records)
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			name, value, _ := strings.Cut(lines.Text(), " ")
			partition, err := strconv.ParseInt(name, 10, 32)
			if err != nil {
				panic(err)
			}
			records <- Record{Partition: int32(partition), Value: value}
		}
	}()
	return records
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

// Read tells of a record that the member has read.
func Read(partition int32, offset int64, value []byte) {
	say("read", []any{partition, offset, string(value)})
}

// Assigned tells of all partitions that the member owns now.
func Assigned(partitions []int32) {
	sorted := append([]int32{}, partitions...)
	sort.Slice(sorted, func(i, j int) bool { return sorted[i] < sorted[j] })
	say("assigned", sorted)
}
