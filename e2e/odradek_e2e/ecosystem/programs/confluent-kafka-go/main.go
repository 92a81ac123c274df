// confluent-kafka-go (with the librdkafka that it bundles) against the checks of the ecosystem suite.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

func limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), deadline)
}

func send(producer *kafka.Producer, to, what string, count int) error {
	delivered := make(chan kafka.Event, count)
	for i := 0; i < count; i++ {
		err := producer.Produce(&kafka.Message{
			TopicPartition: kafka.TopicPartition{Topic: &to, Partition: 0}, Key: []byte(key(i)),
			Value:   []byte(value(what, i)),
			Headers: []kafka.Header{{Key: "n", Value: []byte(header(i))}}}, delivered)
		if err != nil {
			return err
		}
	}
	for i := 0; i < count; i++ {
		if err := (<-delivered).(*kafka.Message).TopicPartition.Error; err != nil {
			return err
		}
	}
	return nil
}

func read(from string, count int, isolation string) ([]*kafka.Message, error) {
	consumer, err := kafka.NewConsumer(&kafka.ConfigMap{"bootstrap.servers": bootstrap,
		"group.id": topic("reader"), "isolation.level": isolation, "enable.auto.commit": false})
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	start := kafka.TopicPartition{Topic: &from, Partition: 0, Offset: kafka.OffsetBeginning}
	if err := consumer.Assign([]kafka.TopicPartition{start}); err != nil {
		return nil, err
	}
	var found []*kafka.Message
	for len(found) < count {
		m, err := consumer.ReadMessage(deadline)
		if err != nil {
			return nil, fmt.Errorf("%d of %d records: %w", len(found), count, err)
		}
		found = append(found, m)
	}
	return found, nil
}

func compare(what string, i int, m *kafka.Message) error {
	if len(m.Headers) != 1 {
		return fmt.Errorf("record %d has %d headers", i, len(m.Headers))
	}
	return same(what, i, string(m.Key), string(m.Value), string(m.Headers[0].Value))
}

func roundTrip(to, what string, options kafka.ConfigMap) error {
	options["bootstrap.servers"] = bootstrap
	options["linger.ms"] = 50
	producer, err := kafka.NewProducer(&options)
	if err != nil {
		return err
	}
	defer producer.Close()
	if err := send(producer, to, what, records); err != nil {
		return err
	}
	found, err := read(to, records, "read_uncommitted")
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
	found, err := read(topic("others"), perCodec*len(codecs), "read_uncommitted")
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

func transactions() error {
	producer, err := kafka.NewProducer(&kafka.ConfigMap{"bootstrap.servers": bootstrap,
		"transactional.id": topic("txn")})
	if err != nil {
		return err
	}
	defer producer.Close()
	ctx, cancel := limited()
	defer cancel()
	if err := producer.InitTransactions(ctx); err != nil {
		return err
	}
	for _, what := range []string{"first", "aborted", "second"} {
		if err := producer.BeginTransaction(); err != nil {
			return err
		}
		if err := send(producer, topic("txn"), what, 10); err != nil {
			return err
		}
		if what == "aborted" {
			err = producer.AbortTransaction(ctx)
		} else {
			err = producer.CommitTransaction(ctx)
		}
		if err != nil {
			return err
		}
	}
	found, err := read(topic("txn"), 20, "read_committed")
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

func join(name, protocol string, owned *assignments) (func() error, error) {
	member, err := kafka.NewConsumer(&kafka.ConfigMap{"bootstrap.servers": bootstrap,
		"group.id": topic("group") + "-" + protocol, "group.protocol": protocol, "auto.offset.reset": "earliest"})
	if err != nil {
		return nil, err
	}
	changed := func(consumer *kafka.Consumer, event kafka.Event) error {
		switch e := event.(type) {
		case kafka.AssignedPartitions:
			if consumer.GetRebalanceProtocol() == "COOPERATIVE" {
				return consumer.IncrementalAssign(e.Partitions)
			}
			return consumer.Assign(e.Partitions)
		case kafka.RevokedPartitions:
			if consumer.GetRebalanceProtocol() == "COOPERATIVE" {
				return consumer.IncrementalUnassign(e.Partitions)
			}
			return consumer.Unassign()
		}
		return nil
	}
	if err := member.SubscribeTopics([]string{topic("group")}, changed); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			member.Poll(100)
			if parts, err := member.Assignment(); err == nil {
				owned.set(name, len(parts))
			}
		}
	}()
	return func() error {
		cancel()
		<-done
		return member.Close()
	}, nil
}

func groups(protocol string) error {
	owned := newAssignments()
	leaveA, err := join("a", protocol, owned)
	if err != nil {
		return err
	}
	if err := owned.wait(map[string]int{"a": partitions}); err != nil {
		return err
	}
	leaveB, err := join("b", protocol, owned)
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
	admin, err := kafka.NewAdminClient(&kafka.ConfigMap{"bootstrap.servers": bootstrap})
	if err != nil {
		return err
	}
	defer admin.Close()
	ctx, cancel := limited()
	defer cancel()
	created, err := admin.CreateTopics(ctx, []kafka.TopicSpecification{{Topic: topic("admin"), NumPartitions: 3,
		ReplicationFactor: 1, Config: map[string]string{"retention.ms": "86400000"}}})
	if err != nil {
		return err
	}
	if created[0].Error.Code() != kafka.ErrNoError {
		return created[0].Error
	}
	resource := kafka.ConfigResource{Type: kafka.ResourceTopic, Name: topic("admin"),
		Config: []kafka.ConfigEntry{{Name: "retention.ms", Value: "3600000",
			IncrementalOperation: kafka.AlterConfigOpTypeSet}}}
	altered, err := admin.IncrementalAlterConfigs(ctx, []kafka.ConfigResource{resource})
	if err != nil {
		return err
	}
	if altered[0].Error.Code() != kafka.ErrNoError {
		return altered[0].Error
	}
	described, err := admin.DescribeConfigs(ctx, []kafka.ConfigResource{resource})
	if err != nil {
		return err
	}
	if got := described[0].Config["retention.ms"].Value; got != "3600000" {
		return fmt.Errorf("retention.ms is described as %s", got)
	}
	deleted, err := admin.DeleteTopics(ctx, []string{topic("gone")}, kafka.SetAdminOperationTimeout(time.Minute))
	if err != nil {
		return err
	}
	if deleted[0].Error.Code() != kafka.ErrNoError {
		return deleted[0].Error
	}
	return nil
}

func main() {
	check("admin", admin)
	for _, codec := range codecs {
		check("records "+codec, func() error {
			return roundTrip(topic(codec), codec, kafka.ConfigMap{"compression.type": codec})
		})
	}
	check("others", others)
	check("group", func() error { return groups("classic") })
	check("group (consumer protocol)", func() error { return groups("consumer") })
	check("idempotent", func() error {
		return roundTrip(topic("idempotent"), "idempotent", kafka.ConfigMap{"enable.idempotence": true})
	})
	check("transactions", transactions)
}
