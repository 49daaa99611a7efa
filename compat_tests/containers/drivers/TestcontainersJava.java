import com.github.dockerjava.api.command.InspectContainerResponse;
import com.github.dockerjava.api.model.ContainerConfig;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.testcontainers.containers.GenericContainer;
import org.testcontainers.images.builder.Transferable;
import org.testcontainers.utility.DockerImageName;

/**
 * Runs testcontainers' Java modules on stand-ins for containers, and prints how each module starts its container: one JSON object a line.
 */
public class TestcontainersJava {
    static final List<String> files = new ArrayList<>();

    static class Inspected extends InspectContainerResponse {
        @Override
        public ContainerConfig getConfig() {
            return new ContainerConfig().withHostName("broker");
        }
    }

    static void copied(Transferable content, String path) {
        String text = new String(content.getBytes(), StandardCharsets.UTF_8);
        files.add(json(path) + ": [" + json(text) + ", " + (content.getFileMode() & 0777) + "]");
    }

    static class Apache extends org.testcontainers.kafka.KafkaContainer {
        Apache(DockerImageName image) { super(image); }
        @Override public String getHost() { return "localhost"; }
        @Override public Integer getMappedPort(int port) { return port; }
        @Override public void copyFileToContainer(Transferable content, String path) { copied(content, path); }
        void begin() { configure(); containerIsStarting(new Inspected()); }
    }

    static class Confluent extends org.testcontainers.kafka.ConfluentKafkaContainer {
        Confluent(DockerImageName image) { super(image); }
        @Override public String getHost() { return "localhost"; }
        @Override public Integer getMappedPort(int port) { return port; }
        @Override public void copyFileToContainer(Transferable content, String path) { copied(content, path); }
        void begin() { configure(); containerIsStarting(new Inspected()); }
    }

    @SuppressWarnings("deprecation")
    static class Older extends org.testcontainers.containers.KafkaContainer {
        private final DockerImageName image;
        Older(DockerImageName image) { super(image); this.image = image; }
        @Override public String getDockerImageName() { return image.asCanonicalNameString(); }
        @Override public String getHost() { return "localhost"; }
        @Override public Integer getMappedPort(int port) { return port; }
        @Override public void copyFileToContainer(Transferable content, String path) { copied(content, path); }
        void begin() { configure(); containerIsStarting(new Inspected()); }
    }

    public static void main(String[] arguments) throws Exception {
        DockerImageName image = DockerImageName.parse("ottla:8.0.0");
        Apache apache = new Apache(image.asCompatibleSubstituteFor("apache/kafka"));
        apache.begin();
        print("apache", apache, 9092);
        DockerImageName confluent = image.asCompatibleSubstituteFor("confluentinc/cp-kafka");
        Confluent newer = new Confluent(confluent);
        newer.begin();
        print("confluent", newer, 9092);
        Older kraft = new Older(confluent);
        kraft.withKraft();
        kraft.begin();
        print("older, KRaft", kraft, 9093);
        Older older = new Older(DockerImageName.parse("ottla:7.3.0").asCompatibleSubstituteFor("confluentinc/cp-kafka"));
        older.withKraft();
        older.begin();
        print("older, KRaft before 7.4", older, 9093);
        Older zookeeper = new Older(confluent);
        zookeeper.withEmbeddedZookeeper();
        zookeeper.begin();
        print("older, ZooKeeper", zookeeper, 9093);
    }

    static void print(String name, GenericContainer<?> container, int port) throws Exception {
        List<String> variables = new ArrayList<>();
        for (Map.Entry<String, String> each : container.getEnvMap().entrySet()) {
            variables.add(json(each.getKey()) + ": " + json(each.getValue()));
        }
        Object definition = field(GenericContainer.class, "containerDef").get(container);
        Object entrypoint = field(definition.getClass().getSuperclass().getSimpleName().equals("ContainerDef")
            ? definition.getClass().getSuperclass() : definition.getClass(), "entrypoint").get(definition);
        Object strategy = field(GenericContainer.class, "waitStrategy").get(container);
        if (strategy == null || !strategy.getClass().getSimpleName().equals("LogMessageWaitStrategy")) {
            strategy = field(Class.forName("org.testcontainers.containers.ContainerDef"), "waitStrategy").get(definition);
        }
        Object pattern = field(strategy.getClass(), "regEx").get(strategy);
        String words = "[" + String.join(", ", java.util.Arrays.stream(container.getCommandParts()).map(TestcontainersJava::json).toList()) + "]";
        System.out.println("{\"name\": " + json(name) + ", \"port\": " + port
            + ", \"variables\": {" + String.join(", ", variables) + "}"
            + ", \"entrypoint\": " + list(entrypoint) + ", \"command\": " + words
            + ", \"files\": {" + String.join(", ", files) + "}, \"pattern\": " + json(pattern.toString()) + "}");
        files.clear();
    }

    static String list(Object words) {
        if (words == null) return "null";
        String[] each = words instanceof String[] ? (String[]) words : ((List<?>) words).toArray(new String[0]);
        return each.length == 0 ? "null" : "[" + String.join(", ", java.util.Arrays.stream(each).map(TestcontainersJava::json).toList()) + "]";
    }

    static Field field(Class<?> type, String name) throws Exception {
        Field found = type.getDeclaredField(name);
        found.setAccessible(true);
        return found;
    }

    static String json(String text) {
        StringBuilder written = new StringBuilder("\"");
        for (char each : text.toCharArray()) {
            if (each == '"' || each == '\\') written.append('\\').append(each);
            else if (each < ' ') written.append(String.format("\\u%04x", (int) each));
            else written.append(each);
        }
        return written.append('"').toString();
    }
}
