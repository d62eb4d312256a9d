// As AdminMethods, with what Admin had until version 3.9.

import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;

public class AdminMethodsOf3 extends AdminMethods {
    @SuppressWarnings("deprecation")
    public static void main(String[] arguments) throws Exception {
        open(arguments);
        topics();
        configs();
        call("alterConfigs", () -> {
            admin.alterConfigs(Map.of(topic, new Config(List.of(new ConfigEntry("retention.ms", "6000"))))).all().get();
            return changed("retention.ms", "5000");
        });
        records();
        groups();
        transactions();
        replicas();
        security();
        cluster();
        close();
    }
}
