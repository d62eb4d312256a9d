import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;

/** Subscribe to metrics of clients, then produce and consume until a line is read: address, topic. */
public class ClientMetrics {
    public static void main(String[] arguments) throws Exception {
        Properties common = new Properties();
        common.put("bootstrap.servers", arguments[0]);
        common.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        common.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        common.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        common.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        common.put("group.id", "readers-of-" + arguments[1]);
        common.put("auto.offset.reset", "earliest");
        ConfigResource subscription = new ConfigResource(ConfigResource.Type.CLIENT_METRICS, "java-" + arguments[1]);
        try (Admin admin = Admin.create(common)) {
            admin.incrementalAlterConfigs(Map.of(subscription, List.of(
                set("metrics", "org.apache.kafka.consumer.fetch.manager.,org.apache.kafka.producer."),
                set("interval.ms", "500"),
                set("match", "client_software_name=apache-kafka-java,client_id=java-.*")))).all().get();
            admin.describeConfigs(List.of(subscription)).all().get().get(subscription).entries().stream()
                .map(entry -> entry.name() + "=" + entry.value()).sorted().forEach(System.out::println);
        }
        common.put("client.id", "java-" + arguments[1]);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(common);
                KafkaConsumer<String, String> consumer = new KafkaConsumer<>(common)) {
            producer.send(new ProducerRecord<>(arguments[1], "tea")).get();
            consumer.subscribe(List.of(arguments[1]));
            System.out.println("pushing");
            while (System.in.available() == 0) {
                consumer.poll(Duration.ofMillis(100));
            }
            System.out.println(producer.clientInstanceId(Duration.ofSeconds(10)));
            System.out.println(consumer.clientInstanceId(Duration.ofSeconds(10)));
        }
    }

    private static AlterConfigOp set(String name, String value) {
        return new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
    }
}
