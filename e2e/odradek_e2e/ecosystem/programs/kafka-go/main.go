// kafka-go against the checks of the ecosystem suite.
package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/compress"
)

var compression = map[string]kafka.Compression{
	"none": compress.None, "gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
}

func servers() []string { return strings.Split(bootstrap, ",") }

func limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), deadline)
}

func read(from string, count int) ([]kafka.Message, error) {
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: servers(), Topic: from, Partition: 0})
	defer reader.Close()
	ctx, cancel := limited()
	defer cancel()
	var found []kafka.Message
	for len(found) < count {
		m, err := reader.ReadMessage(ctx)
		if err != nil {
			return nil, fmt.Errorf("%d of %d records: %w", len(found), count, err)
		}
		found = append(found, m)
	}
	return found, nil
}

func compare(what string, i int, m kafka.Message) error {
	if len(m.Headers) != 1 {
		return fmt.Errorf("record %d has %d headers", i, len(m.Headers))
	}
	return same(what, i, string(m.Key), string(m.Value), string(m.Headers[0].Value))
}

func roundTrip(to, what string, codec kafka.Compression) error {
	writer := &kafka.Writer{Addr: kafka.TCP(servers()...), Topic: to, Compression: codec,
		RequiredAcks: kafka.RequireAll, BatchTimeout: 50 * time.Millisecond}
	ctx, cancel := limited()
	defer cancel()
	var batch []kafka.Message
	for i := 0; i < records; i++ {
		batch = append(batch, kafka.Message{Key: []byte(key(i)), Value: []byte(value(what, i)),
			Headers: []kafka.Header{{Key: "n", Value: []byte(header(i))}}})
	}
	if err := writer.WriteMessages(ctx, batch...); err != nil {
		return err
	}
	if err := writer.Close(); err != nil {
		return err
	}
	found, err := read(to, records)
	if err != nil {
		return err
	}
	for i, m := range found {
		if err := compare(what, i, m); err != nil {
			return err
		}
	}
	return nil
}

func others() error {
	found, err := read(topic("others"), perCodec*len(codecs))
	if err != nil {
		return err
	}
	for i, m := range found {
		if err := compare(codecs[i/perCodec], i%perCodec, m); err != nil {
			return err
		}
	}
	return nil
}

func join(name string, owned *assignments) (func() error, error) {
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: topic("group"), Brokers: servers(), Topics: []string{topic("group")}})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			generation, err := group.Next(ctx)
			if err != nil {
				return
			}
			owned.set(name, len(generation.Assignments[topic("group")]))
			generation.Start(func(ctx context.Context) { <-ctx.Done() })
		}
	}()
	return func() error {
		cancel()
		<-done
		return group.Close()
	}, nil
}

func groups() error {
	owned := newAssignments()
	leaveA, err := join("a", owned)
	if err != nil {
		return err
	}
	if err := owned.wait(map[string]int{"a": partitions}); err != nil {
		return err
	}
	leaveB, err := join("b", owned)
	if err != nil {
		return err
	}
	if err := owned.wait(map[string]int{"a": partitions / 2, "b": partitions / 2}); err != nil {
		return err
	}
	if err := leaveA(); err != nil {
		return err
	}
	if err := owned.wait(map[string]int{"b": partitions}); err != nil {
		return err
	}
	return leaveB()
}

func admin() error {
	admin := &kafka.Client{Addr: kafka.TCP(servers()...), Timeout: deadline}
	ctx, cancel := limited()
	defer cancel()
	created, err := admin.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{
		Topic: topic("admin"), NumPartitions: 3, ReplicationFactor: 1,
		ConfigEntries: []kafka.ConfigEntry{{ConfigName: "retention.ms", ConfigValue: "86400000"}}}}})
	if err != nil {
		return err
	}
	if err := created.Errors[topic("admin")]; err != nil {
		return err
	}
	altered, err := admin.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: topic("admin"),
			Configs: []kafka.IncrementalAlterConfigsRequestConfig{{Name: "retention.ms", Value: "3600000",
				ConfigOperation: kafka.ConfigOperationSet}}}}})
	if err != nil {
		return err
	}
	if err := altered.Resources[0].Error; err != nil {
		return err
	}
	described, err := admin.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{{ResourceType: kafka.ResourceTypeTopic,
			ResourceName: topic("admin"), ConfigNames: []string{"retention.ms"}}}})
	if err != nil {
		return err
	}
	if got := described.Resources[0].ConfigEntries[0].ConfigValue; got != "3600000" {
		return fmt.Errorf("retention.ms is described as %s", got)
	}
	deleted, err := admin.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic("gone")}})
	if err != nil {
		return err
	}
	return deleted.Errors[topic("gone")]
}

func main() {
	check("admin", admin)
	for _, codec := range codecs {
		check("records "+codec, func() error { return roundTrip(topic(codec), codec, compression[codec]) })
	}
	check("others", others)
	check("group", groups)
	absent("idempotent", "kafka-go's writer has no idempotence")
	absent("transactions", "kafka-go's writer has no transactions")
}
