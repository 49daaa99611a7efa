import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.FilterOutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs the main methods of Kafka's tools one after the other in one JVM, which saves starting one for each.
 *
 * On standard input comes: number of arguments, the class and its arguments, the tool's standard input. Back goes: exit
 * status, what the tool printed, what it complained of. Numbers are ints, texts a length and UTF-8.
 */
public class Launcher {
    static class Exited extends RuntimeException {
        final int status;

        Exited(int status) {
            super("exit " + status, null, false, false);
            this.status = status;
        }
    }

    /** Where output goes for now. Scala keeps the stream that it saw first, so that one must not be replaced. */
    static class Output extends FilterOutputStream {
        Output() {
            super(new ByteArrayOutputStream());
        }

        @Override
        public void write(byte[] data, int offset, int length) throws java.io.IOException {
            out.write(data, offset, length);
        }

        void begin() {
            out = new ByteArrayOutputStream();
        }

        byte[] taken() {
            return ((ByteArrayOutputStream) out).toByteArray();
        }
    }

    static final Output printed = new Output();
    static final Output complaints = new Output();

    public static void main(String[] ignored) throws Exception {
        DataInputStream requests = new DataInputStream(System.in);
        DataOutputStream answers = new DataOutputStream(System.out);
        Exit.setExitProcedure((status, message) -> { throw new Exited(status); });
        Exit.setHaltProcedure((status, message) -> { throw new Exited(status); });
        Exit.setShutdownHookAdder((name, hook) -> { });
        System.setOut(new PrintStream(printed, true));
        System.setErr(new PrintStream(complaints, true));
        while (true) {
            int count;
            try {
                count = requests.readInt();
            } catch (EOFException end) {
                System.exit(0);
                return;
            }
            String[] command = new String[count];
            for (int i = 0; i < count; i++) {
                command[i] = new String(read(requests), StandardCharsets.UTF_8);
            }
            int status = run(command, read(requests));
            answers.writeInt(status);
            write(answers, printed.taken());
            write(answers, complaints.taken());
            answers.flush();
        }
    }

    static int run(String[] command, byte[] input) {
        System.setIn(new ByteArrayInputStream(input));
        printed.begin();
        complaints.begin();
        String[] arguments = new String[command.length - 1];
        System.arraycopy(command, 1, arguments, 0, arguments.length);
        int[] status = {0};
        Thread tool = new Thread(() -> {
            try {
                Class.forName(command[0]).getMethod("main", String[].class).invoke(null, (Object) arguments);
            } catch (InvocationTargetException failed) {
                status[0] = statusOf(failed.getCause());
            } catch (ReflectiveOperationException unknown) {
                unknown.printStackTrace(System.err);
                status[0] = 255;
            }
        });
        tool.start();
        try {
            tool.join();
        } catch (InterruptedException impossible) {
            throw new IllegalStateException(impossible);
        }
        System.out.flush();
        System.err.flush();
        return status[0];
    }

    /** As the JVM would end: of itself with the status that was asked for, or with 1 and a trace. */
    static int statusOf(Throwable cause) {
        if (cause instanceof Exited) {
            return ((Exited) cause).status;
        }
        System.err.print("Exception in thread \"main\" ");
        cause.printStackTrace(System.err);
        return 1;
    }

    static byte[] read(DataInputStream in) throws java.io.IOException {
        byte[] data = new byte[in.readInt()];
        in.readFully(data);
        return data;
    }

    static void write(DataOutputStream out, byte[] data) throws java.io.IOException {
        out.writeInt(data.length);
        out.write(data);
    }
}
