import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.Scanner;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/** Counts words, as an application of Kafka Streams with two threads. Prints its tasks when asked, and what Admin sees. */
public class StreamsCount {
    public static void main(String[] arguments) throws Exception {
        String address = arguments[0], topic = arguments[1], folder = arguments[2];
        Properties settings = new Properties();
        settings.put("bootstrap.servers", address);
        settings.put("application.id", topic);
        settings.put("group.protocol", "streams");
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("num.stream.threads", 2);
        settings.put("commit.interval.ms", 50);
        settings.put("state.dir", folder);
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(topic, Consumed.with(Serdes.String(), Serdes.String()))
            .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
            .count(Materialized.as(Stores.inMemoryKeyValueStore("counts")))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(topic + "-counted", Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.start();
        Scanner asked = new Scanner(System.in);
        while (asked.hasNextLine() && !asked.nextLine().equals("quit")) {
            int active = 0, standby = 0;
            for (var thread : streams.metadataForLocalThreads()) {
                active += thread.activeTasks().size();
                standby += thread.standbyTasks().size();
            }
            System.out.println(streams.state() + " " + active + " " + standby + " " + describe(address, topic));
        }
        System.exit(streams.close(Duration.ofSeconds(20)) ? 0 : 1);
    }

    private static String describe(String address, String group) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", address);
        try (Admin admin = Admin.create(settings)) {
            var found = admin.describeStreamsGroups(List.of(group)).all().get().get(group);
            return found.groupState() + " " + found.members().size() + " " + found.subtopologies().size();
        } catch (ExecutionException none) {
            return none.getCause().getClass().getSimpleName();
        }
    }
}
