// As AdminMethods, with what Admin has since version 4.0.

import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.config.ConfigResource;

public class AdminMethodsOf4 extends AdminMethods {
    public static void main(String[] arguments) throws Exception {
        open(arguments);
        topics();
        configs();
        records();
        groups();
        groupsOf4();
        transactions();
        transactionsOf4();
        replicas();
        security();
        cluster();
        clusterOf4();
        close();
    }

    static void groupsOf4() {
        String group = name + "-of-4";
        try (var member = member(group, Map.of("group.protocol", "consumer"))) {
            call("listGroups", () -> admin.listGroups().all().get().stream().filter(each -> each.groupId().equals(group)).map(each -> each.type().toString()).findAny().get());
            call("describeConsumerGroups (group.protocol=consumer)", () -> admin.describeConsumerGroups(List.of(group)).all().get().get(group).groupState());
        }
        String classic = name + "-classic";
        try (var member = member(classic, Map.of())) {
            call("describeClassicGroups", () -> admin.describeClassicGroups(List.of(classic)).all().get().get(classic).state());
        }
        String shared = name + "-shared";
        call("describeShareGroups", () -> admin.describeShareGroups(List.of(shared)).all().get().size());
        call("alterShareGroupOffsets", () -> admin.alterShareGroupOffsets(shared, Map.of(first, 5L)).all().get());
        call("listShareGroupOffsets", () -> admin.listShareGroupOffsets(Map.of(shared, new ListShareGroupOffsetsSpec())).all().get().size());
        call("deleteShareGroupOffsets", () -> admin.deleteShareGroupOffsets(shared, Set.of(name)).all().get());
        call("deleteShareGroups", () -> admin.deleteShareGroups(List.of(shared)).all().get());
        String streams = name + "-streams";
        call("alterStreamsGroupOffsets", () -> admin.alterStreamsGroupOffsets(streams, Map.of(first, new OffsetAndMetadata(5), second, new OffsetAndMetadata(5))).all().get());
        call("listStreamsGroupOffsets", () -> admin.listStreamsGroupOffsets(Map.of(streams, new ListStreamsGroupOffsetsSpec())).partitionsToOffsetAndMetadata(streams).get().get(first).offset());
        call("deleteStreamsGroupOffsets", () -> admin.deleteStreamsGroupOffsets(streams, Set.of(second)).all().get());
        call("describeStreamsGroups", () -> admin.describeStreamsGroups(List.of(streams)).all().get().size());
        call("deleteStreamsGroups", () -> admin.deleteStreamsGroups(List.of(streams)).all().get());
    }

    static void transactionsOf4() throws Exception {
        String id = name + "-terminated";
        try (var producer = writer(id)) {
            call("forceTerminateTransaction", () -> admin.forceTerminateTransaction(id).result().get());
        }
    }

    static void clusterOf4() {
        call("listConfigResources", () -> admin.listConfigResources(Set.of(ConfigResource.Type.TOPIC), new ListConfigResourcesOptions()).all().get().contains(topic));
        call("registerMetricForSubscription", () -> {
            var metric = new org.apache.kafka.common.metrics.Metrics().addMetricIfAbsent(
                new org.apache.kafka.common.MetricName("a", "b", "c", Map.of()), null, (org.apache.kafka.common.metrics.Gauge<Integer>) (config, now) -> 1);
            admin.registerMetricForSubscription(metric);
            call("unregisterMetricFromSubscription", () -> {
                admin.unregisterMetricFromSubscription(metric);
                return null;
            });
            return null;
        });
    }
}
