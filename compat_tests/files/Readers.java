import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.StringReader;
import java.lang.reflect.Constructor;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import javax.security.auth.login.AppConfigurationEntry;
import javax.security.auth.login.Configuration;

/**
 * Reads texts from standard input, one a line as UTF-16 in hexadecimal behind "properties " or "jaas ", and tells what Java's
 * Properties or Kafka's JaasConfig find in each: "ok" with all keys and values, or "refused".
 */
public class Readers {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        Constructor<?> jaas = Class.forName("org.apache.kafka.common.security.JaasConfig")
            .getDeclaredConstructor(String.class, String.class);
        jaas.setAccessible(true);
        StringBuilder told = new StringBuilder();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split(" ", -1);
            try {
                told.append(parts[0].equals("jaas") ? ofJaas(jaas, text(parts[1])) : ofProperties(text(parts[1])));
            } catch (Exception refused) {
                told.append("refused");
            }
            told.append('\n');
        }
        System.out.print(told);
    }

    private static String ofProperties(String text) throws Exception {
        Properties read = new Properties();
        read.load(new StringReader(text));
        Map<String, String> found = new TreeMap<>();
        for (String key : read.stringPropertyNames()) {
            found.put(key, read.getProperty(key));
        }
        return "ok" + pairs(found);
    }

    private static String ofJaas(Constructor<?> constructor, String text) throws Exception {
        Configuration read = (Configuration) constructor.newInstance("context", text);
        StringBuilder told = new StringBuilder("ok");
        for (AppConfigurationEntry entry : read.getAppConfigurationEntry("context")) {
            String flag = entry.getControlFlag().toString();
            told.append(' ').append(hex(entry.getLoginModuleName())).append(':').append(flag.substring(flag.lastIndexOf(' ') + 1));
            Map<String, String> options = new TreeMap<>();
            for (Map.Entry<String, ?> each : entry.getOptions().entrySet()) {
                options.put(each.getKey(), (String) each.getValue());
            }
            told.append(pairs(options));
        }
        return told.toString();
    }

    private static String pairs(Map<String, String> found) {
        StringBuilder told = new StringBuilder();
        found.forEach((key, value) -> told.append(' ').append(hex(key)).append('=').append(hex(value)));
        return told.toString();
    }

    private static String hex(String text) {
        StringBuilder told = new StringBuilder();
        for (char each : text.toCharArray()) {
            told.append(String.format("%04x", (int) each));
        }
        return told.toString();
    }

    private static String text(String hex) {
        StringBuilder read = new StringBuilder();
        for (int at = 0; at < hex.length(); at += 4) {
            read.append((char) Integer.parseInt(hex.substring(at, at + 4), 16));
        }
        return read.toString();
    }
}
