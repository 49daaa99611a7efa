import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.errors.UnknownLeaderEpochException;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.requests.AbstractRequest;

/** For each line of stdin, an api key, a version and a request in hexadecimal: what getErrorResponse gives, or nothing if it is not parsed. */
public class ErrorAnswers {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", 3);
            System.out.println(answer(ApiKeys.forId(Integer.parseInt(words[0])), Short.parseShort(words[1]), words[2]));
        }
    }

    private static String answer(ApiKeys key, short version, String body) {
        try {
            var request = AbstractRequest.parseRequest(key, version, new ByteBufferAccessor(ByteBuffer.wrap(HexFormat.of().parseHex(body))));
            var response = request.request.getErrorResponse(0, new UnknownLeaderEpochException("because"));
            ByteBuffer encoded = MessageUtil.toByteBufferAccessor(response.data(), version).buffer();
            byte[] bytes = new byte[encoded.remaining()];
            encoded.get(bytes);
            return HexFormat.of().formatHex(bytes);
        } catch (RuntimeException | AssertionError unknown) {
            return "";
        }
    }
}
