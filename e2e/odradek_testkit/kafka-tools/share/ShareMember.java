// A KafkaShareConsumer that a test drives by lines on stdin; each command answers with one line.
//
//   java -cp 'jars/*' ShareMember.java topic bootstrap.servers=… group.id=… name=value… @FILE
//
// @FILE has more settings: those of TLS and the login.
//
//   poll N MS         up to N records within MS: "records p-offset=value*deliveries …"
//   accept|release|reject|renew P-OFFSET|all   of the records of the last poll
//   commit            acknowledges synchronously: "committed p=ok|ErrorClass …"
//   close             closes the consumer and ends

import java.io.BufferedReader;
import java.io.FileReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

public class ShareMember {
    private static final Map<String, ConsumerRecord<String, String>> last = new TreeMap<>();

    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        for (int i = 1; i < args.length; i++) {
            if (args[i].startsWith("@")) {
                try (FileReader file = new FileReader(args[i].substring(1))) {
                    settings.load(file);
                }
                continue;
            }
            String[] parts = args[i].split("=", 2);
            settings.put(parts[0], parts[1]);
        }
        StringDeserializer text = new StringDeserializer();
        try (KafkaShareConsumer<String, String> consumer =
                new KafkaShareConsumer<>(settings, text, text)) {
            consumer.subscribe(List.of(args[0]));
            System.out.println("ready");
            BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
            String line;
            while ((line = commands.readLine()) != null && !line.equals("close")) {
                String answer;
                try {
                    answer = obey(consumer, line.split(" "));
                } catch (Exception error) {
                    answer = "error " + error.getClass().getSimpleName() + " " + error.getMessage();
                }
                System.out.println(answer);
            }
        }
        System.out.println("closed");
    }

    private static String obey(KafkaShareConsumer<String, String> consumer, String[] command) {
        switch (command[0]) {
            case "poll":
                return poll(consumer, Integer.parseInt(command[1]), Long.parseLong(command[2]));
            case "commit":
                StringBuilder committed = new StringBuilder("committed");
                consumer.commitSync().forEach((partition, error) -> committed.append(" ")
                    .append(partition.partition()).append("=")
                    .append(error.map(e -> e.getClass().getSimpleName()).orElse("ok")));
                return committed.toString();
            default:
                AcknowledgeType type = AcknowledgeType.valueOf(command[0].toUpperCase());
                for (var entry : last.entrySet()) {
                    if (command[1].equals("all") || command[1].equals(entry.getKey())) {
                        consumer.acknowledge(entry.getValue(), type);
                    }
                }
                return "noted";
        }
    }

    private static String poll(KafkaShareConsumer<String, String> consumer, int wanted, long ms) {
        last.clear();
        long end = System.currentTimeMillis() + ms;
        StringBuilder found = new StringBuilder("records");
        int count = 0;
        while (count < wanted && System.currentTimeMillis() < end) {
            var records = consumer.poll(Duration.ofMillis(Math.min(ms, 500)));
            for (ConsumerRecord<String, String> record : records) {
                String key = record.partition() + "-" + record.offset();
                last.put(key, record);
                found.append(" ").append(key).append("=").append(record.value()).append("*")
                    .append(record.deliveryCount().orElse((short) 0));
                count++;
            }
            if (count > 0) {
                break;
            }
        }
        return found.toString();
    }
}
