import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Kafka Streams: upper-cases PREFIX-in into PREFIX-out and counts the records of each tenth into
 * PREFIX-counts, over a repartition topic and a changelog.
 *
 * java -Dapp.group.protocol=streams Upper BOOTSTRAP PREFIX STATE_DIRECTORY: properties that begin
 * with "app." are settings of Kafka Streams.
 */
public class Upper {
    public static void main(String[] args) {
        Properties config = new Properties();
        config.putAll(Map.of(
            "application.id", args[1] + "-app",
            "bootstrap.servers", args[0],
            "state.dir", args[2],
            "processing.guarantee", "exactly_once_v2",
            "statestore.cache.max.bytes", 0,
            "commit.interval.ms", 200,
            "default.key.serde", Serdes.StringSerde.class,
            "default.value.serde", Serdes.StringSerde.class,
            "consumer.auto.offset.reset", "earliest"));
        System.getProperties().stringPropertyNames().stream().filter(name -> name.startsWith("app."))
            .forEach(name -> config.put(name.substring(4), System.getProperty(name)));
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> records = builder.stream(args[1] + "-in");
        records.mapValues(value -> value.toUpperCase()).to(args[1] + "-out");
        records
            .groupBy((key, value) -> key.substring(key.length() - 1),
                     Grouped.with(Serdes.String(), Serdes.String()))
            .count()
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(args[1] + "-counts", Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        streams.setStateListener((now, before) -> System.out.println(now));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(20))));
        streams.start();
    }
}
