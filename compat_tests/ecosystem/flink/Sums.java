// A running sum for each parity, exactly once: Sums BOOTSTRAP SOURCE TARGET FOLDER [SAVEPOINT OR CHECKPOINT].
// A line on standard input stops it with a savepoint, whose path it prints.

import java.nio.file.Path;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

public class Sums {
    static class Add extends KeyedProcessFunction<Long, String, String> {
        private transient ValueState<Long> total;

        @Override
        public void open(OpenContext context) {
            total = getRuntimeContext().getState(new ValueStateDescriptor<>("total", Long.class));
        }

        @Override
        public void processElement(String number, Context context, Collector<String> out) throws Exception {
            long before = total.value() == null ? 0 : total.value();
            total.update(before + Long.parseLong(number));
            out.collect(String.valueOf(total.value()));
        }
    }

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0], source = arguments[1], target = arguments[2];
        String folder = Path.of(arguments[3]).toUri().toString();
        Configuration settings = new Configuration();
        settings.setString("execution.checkpointing.interval", "500 ms");
        settings.setString("execution.checkpointing.dir", folder);
        settings.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        settings.setString("restart-strategy.type", "fixed-delay");
        settings.setString("restart-strategy.fixed-delay.attempts", "1000");
        settings.setString("restart-strategy.fixed-delay.delay", "500 ms");
        settings.setString("parallelism.default", "2");
        if (arguments.length > 4) {
            settings.setString("execution.state-recovery.path", arguments[4]);
        }
        var environment = StreamExecutionEnvironment.createLocalEnvironment(settings);
        var numbers = KafkaSource.<String>builder()
                .setBootstrapServers(bootstrap)
                .setTopics(source)
                .setGroupId("sums")
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setValueOnlyDeserializer(new SimpleStringSchema())
                .build();
        var sums = KafkaSink.<String>builder()
                .setBootstrapServers(bootstrap)
                .setRecordSerializer(KafkaRecordSerializationSchema.<String>builder()
                        .setTopic(target)
                        .setValueSerializationSchema(new SimpleStringSchema())
                        .build())
                .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .setTransactionalIdPrefix("sums")
                .setProperty("transaction.timeout.ms", "600000")
                .build();
        environment.fromSource(numbers, WatermarkStrategy.noWatermarks(), "numbers").uid("numbers")
                .keyBy(number -> Long.parseLong(number) % 2)
                .process(new Add()).uid("add")
                .sinkTo(sums).uid("sums");
        var job = environment.executeAsync("sums");
        System.out.println("RUNNING");
        if (System.in.read() >= 0) {
            System.out.println("SAVEPOINT " + job.stopWithSavepoint(false, folder, SavepointFormatType.CANONICAL).get());
            System.exit(0);
        }
        job.getJobExecutionResult().get();
    }
}
