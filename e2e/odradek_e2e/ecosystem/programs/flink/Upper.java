import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * Flink in one process: upper-cases PREFIX-in into PREFIX-out with transactions, and goes on from
 * its newest checkpoint when it was killed. java Upper BOOTSTRAP PREFIX STATE_DIRECTORY
 */
public class Upper {
    public static class Reader implements KafkaRecordDeserializationSchema<Tuple2<String, String>> {
        public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<Tuple2<String, String>> out) {
            out.collect(Tuple2.of(text(record.key()), text(record.value())));
        }

        public TypeInformation<Tuple2<String, String>> getProducedType() {
            return Types.TUPLE(Types.STRING, Types.STRING);
        }
    }

    public static class Writer implements KafkaRecordSerializationSchema<Tuple2<String, String>> {
        private final String topic;

        Writer(String topic) {
            this.topic = topic;
        }

        public ProducerRecord<byte[], byte[]> serialize(
                Tuple2<String, String> pair, KafkaSinkContext context, Long timestamp) {
            return new ProducerRecord<>(topic, bytes(pair.f0), bytes(pair.f1.toUpperCase()));
        }
    }

    private static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static Path newestCheckpoint(Path state) throws Exception {
        Files.createDirectories(state);
        try (var paths = Files.walk(state)) {
            return paths.filter(path -> path.endsWith("_metadata")).map(Path::getParent)
                .max(Comparator.comparing(path -> path.toFile().lastModified())).orElse(null);
        }
    }

    public static void main(String[] args) throws Exception {
        Path state = Path.of(args[2]).toAbsolutePath();
        Configuration config = new Configuration();
        config.setString("execution.checkpointing.interval", "300 ms");
        config.setString("execution.checkpointing.mode", "EXACTLY_ONCE");
        config.setString("execution.checkpointing.dir", state.toUri().toString());
        config.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        Path checkpoint = newestCheckpoint(state);
        if (checkpoint != null) {
            config.setString("execution.state-recovery.path", checkpoint.toUri().toString());
        }
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(2, config);
        KafkaSource<Tuple2<String, String>> source = KafkaSource.<Tuple2<String, String>>builder()
            .setBootstrapServers(args[0]).setTopics(args[1] + "-in").setGroupId(args[1] + "-app")
            .setStartingOffsets(OffsetsInitializer.earliest()).setDeserializer(new Reader()).build();
        KafkaSink<Tuple2<String, String>> sink = KafkaSink.<Tuple2<String, String>>builder()
            .setBootstrapServers(args[0])
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix(args[1] + "-txn")
            .setProperty("transaction.timeout.ms", "60000")
            .setRecordSerializer(new Writer(args[1] + "-out"))
            .build();
        env.fromSource(source, WatermarkStrategy.noWatermarks(), "in").uid("in")
            .sinkTo(sink).uid("out");
        env.execute();
    }
}
