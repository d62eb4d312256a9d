// What Apache Kafka's own producer does in transactions; prints how each one ended, and what a reader of committed
// records sees at the end. Arguments: address and topic. A line on the standard input lets it go on after "waiting".

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Transactions {
    interface Step {
        void run() throws Exception;
    }

    static Producer<String, String> producer;
    static Consumer<String, String> consumer;
    static TopicPartition partition;
    static final Scanner input = new Scanner(System.in);

    public static void main(String[] arguments) throws Exception {
        partition = new TopicPartition(arguments[1], 0);
        producer = new KafkaProducer<>(
            Map.of("bootstrap.servers", arguments[0], "transactional.id", "writer-of-" + arguments[1]),
            new StringSerializer(), new StringSerializer());
        consumer = new KafkaConsumer<>(
            Map.of("bootstrap.servers", arguments[0], "group.id", arguments[1],
                   "isolation.level", "read_committed", "auto.offset.reset", "earliest"),
            new StringDeserializer(), new StringDeserializer());
        producer.initTransactions();
        transaction("one", Transactions::commit);
        transaction("aborted", producer::abortTransaction);
        transaction("two", () -> {
            var offsets = Map.of(partition, new OffsetAndMetadata(1));
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
            commit();
        });
        transaction("aborted by the broker", () -> { await(); commit(); });
        transaction("aborted by the broker", () -> { await(); send("second half"); commit(); });
        transaction("aborted by the broker", () -> { await(); producer.abortTransaction(); });
        transaction("three", Transactions::commit);
        System.out.println(String.join(" ", read(3)) + ", committed " + consumer.committed(java.util.Set.of(partition)).get(partition).offset());
        producer.close();
        consumer.close();
    }

    static void transaction(String value, Step end) {
        producer.beginTransaction();
        try {
            send(value);
            end.run();
        } catch (Exception error) {
            var cause = error.getCause() == null ? error : error.getCause();
            System.out.println(cause.getClass().getSimpleName());
            producer.abortTransaction();
        }
    }

    static void send(String value) throws Exception {
        producer.send(new ProducerRecord<>(partition.topic(), 0, null, value)).get();
    }

    static void commit() {
        producer.commitTransaction();
    }

    static void await() {
        System.out.println("waiting");
        System.out.flush();
        input.nextLine();
    }

    static List<String> read(int count) {
        consumer.assign(List.of(partition));
        consumer.seekToBeginning(List.of(partition));
        List<String> values = new ArrayList<>();
        while (values.size() < count) {
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                values.add(record.value());
            }
        }
        return values;
    }
}
