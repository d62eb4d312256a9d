package main

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/segmentio/kafka-go"
)

// kafkaGo has neither transactions nor an idempotent producer.
type kafkaGo struct{ admin *kafka.Client }

func newKafkaGo(address string) client {
	resolved, err := net.ResolveTCPAddr("tcp", address)
	must(err)
	return kafkaGo{&kafka.Client{Addr: resolved}}
}

func (k kafkaGo) createTopic(topic string) int {
	wanted := kafka.TopicConfig{Topic: topic, NumPartitions: partitions, ReplicationFactor: 1}
	made, err := k.admin.CreateTopics(background, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{wanted}})
	must(err)
	must(made.Errors[topic])
	for {
		told, err := k.admin.Metadata(background, &kafka.MetadataRequest{Topics: []string{topic}})
		must(err)
		if told.Topics[0].Error == nil {
			return len(told.Topics[0].Partitions)
		}
	}
}

func (k kafkaGo) deleteTopic(topic string) bool {
	gone, err := k.admin.DeleteTopics(background, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
	must(err)
	return gone.Errors[topic] == nil
}

func (k kafkaGo) groups() []string {
	told, err := k.admin.ListGroups(background, &kafka.ListGroupsRequest{})
	must(err)
	var names []string
	for _, group := range told.Groups {
		names = append(names, group.GroupID)
	}
	return names
}

func (k kafkaGo) produce(topic string, values []string) {
	writer := &kafka.Writer{Addr: k.admin.Addr, Topic: topic, RequiredAcks: kafka.RequireAll, Balancer: &kafka.RoundRobin{}, BatchSize: perRound}
	defer writer.Close()
	var messages []kafka.Message
	for _, value := range values {
		messages = append(messages, kafka.Message{Value: []byte(value)})
	}
	writer.BatchTimeout = 1
	must(writer.WriteMessages(background, messages...))
}

func (k kafkaGo) member(topic, group string, read chan<- string, stop <-chan struct{}) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{k.admin.Addr.String()}, GroupID: group, Topic: topic, StartOffset: kafka.FirstOffset,
		// It asks for a rebalance with its heartbeats, and waits before it joins again.
		HeartbeatInterval: 500 * time.Millisecond, JoinGroupBackoff: 500 * time.Millisecond, MaxWait: 500 * time.Millisecond,
	})
	defer reader.Close()
	until, cancel := context.WithCancel(background)
	go func() { <-stop; cancel() }()
	for {
		message, err := reader.FetchMessage(until)
		if errors.Is(err, context.Canceled) {
			return
		}
		must(err)
		read <- string(message.Value)
		must(reader.CommitMessages(background, message))
	}
}

func (k kafkaGo) transactions(string) string { return "" }
