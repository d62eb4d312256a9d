package main

import (
	"context"
	"errors"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var background = context.Background()

type franz struct{ address string }

func newFranz(address string) client { return franz{address} }

func (f franz) open(options ...kgo.Opt) *kgo.Client {
	opened, err := kgo.NewClient(append(options, kgo.SeedBrokers(f.address))...)
	must(err)
	return opened
}

func (f franz) createTopic(topic string) int {
	admin := kadm.NewClient(f.open())
	defer admin.Close()
	_, err := admin.CreateTopic(background, partitions, 1, nil, topic)
	must(err)
	told, err := admin.ListTopics(background, topic)
	must(err)
	return len(told[topic].Partitions)
}

func (f franz) deleteTopic(topic string) bool {
	admin := kadm.NewClient(f.open())
	defer admin.Close()
	_, err := admin.DeleteTopic(background, topic)
	return err == nil
}

func (f franz) groups() []string {
	admin := kadm.NewClient(f.open())
	defer admin.Close()
	told, err := admin.ListGroups(background)
	must(err)
	return told.Groups()
}

func (f franz) produce(topic string, values []string) {
	producer := f.open(kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	defer producer.Close()
	for _, value := range values {
		producer.Produce(background, &kgo.Record{Topic: topic, Value: []byte(value)}, func(_ *kgo.Record, err error) { must(err) })
	}
	must(producer.Flush(background))
}

func (f franz) member(topic, group string, read chan<- string, stop <-chan struct{}) {
	consumer := f.open(kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer consumer.CloseAllowingRebalance()
	until, cancel := context.WithCancel(background)
	go func() { <-stop; cancel() }()
	for {
		fetched := consumer.PollFetches(until)
		fetched.EachRecord(func(record *kgo.Record) { read <- string(record.Value) })
		must(consumer.CommitRecords(background, fetched.Records()...))
		consumer.AllowRebalance()
		if errors.Is(fetched.Err(), context.Canceled) {
			return
		}
	}
}

func (f franz) transactions(topic string) string {
	producer := f.open(kgo.TransactionalID(topic), kgo.AllowAutoTopicCreation())
	defer producer.Close()
	for _, value := range []string{"one", "dropped", "two"} {
		must(producer.BeginTransaction())
		must(producer.ProduceSync(background, &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr())
		end := kgo.TryCommit
		if value == "dropped" {
			end = kgo.TryAbort
		}
		must(producer.EndTransaction(background, end))
	}
	reader := f.open(kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer reader.Close()
	var values []string
	for len(values) < 2 {
		reader.PollFetches(background).EachRecord(func(record *kgo.Record) { values = append(values, string(record.Value)) })
	}
	return strings.Join(values, " ")
}
