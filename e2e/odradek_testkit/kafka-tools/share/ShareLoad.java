// Many KafkaShareConsumers with explicit acknowledgement, for the benchmark of queues.
//
//   java -cp 'jars/*' ShareLoad topic group bootstrap consumers records releaseEvery
//
// Each consumer has a thread: it polls, accepts its records and commits. Of the first deliveries every
// `releaseEvery`-th is released instead (0: none), and the time until its next delivery is taken. Ends
// when every record was accepted once; prints one line:
//
//   records=N seconds=S redelivered=N p50=MS p99=MS duplicates=N

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class ShareLoad {
    private static final Set<String> accepted = ConcurrentHashMap.newKeySet();
    private static final Map<String, Long> released = new ConcurrentHashMap<>();
    private static final List<Double> waits = Collections.synchronizedList(new ArrayList<>());
    private static final AtomicInteger seen = new AtomicInteger();
    private static final AtomicInteger duplicates = new AtomicInteger();
    private static final AtomicLong first = new AtomicLong();
    private static final AtomicLong last = new AtomicLong();
    private static final CountDownLatch done = new CountDownLatch(1);

    public static void main(String[] args) throws Exception {
        int consumers = Integer.parseInt(args[3]);
        int records = Integer.parseInt(args[4]);
        int releaseEvery = Integer.parseInt(args[5]);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[2]);
        settings.put("group.id", args[1]);
        settings.put("share.acknowledgement.mode", "explicit");
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < consumers; i++) {
            Thread thread = new Thread(() -> consume(settings, args[0], records, releaseEvery));
            thread.start();
            threads.add(thread);
        }
        done.await();
        for (Thread thread : threads) {
            thread.join();
        }
        List<Double> sorted = new ArrayList<>(waits);
        Collections.sort(sorted);
        System.out.printf("records=%d seconds=%.6f redelivered=%d p50=%.3f p99=%.3f duplicates=%d%n",
            accepted.size(), (last.get() - first.get()) / 1e9, sorted.size(), at(sorted, 0.5),
            at(sorted, 0.99), duplicates.get());
    }

    private static double at(List<Double> sorted, double fraction) {
        int index = (int) Math.ceil(fraction * sorted.size()) - 1;
        return sorted.isEmpty() ? 0 : sorted.get(Math.max(index, 0));
    }

    private static void consume(Properties settings, String topic, int records, int releaseEvery) {
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaShareConsumer<byte[], byte[]> consumer =
                new KafkaShareConsumer<>(settings, bytes, bytes)) {
            consumer.subscribe(List.of(topic));
            while (done.getCount() > 0) {
                boolean releases = false;
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    first.compareAndSet(0, System.nanoTime());
                    String key = record.partition() + "-" + record.offset();
                    short count = record.deliveryCount().orElse((short) 1);
                    Long since = count > 1 ? released.remove(key) : null;
                    if (since != null) {
                        waits.add((System.nanoTime() - since) / 1e6);
                    }
                    if (releaseEvery > 0 && count == 1 && seen.incrementAndGet() % releaseEvery == 0) {
                        releases = true;
                        released.put(key, System.nanoTime());
                        consumer.acknowledge(record, AcknowledgeType.RELEASE);
                        continue;
                    }
                    consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                    if (!accepted.add(key)) {
                        duplicates.incrementAndGet();
                    } else if (accepted.size() >= records) {
                        last.compareAndSet(0, System.nanoTime());
                    }
                }
                if (releases) {
                    consumer.commitSync();
                } else {
                    consumer.commitAsync();
                }
                if (accepted.size() >= records) {
                    consumer.commitSync();
                    last.compareAndSet(0, System.nanoTime());
                    done.countDown();
                }
            }
        }
    }
}
