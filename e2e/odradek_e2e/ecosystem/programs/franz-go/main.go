// franz-go against the checks of the ecosystem suite.
package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var compression = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func client(options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(options, kgo.SeedBrokers(strings.Split(bootstrap, ",")...))...)
}

func limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), deadline)
}

func record(to, what string, i int) *kgo.Record {
	return &kgo.Record{Topic: to, Key: []byte(key(i)), Value: []byte(value(what, i)),
		Headers: []kgo.RecordHeader{{Key: "n", Value: []byte(header(i))}}}
}

func read(from string, count int, isolation kgo.IsolationLevel) ([]*kgo.Record, error) {
	consumer, err := client(kgo.ConsumeTopics(from), kgo.FetchIsolationLevel(isolation))
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	ctx, cancel := limited()
	defer cancel()
	var found []*kgo.Record
	for len(found) < count {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("%d of %d records: %w", len(found), count, err)
		}
		found = append(found, fetches.Records()...)
	}
	return found, nil
}

func compare(what string, i int, r *kgo.Record) error {
	if len(r.Headers) != 1 {
		return fmt.Errorf("record %d has %d headers", i, len(r.Headers))
	}
	return same(what, i, string(r.Key), string(r.Value), string(r.Headers[0].Value))
}

func roundTrip(to, what string, options ...kgo.Opt) error {
	producer, err := client(options...)
	if err != nil {
		return err
	}
	defer producer.Close()
	ctx, cancel := limited()
	defer cancel()
	var batch []*kgo.Record
	for i := 0; i < records; i++ {
		batch = append(batch, record(to, what, i))
	}
	if err := producer.ProduceSync(ctx, batch...).FirstErr(); err != nil {
		return err
	}
	found, err := read(to, records, kgo.ReadUncommitted())
	if err != nil {
		return err
	}
	for i, r := range found {
		if err := compare(what, i, r); err != nil {
			return err
		}
	}
	return nil
}

func others() error {
	found, err := read(topic("others"), perCodec*len(codecs), kgo.ReadUncommitted())
	if err != nil {
		return err
	}
	for i, r := range found {
		if err := compare(codecs[i/perCodec], i%perCodec, r); err != nil {
			return err
		}
	}
	return nil
}

func transactions() error {
	producer, err := client(kgo.TransactionalID(topic("txn")))
	if err != nil {
		return err
	}
	defer producer.Close()
	ctx, cancel := limited()
	defer cancel()
	for _, what := range []string{"first", "aborted", "second"} {
		if err := producer.BeginTransaction(); err != nil {
			return err
		}
		for i := 0; i < 10; i++ {
			if err := producer.ProduceSync(ctx, record(topic("txn"), what, i)).FirstErr(); err != nil {
				return err
			}
		}
		end := kgo.TryCommit
		if what == "aborted" {
			end = kgo.TryAbort
		}
		if err := producer.EndTransaction(ctx, end); err != nil {
			return err
		}
	}
	found, err := read(topic("txn"), 20, kgo.ReadCommitted())
	if err != nil {
		return err
	}
	for i, r := range found {
		if err := compare([]string{"first", "second"}[i/10], i%10, r); err != nil {
			return err
		}
	}
	return nil
}

func join(name string, owned *assignments) (func(), error) {
	count := 0 // the cooperative protocol reports differences
	changed := func(by int) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, parts map[string][]int32) {
			count += by * len(parts[topic("group")])
			owned.set(name, count)
		}
	}
	member, err := client(kgo.ConsumerGroup(topic("group")), kgo.ConsumeTopics(topic("group")),
		kgo.OnPartitionsAssigned(changed(1)), kgo.OnPartitionsRevoked(changed(-1)),
		kgo.OnPartitionsLost(changed(-1)))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			member.PollFetches(ctx)
		}
	}()
	return func() {
		cancel()
		<-done
		member.Close()
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
	leaveA()
	if err := owned.wait(map[string]int{"b": partitions}); err != nil {
		return err
	}
	leaveB()
	return nil
}

func admin() error {
	connected, err := client()
	if err != nil {
		return err
	}
	admin := kadm.NewClient(connected)
	defer admin.Close()
	ctx, cancel := limited()
	defer cancel()
	day, hour := "86400000", "3600000"
	if _, err := admin.CreateTopic(ctx, 3, 1, map[string]*string{"retention.ms": &day}, topic("admin")); err != nil {
		return err
	}
	altered, err := admin.AlterTopicConfigs(ctx,
		[]kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &hour}}, topic("admin"))
	if err != nil {
		return err
	}
	if altered[0].Err != nil {
		return altered[0].Err
	}
	described, err := admin.DescribeTopicConfigs(ctx, topic("admin"))
	if err != nil {
		return err
	}
	for _, entry := range described[0].Configs {
		if entry.Key == "retention.ms" && entry.MaybeValue() != hour {
			return fmt.Errorf("retention.ms is described as %s", entry.MaybeValue())
		}
	}
	_, err = admin.DeleteTopic(ctx, topic("gone"))
	return err
}

func main() {
	check("admin", admin)
	for _, codec := range codecs {
		check("records "+codec, func() error {
			return roundTrip(topic(codec), codec, kgo.ProducerBatchCompression(compression[codec]),
				kgo.ProducerLinger(50*time.Millisecond), kgo.DisableIdempotentWrite())
		})
	}
	check("others", others)
	check("group", groups)
	check("idempotent", func() error { return roundTrip(topic("idempotent"), "idempotent") })
	check("transactions", transactions)
}
