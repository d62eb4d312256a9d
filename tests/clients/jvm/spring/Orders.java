// A Spring Boot application as its users write it: a listener in a transaction, retries by topics, dead letters. Arguments:
// address and a name for topics; it writes to its first topic, prints what its listeners got, and ends.

package orders;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.annotation.Bean;
import org.springframework.kafka.annotation.BackOff;
import org.springframework.kafka.annotation.DltHandler;
import org.springframework.kafka.annotation.EnableKafka;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.annotation.RetryableTopic;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.messaging.handler.annotation.SendTo;

@SpringBootApplication
@EnableKafka
public class Orders {
    static final CountDownLatch everything = new CountDownLatch(10 + 9 + 1);
    static final Map<String, Integer> attempts = new ConcurrentHashMap<>();
    static String letter = "none";

    final KafkaTemplate<String, String> template;

    Orders(KafkaTemplate<String, String> template) {
        this.template = template;
    }

    @Bean
    NewTopic topic() {
        return new NewTopic(System.getProperty("orders"), 2, (short) 1);
    }

    /** Copies each order in the transaction of its listener. */
    @KafkaListener(id = "copies", topics = "${orders}")
    @SendTo("${orders}-payments")
    String copy(String order) {
        everything.countDown();
        return "payment of " + order;
    }

    /** The fifth payment fails each time; any other one once. */
    @RetryableTopic(attempts = "3", backOff = @BackOff(delay = 100), numPartitions = "1", replicationFactor = "1")
    @KafkaListener(id = "payments", topics = "${orders}-payments")
    void pay(ConsumerRecord<String, String> payment) {
        int attempt = attempts.merge(payment.value(), 1, Integer::sum);
        if (attempt == 1 || payment.value().endsWith(" 5")) throw new IllegalStateException("no money");
        everything.countDown();
    }

    @DltHandler
    void lost(ConsumerRecord<String, String> payment) {
        letter = payment.value() + " in " + payment.topic().substring(System.getProperty("orders").length());
        everything.countDown();
    }

    public static void main(String[] arguments) throws Exception {
        System.setProperty("spring.kafka.bootstrap-servers", arguments[0]);
        System.setProperty("orders", arguments[1]);
        Map<String, String> settings = Map.of(
            "spring.main.banner-mode", "off",
            "logging.level.root", "off",
            "spring.kafka.consumer.auto-offset-reset", "earliest",
            "spring.kafka.consumer.isolation-level", "read_committed",
            "spring.kafka.producer.transaction-id-prefix", arguments[1] + "-");
        settings.forEach(System::setProperty);
        try (var application = SpringApplication.run(Orders.class)) {
            var template = application.getBean(Orders.class).template;
            template.executeInTransaction(within -> {
                for (int number = 0; number < 10; number++) within.send(arguments[1], "order " + number);
                return null;
            });
            try {
                template.executeInTransaction(within -> {
                    within.send(arguments[1], "never");
                    throw new IllegalStateException("rolled back");
                });
            } catch (IllegalStateException expected) {
                System.out.println(expected.getMessage());
            }
            everything.await(100, TimeUnit.SECONDS);
            System.out.println(attempts.size() + " payments, " + attempts.values().stream().mapToInt(each -> each).sum() + " attempts");
            System.out.println("dead letter: " + letter);
        }
    }
}
