// Members of a consumer group come, share partitions, commit and leave. Arguments: address, a name for topic and group,
// what to do (share, assign or pattern), and the settings of the members as name=value, among them the group protocol.

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Groups {
    static final int PARTITIONS = 4, PER_PARTITION = 25;
    static String address;
    static final Map<String, Object> settings = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        address = arguments[0];
        String topic = arguments[1];
        for (int index = 3; index < arguments.length; index++) {
            settings.put(arguments[index].split("=")[0], arguments[index].split("=")[1]);
        }
        fill(topic);
        switch (arguments[2]) {
            case "share" -> share(topic);
            case "assign" -> commitWithoutMembership(topic);
            case "pattern" -> subscribeByPattern(topic);
            default -> throw new IllegalArgumentException(arguments[2]);
        }
    }

    static void fill(String topic) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", address))) {
            admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, (short) 1))).all().get();
        }
        write(topic, 0);
    }

    static void write(String topic, int from) {
        Map<String, Object> own = Map.of("bootstrap.servers", address);
        try (var producer = new KafkaProducer<>(own, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < PARTITIONS * PER_PARTITION; number++) {
                producer.send(new ProducerRecord<>(topic, number % PARTITIONS, null, "" + (from + number)));
            }
        }
    }

    static KafkaConsumer<String, String> member(String group) {
        Map<String, Object> own = new HashMap<>(settings);
        own.putAll(Map.of("bootstrap.servers", address, "group.id", group, "auto.offset.reset", "earliest", "enable.auto.commit", false));
        return new KafkaConsumer<>(own, new StringDeserializer(), new StringDeserializer());
    }

    static void share(String topic) {
        Set<Integer> read = new TreeSet<>();
        List<Integer> twice = new ArrayList<>();
        try (var first = member(topic)) {
            first.subscribe(List.of(topic));
            while (read.size() < PARTITIONS * PER_PARTITION) take(first, read, twice);
            System.out.println("alone: " + first.assignment().size() + " partitions, " + read.size() + " records");
            first.commitSync();
            try (var second = member(topic)) {
                second.subscribe(List.of(topic));
                while (first.assignment().size() != 2 || second.assignment().size() != 2) {
                    take(first, read, twice);
                    take(second, read, twice);
                }
                write(topic, PARTITIONS * PER_PARTITION);
                while (read.size() < 2 * PARTITIONS * PER_PARTITION) {
                    take(first, read, twice);
                    take(second, read, twice);
                }
                first.commitSync();
                second.commitSync();
                System.out.println("together: 2 and 2 partitions, " + read.size() + " records");
            }
            while (first.assignment().size() != PARTITIONS) take(first, read, twice);
            System.out.println("alone again: " + first.assignment().size() + " partitions, " + twice.size() + " records twice");
        }
        write(topic, 2 * PARTITIONS * PER_PARTITION);
        try (var third = member(topic)) {
            third.subscribe(List.of(topic));
            while (read.size() < 3 * PARTITIONS * PER_PARTITION) take(third, read, twice);
            System.out.println("goes on: " + read.size() + " records, " + twice.size() + " twice");
        }
    }

    static void take(KafkaConsumer<String, String> member, Set<Integer> read, List<Integer> twice) {
        for (ConsumerRecord<String, String> record : member.poll(Duration.ofMillis(100))) {
            int number = Integer.parseInt(record.value());
            if (!read.add(number)) twice.add(number);
        }
    }

    static void commitWithoutMembership(String topic) {
        var partition = new TopicPartition(topic, 0);
        try (var alone = member(topic + "-assigned")) {
            alone.assign(List.of(partition));
            alone.commitSync(Map.of(partition, new OffsetAndMetadata(7, "seven")));
            var found = alone.committed(Set.of(partition)).get(partition);
            System.out.println("assigned: committed " + found.offset() + " " + found.metadata());
        }
    }

    static void subscribeByPattern(String topic) {
        Set<Integer> read = new TreeSet<>();
        try (var member = member(topic + "-pattern")) {
            member.subscribe(Pattern.compile(topic + ".*"));
            while (read.size() < PARTITIONS * PER_PARTITION) take(member, read, new ArrayList<>());
            System.out.println("pattern: " + member.assignment().size() + " partitions, " + read.size() + " records");
        }
    }
}
