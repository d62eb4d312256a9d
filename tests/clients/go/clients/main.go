// What Go's Kafka clients do on a broker, told line by line. Arguments: the client, address and a name for topics.
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

const partitions, perRound = 4, 100

// client is what every library under test does in its own way.
type client interface {
	createTopic(topic string) int
	produce(topic string, values []string)
	// member reads as a member of a group until stop is closed; what it read is committed when it returns.
	member(topic, group string, read chan<- string, stop <-chan struct{})
	// transactions commits "kept" and aborts "dropped"; "" where the library has none.
	transactions(topic string) string
	deleteTopic(topic string) bool
	groups() []string
}

func main() {
	address, topic := os.Args[2], os.Args[3]
	clients := map[string]func(string) client{"franz-go": newFranz, "sarama": newSarama, "kafka-go": newKafkaGo}
	under := clients[os.Args[1]](address)
	fmt.Println("created:", under.createTopic(topic), "partitions")
	shareAGroup(under, topic)
	fmt.Println("group listed:", contains(under.groups(), topic))
	if told := under.transactions(topic + "-transactions"); told != "" {
		fmt.Println("transactions:", told)
	}
	fmt.Println("deleted:", under.deleteTopic(topic))
}

// shareAGroup writes until two members of a group have both read, ends them, and goes on with a third.
func shareAGroup(under client, topic string) {
	written, seen := 0, map[string]bool{}
	write := func() {
		values := make([]string, perRound)
		for index := range values {
			values[index] = strconv.Itoa(written)
			written++
		}
		under.produce(topic, values)
	}
	stop, both := make(chan struct{}), [2]chan string{make(chan string), make(chan string)}
	ended := make(chan struct{})
	for _, read := range both {
		go func() {
			under.member(topic, topic, read, stop)
			ended <- struct{}{}
		}()
	}
	counts := [2]int{}
	next := time.NewTicker(200 * time.Millisecond)
	write()
	for len(seen) < written || counts[0] == 0 || counts[1] == 0 {
		select {
		case value := <-both[0]:
			counts[0]++
			seen[value] = true
		case value := <-both[1]:
			counts[1]++
			seen[value] = true
		case <-next.C:
			if counts[0] == 0 || counts[1] == 0 {
				write()
			}
		}
	}
	close(stop)
	for left := 2; left > 0; {
		select {
		case <-both[0]:
		case <-both[1]:
		case <-ended:
			left--
		}
	}
	fmt.Println("shared: all records read, by both members")
	again, third, stopThird := 0, make(chan string), make(chan struct{})
	write()
	go func() { under.member(topic, topic, third, stopThird); close(third) }()
	for len(seen) < written {
		value := <-third
		if seen[value] {
			again++
		}
		seen[value] = true
	}
	close(stopThird)
	for range third {
	}
	fmt.Println("went on: all records read,", again, "again")
}

func contains(names []string, name string) bool {
	for _, each := range names {
		if each == name {
			return true
		}
	}
	return false
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
