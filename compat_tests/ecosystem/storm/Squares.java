// Squares of numbers by a topology of Storm, at least once: Squares BOOTSTRAP SOURCE TARGET. The end of standard input ends it.

import java.util.Properties;
import org.apache.storm.Config;
import org.apache.storm.LocalCluster;
import org.apache.storm.kafka.bolt.KafkaBolt;
import org.apache.storm.kafka.bolt.mapper.FieldNameBasedTupleToKafkaMapper;
import org.apache.storm.kafka.bolt.selector.DefaultTopicSelector;
import org.apache.storm.kafka.spout.FirstPollOffsetStrategy;
import org.apache.storm.kafka.spout.KafkaSpout;
import org.apache.storm.kafka.spout.KafkaSpoutConfig;
import org.apache.storm.topology.BasicOutputCollector;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.TopologyBuilder;
import org.apache.storm.topology.base.BaseBasicBolt;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;
import org.apache.storm.tuple.Values;

public class Squares {
    public static class Square extends BaseBasicBolt {
        @Override
        public void execute(Tuple number, BasicOutputCollector collector) {
            long value = Long.parseLong(number.getStringByField("value"));
            collector.emit(new Values(number.getStringByField("key"), String.valueOf(value * value)));
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declare(new Fields("key", "message"));
        }
    }

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0], source = arguments[1], target = arguments[2];
        var numbers = KafkaSpoutConfig.builder(bootstrap, source)
                .setProp("group.id", "squares")
                .setFirstPollOffsetStrategy(FirstPollOffsetStrategy.UNCOMMITTED_EARLIEST)
                .setProcessingGuarantee(KafkaSpoutConfig.ProcessingGuarantee.AT_LEAST_ONCE)
                .setOffsetCommitPeriodMs(500)
                .build();
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        properties.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        var squares = new KafkaBolt<String, String>()
                .withProducerProperties(properties)
                .withTopicSelector(new DefaultTopicSelector(target))
                .withTupleToKafkaMapper(new FieldNameBasedTupleToKafkaMapper<>());
        var builder = new TopologyBuilder();
        builder.setSpout("numbers", new KafkaSpout<>(numbers));
        builder.setBolt("square", new Square(), 2).shuffleGrouping("numbers");
        builder.setBolt("squares", squares).shuffleGrouping("square");
        var config = new Config();
        config.setMessageTimeoutSecs(10); // then a number is squared again
        config.setNumAckers(1);
        try (var cluster = new LocalCluster();
                var topology = cluster.submitTopology("squares", config, builder.createTopology())) {
            System.in.read();
        }
        System.exit(0);
    }
}
