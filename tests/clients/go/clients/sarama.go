package main

import (
	"context"
	"errors"
	"sort"
	"strings"

	"github.com/IBM/sarama"
)

type saramaClient struct{ address []string }

func newSarama(address string) client { return saramaClient{[]string{address}} }

func settings() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Producer.Return.Successes = true
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Net.MaxOpenRequests = 1
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	return config
}

func (s saramaClient) admin() sarama.ClusterAdmin {
	admin, err := sarama.NewClusterAdmin(s.address, settings())
	must(err)
	return admin
}

func (s saramaClient) createTopic(topic string) int {
	admin := s.admin()
	defer admin.Close()
	must(admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}, false))
	for {
		told, err := admin.DescribeTopics([]string{topic})
		must(err)
		if told[0].Err == sarama.ErrNoError {
			return len(told[0].Partitions)
		}
	}
}

func (s saramaClient) deleteTopic(topic string) bool {
	admin := s.admin()
	defer admin.Close()
	return admin.DeleteTopic(topic) == nil
}

func (s saramaClient) groups() []string {
	admin := s.admin()
	defer admin.Close()
	told, err := admin.ListConsumerGroups()
	must(err)
	var names []string
	for name := range told {
		names = append(names, name)
	}
	return names
}

func (s saramaClient) produce(topic string, values []string) {
	config := settings()
	config.Producer.Partitioner = sarama.NewRoundRobinPartitioner
	producer, err := sarama.NewSyncProducer(s.address, config)
	must(err)
	defer producer.Close()
	var messages []*sarama.ProducerMessage
	for _, value := range values {
		messages = append(messages, &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(value)})
	}
	must(producer.SendMessages(messages))
}

type handler struct {
	read chan<- string
}

func (handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (h handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		h.read <- string(message.Value)
		session.MarkMessage(message, "")
	}
	return nil
}

func (s saramaClient) member(topic, group string, read chan<- string, stop <-chan struct{}) {
	consumer, err := sarama.NewConsumerGroup(s.address, group, settings())
	must(err)
	defer consumer.Close()
	until, cancel := context.WithCancel(background)
	go func() { <-stop; cancel() }()
	for until.Err() == nil {
		if err := consumer.Consume(until, []string{topic}, handler{read}); !errors.Is(err, context.Canceled) {
			must(err)
		}
	}
}

func (s saramaClient) transactions(topic string) string {
	config := settings()
	config.Producer.Transaction.ID = topic
	producer, err := sarama.NewSyncProducer(s.address, config)
	must(err)
	for _, value := range []string{"one", "dropped", "two"} {
		must(producer.BeginTxn())
		_, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(value)})
		must(err)
		if value == "dropped" {
			must(producer.AbortTxn())
		} else {
			must(producer.CommitTxn())
		}
	}
	must(producer.Close())
	return s.readCommitted(topic)
}

func (s saramaClient) readCommitted(topic string) string {
	config := settings()
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	consumer, err := sarama.NewConsumer(s.address, config)
	must(err)
	defer consumer.Close()
	found, err := consumer.Partitions(topic)
	must(err)
	values := make(chan string)
	for _, partition := range found {
		claim, err := consumer.ConsumePartition(topic, partition, sarama.OffsetOldest)
		must(err)
		go func() {
			for message := range claim.Messages() {
				values <- string(message.Value)
			}
		}()
	}
	both := []string{<-values, <-values}
	sort.Strings(both) // partitions have no order among them
	return strings.Join(both, " ")
}
