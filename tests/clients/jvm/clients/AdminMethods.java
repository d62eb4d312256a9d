// Calls the methods of Apache Kafka's Admin that its versions 3.9 and 4.3 share. For each it prints the method, a tab and
// what it gave: the name of the error, or a few words. Arguments: address and a name for topics and groups.

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.resource.*;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class AdminMethods {
    interface Call {
        Object run() throws Exception;
    }

    static String address, name;
    static Admin admin;
    static TopicPartition first, second;
    static ConfigResource topic;
    static final Set<String> called = new TreeSet<>();

    public static void main(String[] arguments) throws Exception {
        open(arguments);
        topics();
        configs();
        records();
        groups();
        transactions();
        replicas();
        security();
        cluster();
        close();
    }

    static void open(String[] arguments) {
        address = arguments[0];
        name = arguments[1];
        first = new TopicPartition(name, 0);
        second = new TopicPartition(name, 1);
        topic = new ConfigResource(ConfigResource.Type.TOPIC, name);
        admin = Admin.create(Map.of("bootstrap.servers", address, "default.api.timeout.ms", 10_000, "request.timeout.ms", 5_000));
    }

    /** `what` is the name of a method, and maybe a variant of its call after a blank. */
    static void call(String what, Call call) {
        called.add(what.split(" ")[0]);
        Object outcome;
        try {
            Object given = call.run();
            outcome = given == null ? "works" : "works: " + given;
        } catch (ExecutionException error) {
            outcome = error.getCause().getClass().getSimpleName();
        } catch (Exception error) {
            outcome = error.getClass().getSimpleName();
        }
        System.out.println(what + "\t" + outcome);
    }

    static void topics() {
        call("createTopics", () -> {
            var made = admin.createTopics(List.of(new NewTopic(name, 2, (short) 1)));
            return made.numPartitions(name).get() + " partitions, " + made.replicationFactor(name).get() + " replica";
        });
        call("createTopics (again)", () -> admin.createTopics(List.of(new NewTopic(name, 2, (short) 1))).all().get());
        call("listTopics", () -> admin.listTopics().names().get().contains(name));
        call("describeTopics", () -> {
            var told = admin.describeTopics(List.of(name)).allTopicNames().get().get(name);
            var partition = told.partitions().get(0);
            return told.partitions().size() + " partitions, " + partition.replicas().size() + " replica, "
                + partition.isr().size() + " in sync, internal " + told.isInternal();
        });
        call("describeTopics (by id)", () -> {
            var id = admin.describeTopics(List.of(name)).allTopicNames().get().get(name).topicId();
            var ids = org.apache.kafka.common.TopicCollection.ofTopicIds(List.of(id));
            return admin.describeTopics(ids).allTopicIds().get().get(id).partitions().size() + " partitions";
        });
        call("createPartitions", () -> admin.createPartitions(Map.of(name, NewPartitions.increaseTo(3))).all().get());
        call("deleteTopics", () -> {
            admin.createTopics(List.of(new NewTopic(name + "-gone", 1, (short) 1))).all().get();
            return admin.deleteTopics(List.of(name + "-gone")).all().get();
        });
    }

    static void configs() {
        call("describeConfigs (topic)", () -> admin.describeConfigs(List.of(topic)).all().get().get(topic).get("cleanup.policy").value());
        call("incrementalAlterConfigs (topic)", () -> {
            var change = new AlterConfigOp(new ConfigEntry("retention.ms", "5000"), AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(topic, List.of(change))).all().get();
            return changed("retention.ms", "604800000");
        });
        call("incrementalAlterConfigs (topic, append)", () -> {
            var change = new AlterConfigOp(new ConfigEntry("cleanup.policy", "compact"), AlterConfigOp.OpType.APPEND);
            admin.incrementalAlterConfigs(Map.of(topic, List.of(change))).all().get();
            String both = changed("cleanup.policy", "delete");
            var back = new AlterConfigOp(new ConfigEntry("cleanup.policy", "compact"), AlterConfigOp.OpType.SUBTRACT);
            admin.incrementalAlterConfigs(Map.of(topic, List.of(back))).all().get();
            return new TreeSet<>(List.of(both.split(",")));
        });
        call("incrementalAlterConfigs (topic, wrong value)", () -> {
            var change = new AlterConfigOp(new ConfigEntry("retention.ms", "soon"), AlterConfigOp.OpType.SET);
            return admin.incrementalAlterConfigs(Map.of(topic, List.of(change))).all().get();
        });
        call("describeConfigs (broker)", () -> {
            var id = "" + admin.describeCluster().nodes().get().iterator().next().id();
            var own = new ConfigResource(ConfigResource.Type.BROKER, id);
            var told = admin.describeConfigs(List.of(own)).all().get().get(own);
            return List.of("log.dirs", "advertised.listeners", "num.partitions", "log.retention.ms").stream()
                .filter(each -> told.get(each) != null).collect(Collectors.joining(" "));
        });
        call("incrementalAlterConfigs (broker)", () -> {
            var id = "" + admin.describeCluster().nodes().get().iterator().next().id();
            var own = new ConfigResource(ConfigResource.Type.BROKER, id);
            var change = new AlterConfigOp(new ConfigEntry("message.max.bytes", "1000000"), AlterConfigOp.OpType.SET);
            return admin.incrementalAlterConfigs(Map.of(own, List.of(change))).all().get();
        });
        call("incrementalAlterConfigs (client metrics)", () -> {
            var own = new ConfigResource(ConfigResource.Type.CLIENT_METRICS, name);
            var change = new AlterConfigOp(new ConfigEntry("interval.ms", "60000"), AlterConfigOp.OpType.SET);
            return admin.incrementalAlterConfigs(Map.of(own, List.of(change))).all().get();
        });
        call("listClientMetricsResources", () -> {
            while (admin.listClientMetricsResources().all().get().stream().noneMatch(each -> each.name().equals(name))) { }
            return null;
        });
    }

    /** The value of a setting once it is no longer the one before: on a cluster that takes a moment. */
    static String changed(String setting, String before) throws Exception {
        while (true) {
            String value = admin.describeConfigs(List.of(topic)).all().get().get(topic).get(setting).value();
            if (!value.equals(before)) return value;
        }
    }

    static void records() {
        try (var producer = new KafkaProducer<>(Map.<String, Object>of("bootstrap.servers", address), new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < 10; number++) producer.send(new ProducerRecord<>(name, 0, 1_700_000_000_000L + number, null, "" + number));
        }
        for (var spec : List.of(OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.maxTimestamp(), OffsetSpec.forTimestamp(1_700_000_000_005L),
                OffsetSpec.earliestLocal(), OffsetSpec.latestTiered())) {
            call("listOffsets (" + spec.getClass().getSimpleName() + ")", () -> admin.listOffsets(Map.of(first, spec)).all().get().get(first).offset());
        }
        call("deleteRecords", () -> admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(4))).lowWatermarks().get(first).get().lowWatermark());
    }

    static void groups() {
        String group = name + "-readers";
        call("alterConsumerGroupOffsets", () -> admin.alterConsumerGroupOffsets(group, Map.of(first, new OffsetAndMetadata(5), second, new OffsetAndMetadata(0))).all().get());
        call("listConsumerGroups", () -> admin.listConsumerGroups().all().get().stream().anyMatch(each -> each.groupId().equals(group)));
        call("listConsumerGroupOffsets", () -> admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(first).offset());
        call("deleteConsumerGroupOffsets", () -> {
            admin.deleteConsumerGroupOffsets(group, Set.of(second)).all().get();
            return admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().keySet().size() + " left";
        });
        call("describeConsumerGroups", () -> admin.describeConsumerGroups(List.of(group)).all().get().get(group).members().size() + " members");
        call("describeConsumerGroups (unknown)", () -> admin.describeConsumerGroups(List.of(name + "-unknown")).all().get().size());
        try (var member = member(group, Map.of("group.instance.id", "one"))) {
            call("describeConsumerGroups (with a member)", () -> {
                var told = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
                var its = told.members().iterator().next();
                return its.groupInstanceId().get() + " has " + its.assignment().topicPartitions().size() + " partitions";
            });
            call("removeMembersFromConsumerGroup", () -> admin.removeMembersFromConsumerGroup(group,
                new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("one")))).all().get());
        }
        call("deleteConsumerGroups", () -> admin.deleteConsumerGroups(List.of(group)).all().get());
    }

    static KafkaConsumer<String, String> member(String group, Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(more);
        settings.putAll(Map.of("bootstrap.servers", address, "group.id", group, "auto.offset.reset", "earliest"));
        var member = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        member.subscribe(List.of(name));
        while (member.assignment().isEmpty()) member.poll(Duration.ofMillis(100));
        return member;
    }

    static KafkaProducer<String, String> writer(String id) throws Exception {
        var producer = new KafkaProducer<>(Map.<String, Object>of("bootstrap.servers", address, "transactional.id", id), new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(name, 1, null, "open")).get();
        return producer;
    }

    static void transactions() throws Exception {
        String id = name + "-writer";
        try (var producer = writer(id)) {
            call("listTransactions", () -> admin.listTransactions().all().get().stream().filter(each -> each.transactionalId().equals(id)).map(each -> each.state().toString()).findAny().get());
            call("describeTransactions", () -> {
                var told = admin.describeTransactions(List.of(id)).all().get().get(id);
                return told.state() + ", " + told.topicPartitions().size() + " partition";
            });
            call("describeProducers", () -> admin.describeProducers(List.of(second)).partitionResult(second).get().activeProducers().size());
            call("fenceProducers", () -> admin.fenceProducers(List.of(id)).all().get());
            call("describeTransactions (fenced)", () -> {
                while (true) {
                    var state = admin.describeTransactions(List.of(id)).all().get().get(id).state();
                    if (state != TransactionState.PREPARE_ABORT && state != TransactionState.ONGOING && state != TransactionState.PREPARE_EPOCH_FENCE) return state;
                }
            });
        }
        String other = name + "-left";
        try (var producer = writer(other)) {
            call("abortTransaction", () -> {
                var mine = admin.describeProducers(List.of(second)).partitionResult(second).get().activeProducers().stream()
                    .filter(each -> each.currentTransactionStartOffset().isPresent()).findAny().get();
                return admin.abortTransaction(new AbortTransactionSpec(second, mine.producerId(), (short) mine.producerEpoch(), mine.coordinatorEpoch().orElse(0))).all().get();
            });
        }
    }

    static void replicas() {
        call("describeLogDirs", () -> {
            var broker = admin.describeCluster().nodes().get().iterator().next().id();
            var told = admin.describeLogDirs(List.of(broker)).allDescriptions().get().get(broker).values().iterator().next();
            return "holds the partition " + told.replicaInfos().containsKey(first) + ", tells the space " + (told.totalBytes().isPresent() && told.usableBytes().isPresent());
        });
        call("describeReplicaLogDirs", () -> {
            var broker = admin.describeCluster().nodes().get().iterator().next().id();
            var replica = new TopicPartitionReplica(name, 0, broker);
            return admin.describeReplicaLogDirs(List.of(replica)).all().get().get(replica).getCurrentReplicaLogDir() != null;
        });
        call("alterReplicaLogDirs", () -> {
            var broker = admin.describeCluster().nodes().get().iterator().next().id();
            return admin.alterReplicaLogDirs(Map.of(new TopicPartitionReplica(name, 0, broker), "/nowhere")).all().get();
        });
        call("electLeaders", () -> admin.electLeaders(ElectionType.PREFERRED, Set.of(first)).partitions().get().get(first).map(each -> each.getClass().getSimpleName()).orElse("elected"));
        call("alterPartitionReassignments", () -> {
            var broker = admin.describeCluster().nodes().get().iterator().next().id();
            return admin.alterPartitionReassignments(Map.of(first, Optional.of(new NewPartitionReassignment(List.of(broker))))).all().get();
        });
        call("listPartitionReassignments", () -> admin.listPartitionReassignments().reassignments().get().size());
    }

    static void security() {
        var binding = new AclBinding(new ResourcePattern(ResourceType.TOPIC, name, PatternType.LITERAL),
            new AccessControlEntry("User:alice", "*", AclOperation.READ, AclPermissionType.ALLOW));
        call("createAcls", () -> admin.createAcls(List.of(binding)).all().get());
        call("describeAcls", () -> admin.describeAcls(AclBindingFilter.ANY).values().get().size());
        call("deleteAcls", () -> admin.deleteAcls(List.of(binding.toFilter())).all().get().size());
        call("alterClientQuotas", () -> admin.alterClientQuotas(List.of(new ClientQuotaAlteration(new ClientQuotaEntity(Map.of("client-id", name)),
            List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1_000_000.0))))).all().get());
        call("describeClientQuotas", () -> {
            while (!admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().keySet().toString().contains(name)) { }
            return null;
        });
        call("alterUserScramCredentials", () -> admin.alterUserScramCredentials(List.of(
            new UserScramCredentialUpsertion("alice", new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), "secret"))).all().get());
        call("describeUserScramCredentials", () -> {
            while (!admin.describeUserScramCredentials().all().get().containsKey("alice")) { }
            return null;
        });
        call("createDelegationToken", () -> admin.createDelegationToken().delegationToken().get());
        call("renewDelegationToken", () -> admin.renewDelegationToken(new byte[] {1}).expiryTimestamp().get());
        call("expireDelegationToken", () -> admin.expireDelegationToken(new byte[] {1}).expiryTimestamp().get());
        call("describeDelegationToken", () -> admin.describeDelegationToken().delegationTokens().get().size());
    }

    static void cluster() {
        call("describeCluster", () -> {
            var told = admin.describeCluster();
            return told.nodes().get().size() + " node, controller known " + (told.controller().get() != null) + ", id known " + (told.clusterId().get() != null);
        });
        call("describeFeatures", () -> admin.describeFeatures().featureMetadata().get().finalizedFeatures().containsKey("transaction.version"));
        call("updateFeatures", () -> admin.updateFeatures(Map.of("transaction.version", new FeatureUpdate((short) 99, FeatureUpdate.UpgradeType.UPGRADE)), new UpdateFeaturesOptions()).all().get());
        call("describeMetadataQuorum", () -> admin.describeMetadataQuorum().quorumInfo().get().voters().size() + " voter");
        call("addRaftVoter", () -> admin.addRaftVoter(9, Uuid.randomUuid(), Set.of()).all().get());
        call("removeRaftVoter", () -> admin.removeRaftVoter(9, Uuid.randomUuid()).all().get());
        call("unregisterBroker", () -> admin.unregisterBroker(99).all().get());
        call("clientInstanceId", () -> {
            admin.clientInstanceId(Duration.ofSeconds(5));
            return null;
        });
        call("metrics", () -> admin.metrics().isEmpty() ? "none" : null);
    }

    /** Ends with the methods of this version that were not called. */
    static void close() {
        call("close", () -> {
            admin.close(Duration.ofSeconds(5));
            return null;
        });
        for (var method : Admin.class.getMethods()) {
            if (!called.contains(method.getName()) && !java.lang.reflect.Modifier.isStatic(method.getModifiers())) {
                System.out.println(method.getName() + "\tnot called");
                called.add(method.getName());
            }
        }
    }
}
