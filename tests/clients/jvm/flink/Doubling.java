// A Flink job that doubles the numbers of a topic, exactly once by transactions. It fails once on its way and goes on from
// its last checkpoint. Arguments: address, a name for topics and the folder of its checkpoints.

import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

public class Doubling {
    static final AtomicBoolean hasFailed = new AtomicBoolean();

    public static void main(String[] arguments) throws Exception {
        String address = arguments[0], name = arguments[1];
        var settings = new Configuration();
        settings.setString("execution.checkpointing.dir", "file://" + arguments[2]);
        settings.setString("execution.checkpointing.interval", "500 ms");
        settings.setString("restart-strategy.type", "fixed-delay");
        settings.setString("restart-strategy.fixed-delay.delay", "100 ms");
        settings.setString("restart-strategy.fixed-delay.attempts", "3");
        var job = StreamExecutionEnvironment.getExecutionEnvironment(settings);
        job.setParallelism(1);
        var source = KafkaSource.<String>builder()
            .setBootstrapServers(address).setTopics(name + "-numbers").setGroupId(name)
            .setStartingOffsets(OffsetsInitializer.earliest()).setBounded(OffsetsInitializer.latest())
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .build();
        var sink = KafkaSink.<String>builder()
            .setBootstrapServers(address)
            .setRecordSerializer(KafkaRecordSerializationSchema.builder()
                .setTopic(name + "-doubled").setValueSerializationSchema(new SimpleStringSchema()).build())
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix(name)
            .setProperty("transaction.timeout.ms", "60000")
            .build();
        job.fromSource(source, WatermarkStrategy.noWatermarks(), "numbers").map(Doubling::twice).sinkTo(sink);
        job.execute("doubling");
        System.out.println("failed once: " + hasFailed.get());
    }

    static String twice(String number) throws Exception {
        int value = Integer.parseInt(number);
        if (value % 50 == 0) Thread.sleep(100);  // so that checkpoints fall into the middle
        if (value == 700 && !hasFailed.getAndSet(true)) throw new IllegalStateException("on its way");
        return "" + 2 * value;
    }
}
