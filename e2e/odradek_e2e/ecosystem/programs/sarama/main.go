// Sarama against the checks of the ecosystem suite.
package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

var compression = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

func config() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.MaxVersion
	c.Producer.Return.Successes = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	return c
}

func servers() []string { return strings.Split(bootstrap, ",") }

func message(to, what string, i int) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{
		Topic: to, Partition: 0, Key: sarama.StringEncoder(key(i)), Value: sarama.StringEncoder(value(what, i)),
		Headers: []sarama.RecordHeader{{Key: []byte("n"), Value: []byte(header(i))}},
	}
}

func read(from string, count int, isolation sarama.IsolationLevel) ([]*sarama.ConsumerMessage, error) {
	c := config()
	c.Consumer.IsolationLevel = isolation
	consumer, err := sarama.NewConsumer(servers(), c)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	part, err := consumer.ConsumePartition(from, 0, sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	defer part.Close()
	var found []*sarama.ConsumerMessage
	late := time.After(deadline)
	for len(found) < count {
		select {
		case m := <-part.Messages():
			found = append(found, m)
		case <-late:
			return nil, fmt.Errorf("%d of %d records after %v", len(found), count, deadline)
		}
	}
	return found, nil
}

func compare(what string, i int, m *sarama.ConsumerMessage) error {
	if len(m.Headers) != 1 {
		return fmt.Errorf("record %d has %d headers", i, len(m.Headers))
	}
	return same(what, i, string(m.Key), string(m.Value), string(m.Headers[0].Value))
}

func roundTrip(to, what string, c *sarama.Config) error {
	producer, err := sarama.NewSyncProducer(servers(), c)
	if err != nil {
		return err
	}
	defer producer.Close()
	var batch []*sarama.ProducerMessage
	for i := 0; i < records; i++ {
		batch = append(batch, message(to, what, i))
	}
	if err := producer.SendMessages(batch); err != nil {
		return err
	}
	found, err := read(to, records, sarama.ReadUncommitted)
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
	found, err := read(topic("others"), perCodec*len(codecs), sarama.ReadUncommitted)
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

func idempotent() error {
	c := config()
	c.Producer.Idempotent = true
	c.Net.MaxOpenRequests = 1
	return roundTrip(topic("idempotent"), "idempotent", c)
}

func transactions() error {
	c := config()
	c.Producer.Idempotent = true
	c.Producer.Transaction.ID = topic("txn")
	c.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer(servers(), c)
	if err != nil {
		return err
	}
	defer producer.Close()
	for round := 0; round < 3; round++ {
		if err := producer.BeginTxn(); err != nil {
			return err
		}
		what := []string{"first", "aborted", "second"}[round]
		for i := 0; i < 10; i++ {
			if _, _, err := producer.SendMessage(message(topic("txn"), what, i)); err != nil {
				return err
			}
		}
		if what == "aborted" {
			err = producer.AbortTxn()
		} else {
			err = producer.CommitTxn()
		}
		if err != nil {
			return err
		}
	}
	found, err := read(topic("txn"), 20, sarama.ReadCommitted)
	if err != nil {
		return err
	}
	for i, m := range found {
		if err := compare([]string{"first", "second"}[i/10], i%10, m); err != nil {
			return err
		}
	}
	return nil
}

type member struct {
	name  string
	owned *assignments
}

func (m *member) Setup(s sarama.ConsumerGroupSession) error {
	m.owned.set(m.name, len(s.Claims()[topic("group")]))
	return nil
}
func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (m *member) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		s.MarkMessage(message, "")
	}
	return nil
}

func join(name string, owned *assignments) (func() error, error) {
	group, err := sarama.NewConsumerGroup(servers(), topic("group"), config())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			if err := group.Consume(ctx, []string{topic("group")}, &member{name, owned}); err != nil {
				done <- err
				return
			}
		}
		done <- nil
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
	admin, err := sarama.NewClusterAdmin(servers(), config())
	if err != nil {
		return err
	}
	defer admin.Close()
	day := "86400000"
	detail := &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 1,
		ConfigEntries: map[string]*string{"retention.ms": &day}}
	if err := admin.CreateTopic(topic("admin"), detail, false); err != nil {
		return err
	}
	hour := "3600000"
	changed := map[string]sarama.IncrementalAlterConfigsEntry{
		"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &hour},
	}
	if err := admin.IncrementalAlterConfig(sarama.TopicResource, topic("admin"), changed, false); err != nil {
		return err
	}
	entries, err := admin.DescribeConfig(sarama.ConfigResource{
		Type: sarama.TopicResource, Name: topic("admin"), ConfigNames: []string{"retention.ms"}})
	if err != nil {
		return err
	}
	if len(entries) != 1 || entries[0].Value != hour {
		return fmt.Errorf("retention.ms is described as %v", entries)
	}
	return admin.DeleteTopic(topic("gone"))
}

func main() {
	check("admin", admin)
	for _, codec := range codecs {
		check("records "+codec, func() error {
			c := config()
			c.Producer.Compression = compression[codec]
			return roundTrip(topic(codec), codec, c)
		})
	}
	check("others", others)
	check("group", groups)
	check("idempotent", idempotent)
	check("transactions", transactions)
}
