// Writes records in every way a producer of Apache Kafka can, idempotent as it is by default, and reads them back by
// offset and by time. Arguments: address and a name for topics.

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Records {
    static final int COUNT = 200;

    public static void main(String[] arguments) throws Exception {
        String address = arguments[0], topic = arguments[1];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", address))) {
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
        }
        long next = 0;
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            try (var producer = producer(address, codec)) {
                List<java.util.concurrent.Future<RecordMetadata>> sent = new ArrayList<>();
                for (int number = 0; number < COUNT; number++) {
                    var record = new ProducerRecord<>(topic, 0, 1_700_000_000_000L + next + number, "key-" + number, "value-" + number);
                    record.headers().add("codec", codec.getBytes(StandardCharsets.UTF_8));
                    sent.add(producer.send(record));
                }
                for (var each : sent) {
                    if (each.get().offset() != next++) throw new AssertionError("offset " + each.get().offset());
                }
            }
            System.out.println(codec + ": " + COUNT + " acknowledged in order");
        }
        try (var producer = producer(address, "none")) {
            producer.send(new ProducerRecord<>(topic, 0, null, null)).get();
            producer.send(new ProducerRecord<>(topic, 0, "large", "x".repeat(900_000))).get();
        }
        read(address, new TopicPartition(topic, 0), next);
    }

    static KafkaProducer<String, String> producer(String address, String codec) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", address, "compression.type", codec));
        settings.put("linger.ms", 5);
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    static void read(String address, TopicPartition partition, long end) {
        Map<String, Object> settings = Map.of("bootstrap.servers", address, "auto.offset.reset", "earliest");
        try (Consumer<String, String> consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(List.of(partition));
            Map<String, Integer> perCodec = new HashMap<>();
            long position = 0;
            String last = "";
            while (position < end + 2) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                    if (record.offset() != position++) throw new AssertionError("offset " + record.offset());
                    if (record.offset() >= end) {
                        last += " " + record.key() + "=" + (record.value() == null ? "null" : record.value().length());
                        continue;
                    }
                    if (!record.value().equals("value-" + record.offset() % COUNT)) throw new AssertionError(record.value());
                    if (record.timestamp() != 1_700_000_000_000L + record.offset()) throw new AssertionError("time " + record.timestamp());
                    perCodec.merge(new String(record.headers().lastHeader("codec").value(), StandardCharsets.UTF_8), 1, Integer::sum);
                }
            }
            System.out.println("read " + new java.util.TreeMap<>(perCodec) + last + ", lag " + consumer.currentLag(partition).getAsLong());
            System.out.println("begins at " + consumer.beginningOffsets(List.of(partition)).get(partition)
                + ", ends at " + consumer.endOffsets(List.of(partition)).get(partition)
                + ", time 500 is " + consumer.offsetsForTimes(Map.of(partition, 1_700_000_000_500L)).get(partition).offset()
                + ", partitions " + consumer.partitionsFor(partition.topic()).size()
                + ", listed " + consumer.listTopics().containsKey(partition.topic()));
            consumer.seek(partition, end);
            System.out.println("sought to " + consumer.poll(Duration.ofSeconds(10)).iterator().next().offset());
        }
    }
}
